/**
 * Failure and rebuild over NCCL, with the stand-in library: typed errors on every survivor within the deadline, right
 * sums in the next generation, and nothing held on the devices in the end. `CHORALE_KILLS=50` kills that often in a row
 * and repeats every other fault five times.
 */
import { describe, expect, it } from "vitest";
import type { Fault, How, Plan, Report } from "../../../test/e2e/ranks/faulty.ts";
import {
  buildFakeGpu,
  fakeGpuFolder,
  heldByFakeGpu,
  NOTHING_HELD,
  useFakeGpu,
} from "../../../test/helpers/fake-gpu.ts";
import { spread } from "../../../test/support/spread.ts";
import { RankFailedError } from "../../core/index.ts";
import type { WorldEvent } from "./events.ts";
import { joinWorld } from "./join.ts";
import { launch } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";
import type { World } from "./world.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const module = new URL("../../../test/e2e/ranks/faulty.ts", import.meta.url);
const numKills = Number(process.env["CHORALE_KILLS"] ?? 2);
const seed = Number(process.env["CHORALE_SEED"] ?? 1);
const numRepeats = numKills >= 50 ? 5 : 1;
const TIMEOUT_MS = 3000;
const REBUILD_MS = 1500;

/** Runs the faulty program; everything that was held must be free afterwards. */
async function run(faults: readonly Fault[], options: Partial<LaunchOptions<Report, Plan>> = {}) {
  const events: WorldEvent[] = [];
  const held: number[] = [];
  const results = await launch<Report, Plan>({
    ranks: 3,
    backend: "nccl",
    module,
    onFailure: "respawn",
    restarts: 1000,
    rebuildTimeoutMs: REBUILD_MS,
    data: { steps: 3, timeoutMs: TIMEOUT_MS, count: 1000, faults },
    onOutput: () => {},
    onEvent: (event) => {
      events.push(event);
      if (event.kind === "generation-ready") held.push(heldByFakeGpu(library).contexts);
    },
    ...options,
  } as LaunchOptions<Report, Plan>);
  expect(heldByFakeGpu(library)).toEqual(NOTHING_HELD);
  for (const { wrong } of results) expect(wrong).toEqual([]);
  return { results, events, held };
}

/** The longest time from a failure, or the first call of rebuild(), to the next generation, ms. */
function longestMs(events: readonly WorldEvent[]): number {
  return Math.max(
    ...events.map((event) => (event.kind === "generation-ready" && event.generation > 1 ? event.durationMs : 0)),
  );
}

