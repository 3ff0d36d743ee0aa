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

  it.each([
    ["rtx3090", 4239.64],
    ["rtx4080", 6758.9],
    ["a6000", 4315.18],
  ])(
    "8B f16 reads prompts on %s with f16 sums, which GeForce cards do not halve: near %d tokens/s",
    (name, published) => {
      const { estimates, workload } = planOn(name, { outputTokens: 1, quant: "f16", engine: "llama.cpp" });
      expect(Math.abs((workload.promptTokens * 1e3) / estimates.prefillMs / published - 1)).toBeLessThan(0.25);
    },
  );

  it("decodes 4-bit weights by arithmetic on an M1 Max: an M3 Max of the same bandwidth is a third faster and more", () => {
    const speed = (hardware: string, quant: string) =>
      planOn(hardware, { quant, model: modelPreset("llama-3.1-8b") }).estimates.decodeTokensPerSecondPerUser;
    // Published: 50.74 to 34.49 in q4_k_m, 22.39 to 18.43 in f16.
    const [packed, plain] = ["q4_k_m", "f16"].map((quant) => speed("m3-max", quant) / speed("m1-max", quant));
    expect(packed).toBeGreaterThan(1.15);
    expect(plain).toBeLessThan(1.25);
    expect(packed).toBeGreaterThan((plain ?? 0) * 1.1);
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
