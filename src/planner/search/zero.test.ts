/**
 * ZeRO cannot make bytes vanish: mixed-precision Adam keeps 16 bytes of every parameter somewhere (2 weights, 2
 * gradients, 4 master, 8 moments), so all ranks together hold at least that, however the mesh is cut.
 */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { modelPreset } from "../model/presets.ts";
import type { MemoryItem, PlanAxisSizes, ShardingPlan } from "../plan.ts";
import { planModel } from "../plan-model.ts";

const inventory = parseSystem("hgx-b300-8");
const STATES: readonly MemoryItem[] = ["weights", "gradients", "optimizerStates", "masterWeights"];

function trained(model: string, axes: Partial<PlanAxisSizes>, zeroStage: 0 | 1 | 2 | 3, train = "full"): ShardingPlan {
  if (inventory === undefined) throw new Error("no preset");
  const constrain = { dp: 1, pp: 1, ep: 1, cp: 1, tp: 1, ...axes };
  const [plan] = planModel({
    ...{ model: modelPreset(model), inventory, train, zeroStage, constrain },
    ...{ batch: 8, contextTokens: 512, useTotalMemory: true },
  }).plans;
  if (plan === undefined) throw new Error("no plan");
  return plan;
}

function bytesPerParameter(plan: ShardingPlan): number {
  const of = (items: Partial<Record<MemoryItem, number>>) => STATES.reduce((sum, name) => sum + (items[name] ?? 0), 0);
  return plan.ranks.reduce((sum, rank) => sum + of(rank.memory.items), 0) / plan.model.numParameters;
}

/** Milliseconds of a step, of stages 1 and 2, where each of eight replicas takes so many microbatches of one sequence. */
function stepsMs(microbatches: number): number[] {
  if (inventory === undefined) throw new Error("no preset");
  return ([1, 2] as const).map((zeroStage) => {
    const [plan] = planModel({
      ...{ model: modelPreset("llama-3.1-8b"), inventory, train: "full", zeroStage, checkpointing: "full" },
      ...{
        constrain: { dp: 8, pp: 1, ep: 1, cp: 1, tp: 1 },
        batch: 8 * microbatches,
        microBatch: 1,
        contextTokens: 512,
      },
    }).plans;
    if (plan?.estimates.kind !== "training") throw new Error("no plan");
    return plan.estimates.stepMs;
  });
}

describe("gradients", () => {
  it("are scattered once a step where they are kept whole, and for every microbatch where they are sharded", () => {
    const [whole = 0, sharded = 0] = stepsMs(1);
    expect(sharded).toBeCloseTo(whole, 6);
    const [wholeOf9 = 0, shardedOf9 = 0] = stepsMs(9);
    const [wholeOf17 = 0, shardedOf17 = 0] = stepsMs(17);
    // 16 GB over the NVLink of eight B300 at some 800 GB/s are 15 to 20 ms each time, most of which is seen.
    const more = shardedOf9 - wholeOf9;
    expect(more / 8).toBeGreaterThan(5);
    expect(more / 8).toBeLessThan(20);
    expect(shardedOf17 - wholeOf17).toBeCloseTo(2 * more, 3);
  });
});

describe("training states over all ranks", () => {
  it.each([
    // Experts are cut by ep already: only dp holds them again. ZeRO-3 leaves exactly one copy of everything.
    ["mixtral-8x7b", { ep: 8 }, 3, 16],
    ["mixtral-8x7b", { ep: 4, dp: 2 }, 3, 16],
    ["mixtral-8x7b", { ep: 2, tp: 4 }, 3, 16],
    ["llama-3.1-8b", { dp: 8 }, 3, 16],
    ["llama-3.1-8b", { dp: 2, tp: 4 }, 3, 16],
    // ZeRO-1 repeats weights and gradients (4 bytes) on each of two replicas.
    ["llama-3.1-8b", { dp: 2, pp: 2, tp: 2 }, 1, 20],
  ] as const)("%s with %o at ZeRO-%i: %i bytes a parameter", (model, axes, stage, expected) => {
    expect(bytesPerParameter(trained(model, axes, stage))).toBeCloseTo(expected, 1);
  });

  it("at ZeRO-2 only what is not an expert is repeated over ep", () => {
    const parameters = 46_702_792_704;
    const others = parameters - 32 * 8 * 3 * 4096 * 14_336;
    // Eight copies of their 16-bit weights in place of one.
    const expected = 16 + (7 * 2 * others) / parameters;
    expect(bytesPerParameter(trained("mixtral-8x7b", { ep: 8 }, 2))).toBeCloseTo(expected, 2);
  });

  it("adapters of experts are not spread over ep twice", () => {
    const adapters = (stage: 0 | 3) =>
      trained("mixtral-8x7b", { ep: 4 }, stage, "lora").ranks.reduce(
        (sum, rank) => sum + (rank.memory.items.optimizerStates ?? 0),
        0,
      );
    // Rank 16 in 32 layers, eight bytes of Adam an element: 8 experts of a fused gate and up and of a down matrix, and
    // the four of attention. One copy of each over all ranks.
    const experts = 8 * (2 * 14_336 + 4096 + (4096 + 14_336));
    const attention = 2 * (4096 + 4096) + 2 * (4096 + 1024);
    expect(adapters(3)).toBe(32 * 16 * 8 * (experts + attention));
    expect(adapters(3)).toBeLessThan(adapters(0));
  });
});
