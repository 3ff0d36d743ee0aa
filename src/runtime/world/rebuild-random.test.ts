/**
 * Random failures: worlds of 2 to 5 ranks that die as a random plan says, in generation after generation. Each run ends
 * within its bound, with the right sums on every rank of the last generation, or with an error that says why no further
 * rebuild was made; over NCCL's stand-in nothing stays on the devices. `CHORALE_FAULTS=200` runs more of them, `CHORALE_SEED=N` repeats one.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Fault, How, Plan, Report } from "../../../test/e2e/ranks/faulty.ts";
import { buildFakeGpu, heldByFakeGpu, NOTHING_HELD, useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { Random } from "../../../test/oracle/random.ts";
import { RankFailedError } from "../../core/index.ts";
import type { WorldEvent } from "./events.ts";
import { launch } from "./launch.ts";

const module = new URL("../../../test/e2e/ranks/faulty.ts", import.meta.url);
const numRuns = Number(process.env["CHORALE_FAULTS"] ?? 3);
const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
/** Often quick, now and then one that must be ended. */
const NOTICED: readonly How[] = ["throw", "throw", "exit1", "exit1", "reject", "again", "again"];
const HOWS: readonly How[] = [...NOTICED, "exit0", "late", "loop", "block", "idle"];
const NUM_NOTICED = NOTICED.length;

function numThreads(): number {
  return Number(/^Threads:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);
}

async function runOne(runSeed: number, backend: "threads" | "nccl"): Promise<string> {
  const random = new Random(runSeed);
  const ranks = 2 + random.below(4);
  const onFailure = random.below(3) === 0 ? "shrink" : "respawn";
  const faults = Array.from({ length: 1 + random.below(4) }, (_, index): Fault => {
    const rank = random.below(ranks);
    // Somebody must notice: when every rank only waits for itself, the world's time limit alone ends it. Who leaves with
    // code 0 is missed by nobody who waits for itself.
    const how = HOWS[random.below(rank === 0 ? NUM_NOTICED : HOWS.length)] as How;
    return { generation: index === 0 ? 1 : 1 + random.below(3), rank, how, step: random.below(3) };
  });
  const what = `seed ${runSeed}: ${ranks} ranks, ${onFailure}, ${JSON.stringify(faults)}`;
  const events: WorldEvent[] = [];
  try {
    const results = await launch<Report, Plan>({
      ranks,
      module,
      backend,
      onFailure,
      data: { faults, steps: 3, timeoutMs: 2000 },
      restarts: 5,
      rebuildTimeoutMs: 1000,
      timeoutMs: 60_000,
      onEvent: (event) => events.push(event),
      onOutput: () => {},
    });
    const last = events.filter((event) => event.kind === "generation-started").at(-1);
    expect(last?.worldSize, what).toBe(results.length);
    for (const [rank, result] of results.entries()) {
      const { generation } = last ?? {};
      // Who left with code 0, and was missed by nobody, has no result.
      const left = faults.some(
        (fault) => fault.how === "exit0" && fault.generation === generation && fault.rank === rank,
      );
      if (result === undefined && left) continue;
      expect(result, what).toMatchObject({ rank, size: results.length, generation, wrong: [] });
    }
    return `generation ${last?.generation}`;
  } catch (error) {
    expect(error, `${what}\n${String((error as Error).stack)}`).toBeInstanceOf(RankFailedError);
    const refused = events.find((event) => event.kind === "rebuild-refused");
    expect(refused?.because, what).toMatch(/^rank \d+ has returned already|rebuilds are used up$|^no rank is left/);
    return `refused: ${refused?.because}`;
  }
}

async function runAll(backend: "threads" | "nccl", runs: number, check: (run: number) => void): Promise<void> {
  const outcomes = new Map<string, number>();
  const hasProc = process.platform === "linux";
  let before = 0;
  for (let run = 0; run < runs; run++) {
    const outcome = (await runOne(seed + run, backend)).replace(/^refused: rank \d+/, "refused: rank");
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    check(seed + run);
    if (run === 0 && hasProc) before = numThreads();
  }
  if (hasProc) expect(numThreads()).toBeLessThanOrEqual(before + 2);
  if (runs > 20) console.log(backend, Object.fromEntries(outcomes));
}

const limit = { timeout: 90_000 + numRuns * 15_000 };

it(`ends well or says why, whoever dies when (seed ${seed})`, limit, () => runAll("threads", numRuns, () => {}));

const available = useFakeGpu();
describe.skipIf(!available)("over NCCL's stand-in (needs g++)", () => {
  it(`leaves nothing on the devices, whoever dies when (seed ${seed})`, limit, () =>
    runAll("nccl", Math.ceil(numRuns / 4), (run) => {
      expect(heldByFakeGpu(buildFakeGpu() ?? ""), `seed ${run}`).toEqual(NOTHING_HELD);
    }),
  );
});
