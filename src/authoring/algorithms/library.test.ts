import { describe, expect, it } from "vitest";
import { interpret } from "../../../test/support/interpret.ts";
import { isFull, spread } from "../../../test/support/spread.ts";
import { compile } from "../language/index.ts";
import { hashPlan } from "../plan/index.ts";
import { verifyPlan } from "../verifier/index.ts";
import { ALGORITHMS, type AlgorithmEntry, algorithm } from "./index.ts";

/** CHORALE_FULL=1 tries more numbers, and the large ones of every algorithm: else they are tried of a fifth, which the seed chooses. */
const choice = Number(process.env["CHORALE_SEED"] ?? 0);
const turns = spread(ALGORITHMS, 5);
const hasTurn = (entry: AlgorithmEntry) => turns.includes(entry);
const ranksOf = (entry: AlgorithmEntry) => {
  if (isFull) return [2, 3, 4, 5, 6, 7, 8, 15, 16];
  return hasTurn(entry) ? [2, 3, 4, 5, 8, 15] : [2, 3, 4];
};
const ROOTED = ["broadcast", "reduce", "gather", "scatter"];
/** Of interleavings: each compared with what the collective means. */
const SEEDS = (isFull ? [1, 2, 3, 4] : [1]).map((seed) => seed + choice);
const promises = { outputAtRankEnd: true, reuseAtRankEnd: true };

describe.each(ALGORITHMS)("$name", (entry) => {
  it("is proved right, and done when each rank ends", () => {
    for (const numRanks of ranksOf(entry).filter(entry.legal)) {
      for (const inPlace of entry.inPlace && numRanks <= 8 ? [false, true] : [false]) {
        for (const root of ROOTED.includes(entry.collective) && numRanks <= 5 ? [0, numRanks - 1] : [0]) {
          const plan = compile(entry.make({ numRanks, inPlace, root }), { verify: false });
          expect(
            verifyPlan(plan, { promises }).findings,
            `${numRanks} ranks, inPlace ${inPlace}, root ${root}`,
          ).toEqual([]);
        }
      }
    }
  });

  it("computes its collective under random interleavings", () => {
    for (const numRanks of (hasTurn(entry) ? [2, 3, 4, 5, 6] : [2, 4]).filter(entry.legal)) {
      for (const inPlace of entry.inPlace ? [false, true] : [false]) {
        const plan = compile(entry.make({ numRanks, inPlace, root: numRanks - 1 }), { verify: false });
        for (const seed of SEEDS) expect(interpret(plan, seed), `${numRanks} ranks, seed ${seed}`).toBeUndefined();
      }
    }
  });

  it("is right with instances, and over port channels where it only puts", () => {
    const numRanks = entry.legal(3) ? 3 : 4;
    const variants = /read|packet|switch|one-pass/.test(entry.name)
      ? [{ instances: 3 }]
      : [{ instances: 3 }, { channel: "port" as const }];
    for (const variant of variants) {
      const plan = compile(entry.make({ numRanks, ...variant }), { verify: false });
      expect(verifyPlan(plan, { promises }).findings).toEqual([]);
      for (const seed of SEEDS) expect(interpret(plan, seed), JSON.stringify(variant)).toBeUndefined();
    }
  });

  it("compiles to the same plan again", () => {
    const numRanks = entry.legal(3) ? 3 : 4;
    const program = entry.make({ numRanks });
    const hashOf = (made: typeof program) => hashPlan(compile(made, { verify: false }));
    const hash = hashOf(program);
    expect([hashOf(program), hashOf(entry.make({ numRanks }))]).toEqual([hash, hash]);
  });
});

describe.each(ALGORITHMS.filter(({ overlaps }) => overlaps))("$name in pieces that overlap", (entry) => {
  const shapes = [
    [4, 2, 2],
    [6, 2, 3],
    [6, 3, 2],
    [8, 4, 2],
    [8, 2, 8],
  ] as const;
  it.each(spread(shapes, 5, ALGORITHMS.indexOf(entry)))(
    "is proved right and computes: %i ranks, %i a node, %i pieces",
    (numRanks, ranksPerNode, chunks) => {
      for (const variant of [{}, { inPlace: true }, { instances: 2 }]) {
        const plan = compile(entry.make({ numRanks, ranksPerNode, chunks, ...variant }), { verify: false });
        expect(verifyPlan(plan, { promises }).findings, JSON.stringify(variant)).toEqual([]);
        for (const seed of SEEDS) expect(interpret(plan, seed), JSON.stringify(variant)).toBeUndefined();
      }
    },
  );
});

describe("algorithm", () => {
  it("names what there is", () => {
    expect(algorithm("ring-all-reduce").collective).toBe("all_reduce");
    expect(() => algorithm("magic")).toThrow(/ring-all-reduce/);
  });
});

describe("strands that put to one peer after the other", () => {
  it.each([
    "one-shot-all-reduce",
    "one-shot-packet-all-reduce",
    "two-shot-all-reduce",
    "hierarchical-all-reduce",
    "hierarchical-all-gather",
    "hierarchical-reduce-scatter",
    "hierarchical-all-to-all",
    "packet-all-gather",
    "packet-reduce-scatter",
    "direct-reduce-scatter",
    "scatter-gather-reduce",
    "pairwise-all-to-all",
  ])("%s: every rank begins with another one", (name) => {
    const plan = compile(algorithm(name).make({ numRanks: 8, ranksPerNode: 4 }), { verify: false });
    const first = plan.ranks.map((rank) => {
      const puts = rank.strands.flatMap(({ ops }) => ops.flatMap((op) => (op.kind === "put" ? op.dst : [])));
      return puts[0]?.rank;
    });
    expect(new Set(first).size, first.join(" ")).toBe(8);
  });
});

it("makes what counts and peers of the caller's own say", () => {
  const sendCounts = [
    [1, 2],
    [3, 0],
  ];
  const varying = algorithm("direct-all-to-all-v").make({ numRanks: 2, sendCounts });
  const { ranks } = compile(varying, { verify: false });
  expect(ranks.map(({ input, output }) => [input.chunks, output.chunks])).toEqual([
    [3, 4],
    [3, 2],
  ]);
  expect(verifyPlan(compile(varying, { verify: false })).findings).toEqual([]);
  const sending = algorithm("direct-send-recv").make({ numRanks: 4, sendTo: [1, 0, 3, 2] });
  const peers = compile(sending, { verify: false }).ranks.map(({ channels }) => channels.memory);
  expect(peers).toEqual([[1], [0], [3], [2]]);
  expect(() => algorithm("direct-send-recv").make({ numRanks: 4, sendTo: [1] })).toThrow(/sendTo.*a list of 4/);
});

it("makes the channels of a barrier for the ranks that signal each other alone", () => {
  const { ranks } = compile(algorithm("dissemination-barrier").make({ numRanks: 16 }), { verify: false });
  // To 1, 2 and 4 before and behind, and 8 away.
  expect(ranks.map(({ channels }) => channels.memory.length)).toEqual(Array.from({ length: 16 }, () => 7));
});
