/**
 * Launches of one plan that follow each other with nothing between them, as captured graphs replay them: each of a size and on
 * buffers of its own, in interleavings in which a strand or a rank falls behind the others.
 */
import { afterAll, describe, expect, it } from "vitest";
import { Random } from "../../../../test/oracle/random.ts";
import {
  HostKernels,
  type HostLaunch,
  type HostOptions,
  HostRanks,
  hasHostCompiler,
} from "../../../../test/support/host-cuda/host-kernels.ts";
import { elementsOf } from "../../../../test/support/run-collective.ts";
import { spread } from "../../../../test/support/spread.ts";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import { broadcast, compile, program } from "../../../authoring/language/index.ts";
import { type ExecutionPlan, proofOf } from "../../../authoring/plan/index.ts";
import { provePlan } from "../../../authoring/verifier/index.ts";
import { type OperationName, outputSegments } from "../../../collectives/index.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? 1);
const LAUNCHES = 20;
const SEQUENCES = 3;
/** Elements, as the soak of devices has them. */
const LENGTHS = [1, 3, 8, 33, 64, 100, 256];

const library = (name: string, numRanks: number, instances = 1) =>
  compile(algorithm(name).make({ numRanks, instances, root: 1 }), { verify: false });

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

type Case = readonly [plan: ExecutionPlan, options: Partial<HostOptions>];

/** The verifier lets their launches follow each other. */
const RELAUNCHED: readonly Case[] = [
  [library("one-shot-packet-all-reduce", 2), {}],
  [library("one-shot-packet-all-reduce", 2, 2), { packets: "lines" }],
  [twoAnswers(), {}],
  [library("packet-all-gather", 3, 2), { packets: "lines" }],
  [library("packet-reduce-scatter", 3, 2), {}],
  [library("two-shot-packet-all-reduce", 3), { packets: "lines" }],
];

/** Some of their sizes have kernels of their own. */
const FOLDED: readonly Case[] = [
  [library("one-shot-packet-all-reduce", 2, 2), { packets: "lines" }],
  [library("packet-all-gather", 3, 2), {}],
  [library("packet-reduce-scatter", 2), { packets: "sheets" }],
];
const FOLDED_SIZES = [8, 64, 256].map((count) => 4 * count);

/** Some ranks hear nothing back within a launch: they run ahead, as far as there are slots of scratch. */
const AHEAD: readonly Case[] = [
  [library("packet-broadcast", 3), { slots: 2 }],
  [library("packet-broadcast", 2, 2), { packets: "sheets" }],
  [library("packet-reduce", 3), { packets: "lines", slots: 1 }],
  [library("packet-gather", 2), {}],
  [library("staged-scatter", 3), { slots: 2 }],
  [library("streaming-all-reduce", 2), {}],
];

/** Launches of random sizes, whose results differ from each other. */
function sequence(ranks: HostRanks, random: Random): { launches: HostLaunch[]; wrong: () => string[] } {
  const { plan, memory } = ranks;
  const value = (launch: number, rank: number, i: number) =>
    (Math.imul(launch + 1, 7919) + Math.imul(rank + 1, 104_729) + i) >>> 0;
  const launches = Array.from({ length: LAUNCHES }, (_, launch): HostLaunch => {
    const count = LENGTHS[random.u32() % LENGTHS.length]!;
    const buffers = plan.ranks.map(({ rank }) => {
      const { input, output } = elementsOf(plan, rank, count);
      const [inputBytes, outputBytes] = [4 * input, 4 * output];
      const at = memory.allocate(inputBytes, false);
      ranks.view("u32", at, inputBytes).forEach((_, i, all) => {
        all[i] = value(launch, rank, i);
      });
      return { input: at, inputBytes, output: memory.allocate(outputBytes, false), outputBytes };
    });
    return { partBytes: 4 * count, buffers };
  });
  const { operation, root = 0 } = plan.collective;
  const wrong = () =>
    launches.flatMap(({ partBytes, buffers }, launch) =>
      buffers.flatMap(({ output, outputBytes }, rank) => {
        const got = ranks.view("u32", output, outputBytes);
        const { length: numRanks } = plan.ranks;
        const segments = outputSegments(operation as OperationName, { numRanks, rank, root, count: partBytes / 4 });
        return segments.flatMap(({ at, length, start, from }) => {
          const sources = from === undefined ? plan.ranks.map((r) => r.rank) : [from];
          const wanted = (i: number) => sources.reduce((sum, r) => sum + value(launch, r, start + i), 0) >>> 0;
          const i = got.subarray(at, at + length).findIndex((found, i) => found !== wanted(i));
          if (i < 0) return [];
          return [`launch ${launch} of parts of ${partBytes} bytes, rank ${rank}, element ${at + i} is ${got[at + i]}`];
        });
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
    const of = (cases: readonly Case[], relaunches: boolean) =>
      cases.map(([plan, options]) => {
        provePlan(plan);
        const proof = proofOf(plan);
        expect([plan.name, proof?.ok === true && proof.endsAlone()]).toEqual([plan.name, true]);
        expect([plan.name, proof?.ok === true && proof.relaunches()]).toEqual([plan.name, relaunches]);
        const own = { dtype: "u32", relaunches, endsAlone: true, debugTurns: 20_000, seed, ...options } as const;
        if (FOLDED.some(([folded]) => folded === plan))
          return new HostRanks(plan, kernels, { ...own, foldedSizes: FOLDED_SIZES });
        const ranks = new HostRanks(plan, kernels, own);
        expect(ranks.kernel.runsAhead).toBe(!relaunches);
        return ranks;
      });
    const all = [...of(spread(RELAUNCHED, 2, 1), true), ...of(spread(FOLDED, 3), true), ...of(spread(AHEAD, 3), false)];
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
