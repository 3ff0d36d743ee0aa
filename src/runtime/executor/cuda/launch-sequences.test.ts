/**
 * Launches of one plan that follow each other with nothing between them, as captured graphs replay them: each of a size and on
 * buffers of its own, in interleavings in which a strand or a rank falls behind the others.
 */
import { afterAll, describe, expect, it } from "vitest";
import { Random } from "../../../../test/oracle/random.ts";
import {
  HostKernels,
  type HostLaunch,
  HostRanks,
  hasHostCompiler,
} from "../../../../test/support/host-cuda/host-kernels.ts";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import { broadcast, compile, program } from "../../../authoring/language/index.ts";
import { type ExecutionPlan, proofOf } from "../../../authoring/plan/index.ts";
import { provePlan } from "../../../authoring/verifier/index.ts";
import type { CudaOptions } from "./generate.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? 1);
const LAUNCHES = 20;
const SEQUENCES = 4;
/** Elements, as the soak of devices has them. */
const LENGTHS = [1, 3, 8, 33, 64, 100, 256];

const library = (name: string, numRanks: number, instances = 1) =>
  compile(algorithm(name).make({ numRanks, instances }), { verify: false });

/**
 * Rank 0 sends two chunks to rank 1. It ends when the first was read, and does not know of the second: the next launch waits
 * before it writes that one again. So its launches may follow each other only as long as a chunk is where it was before.
 */
const twoAnswers = () =>
  compile(
    program({ name: "two-answers", collective: broadcast(2, { chunks: 2 }) }, (p) => {
      const [from, to] = [p.rank(0), p.rank(1)];
      const inbox = to.scratch(2);
      for (const chunk of [0, 1]) {
        const [there, back] = [p.memoryChannel(from, to), p.memoryChannel(to, from)];
        if (chunk === 1) {
          back.signal(1);
          there.wait(1);
        }
        there.put(inbox.at(chunk), from.input.at(chunk), chunk);
        there.signal(chunk);
        back.wait(chunk);
        p.copy(to.output.at(chunk), inbox.at(chunk), chunk);
        if (chunk === 0) {
          back.signal(0);
          there.wait(0);
        }
        p.copy(from.output.at(chunk), from.input.at(chunk), chunk);
      }
    }),
    { verify: false },
  );

const CASES: readonly (readonly [plan: ExecutionPlan, Partial<CudaOptions>])[] = [
  [library("one-shot-packet-all-reduce", 2), {}],
  [library("one-shot-packet-all-reduce", 2, 2), { packets: "lines" }],
  [twoAnswers(), {}],
];

/** Launches of random sizes, whose results differ from each other. */
function sequence(ranks: HostRanks, random: Random): { launches: HostLaunch[]; wrong: () => string[] } {
  const { plan, memory } = ranks;
  const value = (launch: number, rank: number, i: number) =>
    (Math.imul(launch + 1, 7919) + Math.imul(rank + 1, 104_729) + i) >>> 0;
  const launches = Array.from({ length: LAUNCHES }, (_, launch): HostLaunch => {
    const partBytes = 4 * LENGTHS[random.u32() % LENGTHS.length]!;
    const buffers = plan.ranks.map(({ rank }) => {
      const [input, output] = [memory.allocate(partBytes, false), memory.allocate(partBytes, false)];
      ranks.view("u32", input, partBytes).forEach((_, i, all) => {
        all[i] = value(launch, rank, i);
      });
      return { input, inputBytes: partBytes, output, outputBytes: partBytes };
    });
    return { partBytes, buffers };
  });
  const from = plan.collective.operation === "broadcast" ? [0] : plan.ranks.map(({ rank }) => rank);
  const wrong = () =>
    launches.flatMap(({ partBytes, buffers }, launch) =>
      buffers.flatMap(({ output }, rank) => {
        const got = ranks.view("u32", output, partBytes);
        const at = got.findIndex((found, i) => found !== from.reduce((sum, r) => sum + value(launch, r, i), 0) >>> 0);
        return at < 0 ? [] : [`launch ${launch} of ${partBytes} bytes, rank ${rank}, element ${at} is ${got[at]}`];
      }),
    );
  return { launches, wrong };
}

describe.skipIf(!hasHostCompiler())("launches of changing sizes, one behind the other", () => {
  const [kernels, endable] = [new HostKernels(), new HostKernels()];
  afterAll(() => {
    kernels.close();
    endable.close();
  });

  it("neither take each other's packets nor overwrite each other's data", { timeout: 120_000 }, () => {
    const all = CASES.map(([plan, options]) => {
      provePlan(plan);
      const proof = proofOf(plan);
      expect([plan.name, proof?.ok === true && proof.relaunches() && proof.endsAlone()]).toEqual([plan.name, true]);
      const own = { dtype: "u32", relaunches: true, endsAlone: true, debugTurns: 20_000, seed, ...options } as const;
      return new HostRanks(plan, kernels, own);
    });
    const random = new Random(seed);
    const found = all.flatMap((ranks) =>
      Array.from({ length: SEQUENCES }).flatMap(() => {
        const { launches, wrong } = sequence(ranks, random);
        const stuck = ranks.launchAll(launches);
        const { plan, kernel } = ranks;
        const who = `seed ${seed}: ${plan.name}, ${plan.ranks.length} ranks, ${kernel.packets ?? "no packets"}`;
        return (stuck === undefined ? wrong() : [stuck]).map((what) => `${who}: ${what}`);
      }),
    );
    expect(found).toEqual([]);
  });

  it("end soon behind one that was ended, though a peer never comes", () => {
    const plan = library("one-shot-packet-all-reduce", 2);
    // Fewer turns than a wait takes until it looks for the second time: it may not need them.
    const own = { dtype: "u32", relaunches: true, endsAlone: true, debugTurns: 100, seed } as const;
    const ended = [{}, { packets: "lines" } as const].map((options) => {
      const ranks = new HostRanks(plan, endable, { ...own, ...options });
      const { launches } = sequence(ranks, new Random(seed));
      return { ranks, launches };
    });
    for (const { ranks, launches } of ended) {
      ranks.end();
      expect(ranks.launchAll(launches, [0])).toBe(undefined);
    }
  });
});
