import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { exportPlan } from "../export/export.ts";
import { modelPreset } from "../model/presets.ts";
import type { ShardingPlan } from "../plan.ts";
import { type PlanRequest, planModel } from "../plan-model.ts";
import { allowsLayers, chunkCounts, evenStages, leastLargestStage } from "./chunks.ts";

describe("chunks of an interleaved pipeline", () => {
  it.each([
    // layers, stages, chunks: Llama 3.1 405B's 126 layers take the embedding and the loss for one layer each.
    [126, 8, [8]],
    [126, 16, [8]],
    [56, 8, [7]],
    [80, 4, [8, 5]],
    [3, 2, [2]],
    [3, 3, []],
  ])("%i layers in %i stages: %j", (layers, stages, expected) => {
    expect(chunkCounts(layers, stages)).toEqual(expected);
  });

  it("stages hold all layers, each in whole chunks, and none is smaller than the bound says", () => {
    for (let layers = 2; layers <= 40; layers++)
      for (let stages = 2; stages <= 8; stages++)
        for (let chunks = 1; chunks <= 8; chunks++) {
          const counts = evenStages(layers, stages, chunks);
          if (counts === undefined) continue;
          expect(counts.reduce((sum, count) => sum + count, 0)).toBe(layers);
          expect(counts.every((count, stage) => count > 0 && allowsLayers(chunks, stage, stages, count))).toBe(true);
          expect(Math.max(...counts)).toBeGreaterThanOrEqual(leastLargestStage(layers, stages, chunks));
        }
  });
});

describe("a plan's pipeline", () => {
  const trained = (more: Partial<PlanRequest>): ShardingPlan => {
    const inventory = parseSystem("4x hgx-h100-8");
    const request = {
      model: modelPreset("llama-3.1-70b"),
      train: "full",
      contextTokens: 8192,
      batch: 256,
      zeroStage: 1,
    } as const;
    const constrain = { tp: 8, pp: 4, dp: 1, cp: 1 };
    const [plan] = inventory === undefined ? [] : planModel({ ...request, inventory, constrain, ...more }).plans;
    if (plan === undefined) throw new Error("no plan");
    return plan;
  };
  const stagesOf = (plan: ShardingPlan) =>
    [...new Set(plan.ranks.map(({ layers }) => `${layers.first}-${layers.end}`))]
      .map((text) => text.split("-").map(Number))
      .map(([first = 0, end = 0]) => end - first);
  const stepOf = ({ estimates }: ShardingPlan) => (estimates.kind === "training" ? estimates.stepMs : 0);

  it("is interleaved only where each stage divides into the chunks that are counted, and its export says so", () => {
    const plan = trained({});
    const { pipelineChunks: chunks = 1 } = plan.workload;
    expect(chunks).toBeGreaterThan(1);
    for (const [stage, count] of stagesOf(plan).entries()) expect(allowsLayers(chunks, stage, 4, count)).toBe(true);
    expect(exportPlan(plan, "megatron-lm").command).toContain(`--num-virtual-stages-per-pipeline-rank ${chunks}`);
    expect(stepOf(plan)).toBeLessThan(stepOf(trained({ pipelineSchedule: "1f1b" })));
  });

  it("is 1F1B where the micro-batches make no whole rounds, and refused where interleaving is asked for", () => {
    const odd = { batch: 33, microBatch: 1 };
    const plan = trained(odd);
    expect(plan.workload.pipelineChunks).toBeUndefined();
    expect(stepOf(plan)).toBeCloseTo(stepOf(trained({ ...odd, pipelineSchedule: "1f1b" })), 6);
    expect(exportPlan(plan, "megatron-lm").command).not.toContain("virtual");
    expect(() => trained({ ...odd, pipelineSchedule: "interleaved" })).toThrow("no plan");
  });
});
