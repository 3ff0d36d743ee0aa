import { InvalidArgumentError } from "chorale";
import type { LlamaConfig } from "chorale/formats";
import { readLlamaConfig } from "chorale/formats";
import { parsePlan } from "chorale/planner";
import { describe, expect, it } from "vitest";
import { checkLayout } from "./generate.ts";
import { layoutOf, shardOf, splitEvenly } from "./layout.ts";
import { DEMO_MODEL, demoPlan } from "./testing/demo.ts";

const demo = readLlamaConfig(DEMO_MODEL);
const config = (extra: Partial<LlamaConfig>): LlamaConfig => ({ ...demo, ...extra });

describe("layoutOf", () => {
  it.each([
    [{ tp: 3 }, 3, /tp is 3; .*8 heads % tp 3 = 2, not 0/],
    [{ pp: 7 }, 7, /pp is 7; .*7 > 6 layers/],
    [{ tp: 2, pp: 2 }, 8, /number of ranks is 8; expected dp x pp x tp = 1 x 2 x 2 = 4 ranks/],
    [{ tp: 2, pp: 2, dp: 3 }, 8, /3 x 2 x 2 = 12 ranks/],
    [{ tp: 2, dp: "auto" }, 5, /dp x 1 x 2 = a multiple of 2/],
    [{ tp: 0 }, 1, /tp is 0/],
    [{ pp: 1.5 }, 1, /pp is 1.5/],
  ] as const)("refuses %j on %i ranks with the equation", (request, ranks, message) => {
    expect(() => checkLayout(DEMO_MODEL, request, ranks)).toThrow(InvalidArgumentError);
    expect(() => checkLayout(DEMO_MODEL, request, ranks)).toThrow(message);
  });

  it("refuses KV heads that neither divide tp nor are divided by it", () => {
    const odd = config({ numHeads: 12, numKvHeads: 4 });
    expect(() => layoutOf(odd, { tp: 6 }, 6)).toThrow(/4 KV heads % tp 6 = 4 and tp 6 % 4 KV heads = 2/);
    expect(layoutOf(odd, { tp: 12 }, 12).tp).toBe(12);
  });

  it("splits layers as evenly as they go, and counts replicas", () => {
    expect(layoutOf(demo, { pp: 4 }, 4).stages).toEqual([
      [0, 2],
      [2, 4],
      [4, 5],
      [5, 6],
    ]);
    expect(layoutOf(demo, { tp: 2, dp: "auto" }, 6)).toMatchObject({ dp: 3, pp: 1, tp: 2 });
  });

  it("follows a plan, and refuses one for another model or other sizes", () => {
    const plan = parsePlan(
      demoPlan({
        tp: 2,
        stages: [
          [0, 1],
          [1, 6],
        ],
      }),
    );
    expect(layoutOf(demo, { plan }, 4)).toEqual({
      dp: 1,
      pp: 2,
      tp: 2,
      stages: [
        [0, 1],
        [1, 6],
      ],
    });
    expect(() => layoutOf(demo, { plan, tp: 4 }, 4)).toThrow(/tp is 4; expected 2, as in the plan/);
    expect(() => layoutOf(demo, { plan }, 8)).toThrow(/number of ranks is 8/);
    expect(() => layoutOf(config({ vocabSize: 300 }), { plan }, 4)).toThrow(/plan's vocabulary is 256; expected 300/);
  });
});

describe("shardOf", () => {
  it("gives every head, column and row to one rank of each stage, and KV heads to all that need them", () => {
    for (const tp of [1, 2, 4, 8]) {
      const layout = layoutOf(config({ vocabSize: 101, intermediateSize: 37 }), { tp }, tp);
      const shards = Array.from({ length: tp }, (_, i) =>
        shardOf(config({ vocabSize: 101, intermediateSize: 37 }), layout, { pp: 0, tp: i }),
      );
      for (const [key, total] of [
        ["heads", 8],
        ["intermediate", 37],
        ["vocab", 101],
      ] as const) {
        const covered = shards.flatMap((shard) => {
          const [start, end] = shard[key];
          return Array.from({ length: end - start }, (_, i) => start + i);
        });
        expect(covered).toEqual(Array.from({ length: total }, (_, i) => i));
      }
      for (const { heads, kvHeads } of shards) {
        // 8 heads share 4 KV heads in pairs.
        expect(kvHeads).toEqual([Math.floor(heads[0] / 2), Math.floor((heads[1] - 1) / 2) + 1]);
      }
    }
  });

  it("splits evenly", () => {
    expect([0, 1, 2].map((i) => splitEvenly(7, 3, i))).toEqual([
      [0, 3],
      [3, 5],
      [5, 7],
    ]);
    expect([0, 1, 2].map((i) => splitEvenly(1, 3, i))).toEqual([
      [0, 1],
      [1, 1],
      [1, 1],
    ]);
  });
});