describe.skipIf(!available)("a world over NCCL (stand-in library, needs g++)", () => {
  it(`goes on after ${numKills} kills in a row, however its ranks die`, {
    timeout: 90_000 + numKills * 8_000,
  }, async () => {
    const hows: readonly How[] = ["throw", "exit1", "reject", "exit0", "idle", "block"];
    const faults = Array.from({ length: numKills }, (_, i): Fault => {
      return { generation: i + 1, rank: i % 3, how: hows[(i + seed) % hows.length] as How, step: i % 2 };
    });
    const { results, events, held } = await run(faults);
    const generation = numKills + 1;
    expect(results.map((result) => [result.rank, result.size, result.generation])).toEqual(
      [0, 1, 2].map((rank) => [rank, 3, generation]),
    );
    expect(events.filter(({ kind }) => kind === "rebuild-started")).toHaveLength(numKills);
    // At most what three ranks hold, in every generation: what the dead held is given back.
    expect(Math.max(...held)).toBeLessThanOrEqual(9);
    expect(longestMs(events)).toBeLessThan(REBUILD_MS + 8000);
  });

  const failures = [
    ["a rank that never calls", "idle", /^TimeoutError$/],
    ["mismatched counts", "mismatch", /^MismatchError$/],
    ["an abort in mid-flight", "abort", /^AbortedError$/],
    ["a device that is out of memory", "memory", /^OutOfMemoryError$|^RankFailedError \d 1$/],
  ] as const;
  it.each(spread(failures, 2))("goes on after %s", { timeout: 90_000 * numRepeats }, async (_, how, error) => {
    const faults = Array.from({ length: numRepeats }, (__, i): Fault => ({ generation: i + 1, rank: 1, how, step: 1 }));
    const { results, events } = await run(faults);
    for (const { rank, generation, errors } of results) {
      expect(generation).toBe(numRepeats + 1);
      // Who was started again last has seen nothing.
      expect(errors).toHaveLength(how === "idle" && rank === 1 ? 0 : numRepeats);
      for (const seen of errors) expect(seen).toMatch(error);
    }
    expect(longestMs(events)).toBeLessThan(REBUILD_MS + 8000);
  });

  it("shrinks to the survivors, who free what the dead rank held", async () => {
    const { results } = await run([{ generation: 1, rank: 0, how: "block", step: 1 }], { onFailure: "shrink" });
    expect(results.map(({ rank, size, generation }) => [rank, size, generation])).toEqual([
      [0, 2, 2],
      [1, 2, 2],
    ]);
  });

  it("waits for no rank that is gone, when several threads go at once without a word", async () => {
    const sleptMs = await launch({
      ranks: 4,
      backend: "nccl",
      onFailure: "respawn",
      onOutput: () => {},
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (first: World, numReady: Int32Array) => {
        await first.comm.barrier();
        if (first.generation > 1) return 0;
        if (first.rank === 1 || first.rank === 2) {
          Atomics.add(numReady, 0, 1);
          while (Atomics.load(numReady, 0) < 2);
          // What process.exit() comes to, but for all that is told on the way.
          (process as unknown as { reallyExit(code: number): never }).reallyExit(9);
        }
        const failed = await first.comm.barrier().then(undefined, (error: Error) => error.name);
        // What it sleeps for, and not how long that takes: a machine that stands still is no waiting.
        const { wait } = Atomics;
        let leavingMs = 0;
        Atomics.wait = ((words: Int32Array, at: number, value: number, ms: number) => {
          const outcome = wait(words, at, value, ms);
          if (outcome === "timed-out") leavingMs += ms;
          return outcome;
        }) as typeof wait;
        const next = first.rebuild();
        Atomics.wait = wait;
        await (await next).comm.barrier();
        return failed === "RankFailedError" ? leavingMs : failed;
      },
    });
    // A rank that leaves waits for what may still call NCCL, a second at most: both would, for ranks that are gone. The
    // first to leave may have to wait for the other, and both until the launcher has seen the second of the dead end.
    expect(Math.min(...[0, 3].map((rank) => Number(sleptMs[rank])))).toBeLessThan(900);
    expect(heldByFakeGpu(library)).toEqual(NOTHING_HELD);
  });

  it("refuses device tensors of an older generation, with both generations", async () => {
    const messages = await launch({
      ranks: 2,
      backend: "nccl",
      onFailure: "respawn",
      run: async (world: World) => {
        const x = world.tensor("f32", [8]);
        await world.comm.allReduce(x);
        const next = await world.rebuild();
        const y = next.tensor("f32", [8]);
        await next.comm.allReduce(y);
        const say = async (what: () => unknown) => {
          try {
            await what();
            return "worked";
          } catch (error) {
            return `${(error as Error).name}: ${(error as Error).message}`;
          }
        };
        return [
          await say(() => next.comm.allReduce(x)),
          await say(() => next.download(x)),
          await say(() => next.upload(x, new Float32Array(8))),
          await say(() => world.comm.allReduce(y)),
        ];
      },
    });
    for (const said of messages) {
      for (const message of said.slice(0, 3)) expect(message).toMatch(/^ClosedError: .*generation 1.*generation 2/);
      expect(said[3]).toContain("was left for generation 2");
    }
    expect(heldByFakeGpu(library)).toEqual(NOTHING_HELD);
  });

  it("ends when a CUDA context is lost among threads: the error says that this process must end", async () => {
    const events: WorldEvent[] = [];
    const lost = launch({
      ranks: 2,
      backend: "nccl",
      onFailure: "respawn",
      onEvent: (event) => events.push(event),
      onOutput: () => {},
      run: async (world: World) => {
        const { deviceOf } = await import("chorale/world");
        await world.comm.barrier();
        if (world.rank === 1) deviceOf(world)?.device.fail("cuStreamSynchronize", 700, "a user's kernel");
        try {
          for (;;) await world.comm.barrier();
        } catch {
          await world.rebuild();
        }
      },
    });
    await expect(lost).rejects.toBeInstanceOf(RankFailedError);
    await expect(lost).rejects.toMatchObject({
      rank: 1,
      message: expect.stringMatching(/context.*was lost.*end the process and start another/),
    });
    expect(events.find(({ kind }) => kind === "rebuild-refused")).toMatchObject({
      because: expect.stringContaining('end the process and start another, or launch with isolation "process"'),
    });
  });

  it("starts a process again whose CUDA context was lost, and those that die", { timeout: 60_000 }, async () => {
    const folder = fakeGpuFolder();
    try {
      const results = await launch({
        ranks: 2,
        backend: "nccl",
        isolation: "process",
        onFailure: "respawn",
        rebuildTimeoutMs: 10_000,
        onOutput: () => {},
        env: { FAKE_GPU_FOLDER: folder.path },
        run: async (first: World) => {
          const { deviceOf } = await import("chorale/world");
          let world = first;
          for (;;) {
            try {
              const x = Float32Array.of(world.rank + 1);
              await world.comm.allReduce(x);
              if (world.generation === 1 && world.rank === 1) {
                deviceOf(world)?.device.fail("cuStreamSynchronize", 700, "a user's kernel");
              }
              if (world.generation === 2 && world.rank === 0) process.kill(process.pid, "SIGKILL");
              await world.comm.barrier();
              return [world.generation, process.pid, x[0]];
            } catch {
              world = await world.rebuild();
            }
          }
        },
      });
      expect(results.map((result) => [result?.[0], result?.[2]])).toEqual([
        [3, 3],
        [3, 3],
      ]);
    } finally {
      folder.remove();
    }
  });

  it("of one rank that nobody launched lets go of what its generations held", async () => {
    const watching = () => process.listenerCount("exit");
    const before = watching();
    const held = heldByFakeGpu(library);
    const world = await joinWorld({ backend: "nccl" });
    const next = await world.rebuild();
    // The watch over the exit is for worlds that stand: one for all of them.
    expect(watching()).toBe(before + 1);
    await next.close();
    expect(watching()).toBe(before);
    expect(heldByFakeGpu(library)).toEqual(held);
  });
});
