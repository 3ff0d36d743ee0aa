/**
 * Estimates against published measurements, a part of bench/results/planner-accuracy.md: bounds by category, so that a
 * later change cannot lose what was gained. Facts and sources stand in published-points.json.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../src/machine/topology/index.ts";
import { modelPreset, type PlanRequest, planModel, type ShardingPlan } from "../../src/planner/index.ts";

interface Point {
  readonly id: string;
  readonly category: string;
  readonly metric: string;
  readonly published: number;
  readonly model: string;
  readonly hardware: string;
  readonly request: Omit<PlanRequest, "model" | "inventory">;
}

const points = JSON.parse(readFileSync(new URL("published-points.json", import.meta.url), "utf8")) as readonly Point[];

function figureOf(metric: string, plan: ShardingPlan): number {
  const { estimates, workload, mesh } = plan;
  if (estimates.kind === "training") return estimates.tokensPerSecond / mesh.worldSize;
  const generated = (workload.batch * workload.outputTokens * 1e3) / estimates.requestMs;
  switch (metric) {
    case "decode_user":
      return estimates.decodeTokensPerSecondPerUser;
    case "output_tps":
      return generated;
    case "output_tps_gpu":
      return generated / mesh.worldSize;
    case "ttft_ms":
      return estimates.ttftMs;
    case "latency_s":
      return estimates.requestMs / 1e3;
    default:
      throw new Error(`no figure for ${metric}`);
  }
}

function ratioOf(point: Point): number {
  const inventory = parseSystem(point.hardware);
  if (inventory === undefined) throw new Error(`no ${point.hardware}`);
  const [plan] = planModel({ ...point.request, model: modelPreset(point.model), inventory }).plans;
  if (plan === undefined) throw new Error(`${point.id} has no plan`);
  return figureOf(point.metric, plan) / point.published;
}

// arXiv 2504.14960 publishes up to 49 % MFU of this model on 128 H100, counting attention over the whole context.
it("estimates large experts to train at no less than 0.7 of the best published utilization", () => {
  const inventory = parseSystem("16x hgx-h100-8");
  if (inventory === undefined) throw new Error("no such system");
  const request = {
    train: "full",
    contextTokens: 4096,
    batch: 256,
    constrain: { tp: 2, pp: 8, ep: 8, cp: 1 },
  } as const;
  const [plan] = planModel({ ...request, model: modelPreset("mixtral-8x22b"), inventory }).plans;
  const { estimates } = plan ?? {};
  expect(estimates?.kind === "training" ? estimates.mfu : 0).toBeGreaterThan(0.7 * 0.49);
});

describe("estimates against published measurements", () => {
  const categories = [...new Set(points.map(({ category }) => category))];
  it.each(categories)("%s: geometric mean within 0.8 to 1.25, median error within 20 %%", (category) => {
    const ratios = points.filter((point) => point.category === category).map(ratioOf);
    const mean = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
    const errors = ratios.map((ratio) => Math.abs(ratio - 1)).sort((a, b) => a - b);
    expect(mean).toBeGreaterThan(0.8);
    expect(mean).toBeLessThan(1.25);
    expect(errors[Math.floor((errors.length - 1) / 2)]).toBeLessThan(0.2);
  });
});
