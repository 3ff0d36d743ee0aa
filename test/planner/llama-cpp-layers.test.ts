/**
 * llama.cpp on several GPUs: whole layers, as it splits by default. Published figures: XiongjieDai/GPU-Benchmarks-on-LLM-Inference,
 * README.md (00dd2bd), LLaMA 3 on RunPod, May 2024, tokens/s at 1,024 tokens.
 */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../src/machine/topology/index.ts";
import { modelPreset, type PlanRequest, planModel } from "../../src/planner/index.ts";

function planOn(hardware: string, more: Partial<PlanRequest> = {}) {
  const inventory = parseSystem(hardware);
  if (inventory === undefined) throw new Error(`no ${hardware}`);
  const model = modelPreset(more.outputTokens === 1 ? "llama-3.1-8b" : "llama-3.1-70b");
  const request = { model, inventory, quant: "q4_k_m", contextTokens: 1025, outputTokens: 1024, ...more };
  const [plan] = planModel(request).plans;
  if (plan?.estimates.kind !== "inference") throw new Error(`no plan on ${hardware}`);
  return { ...plan, estimates: plan.estimates };
}

describe("llama.cpp on several GPUs", () => {
  it.each([
    ["2x rtx4090", 19.06],
    ["2x rtx3090", 16.29],
    ["4x rtx3090", 16.89],
  ])("70B q4_k_m on %s splits by layers unasked, near the %d tokens/s that were measured", (hardware, published) => {
    const { mesh, estimates } = planOn(hardware);
    expect([mesh.axes.tp, mesh.axes.ep, mesh.axes.cp]).toEqual([1, 1, 1]);
    expect(mesh.axes.pp).toBeGreaterThan(1);
    expect(Math.abs(estimates.decodeTokensPerSecondPerUser / published - 1)).toBeLessThan(0.1);
  });

  it.each([
    ["rtx4090", 6898.71],
    ["rtx3090", 3865.39],
    ["rtx3080", 3557.02],
    ["rtx3070", 2283.62],
  ])("8B q4_k_m reads prompts on %s in 8-bit integers, near %d tokens/s", (hardware, published) => {
    const { estimates, workload } = planOn(hardware, { outputTokens: 1 });
    expect(Math.abs((workload.promptTokens * 1e3) / estimates.prefillMs / published - 1)).toBeLessThan(0.25);
  });

  it("decodes users together, stage after stage: two GPUs are no faster than twice the layers allow", () => {
    const [one, eight] = [planOn("2x rtx4090"), planOn("2x rtx4090", { batch: 8, outputTokens: 512 })];
    expect(eight.estimates.decodeStepMs).toBeGreaterThan(one.estimates.decodeStepMs);
    // Long prompts go through both in chunks, one behind the other.
    const prefill = (chunk: number) =>
      planOn("2x rtx4090", { contextTokens: 8192, outputTokens: 16, prefillChunkTokens: chunk }).estimates.prefillMs;
    expect(prefill(512)).toBeLessThan(0.7 * prefill(8192));
  });

  it("plans its row mode when told to, and says that it is slower than the estimate", () => {
    const { mesh, notes } = planOn("2x rtx4090", { constrain: { tp: 2 } });
    expect(mesh.axes.tp).toBe(2);
    expect(notes.join()).toMatch(/row mode is slower/);
  });
});
