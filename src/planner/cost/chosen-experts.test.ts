import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { modelFromConfig } from "../model/from-config.ts";
import { modelPreset } from "../model/presets.ts";
import { type PlanRequest, planModel } from "../plan-model.ts";

function decodeMs(request: Omit<PlanRequest, "inventory">, system: string): number {
  const inventory = parseSystem(system);
  if (inventory === undefined) throw new Error(`no system ${system}`);
  const [plan] = planModel({ batch: 1, contextTokens: 512, outputTokens: 8, ...request, inventory }).plans;
  if (plan?.estimates.kind !== "inference") throw new Error("no plan");
  return plan.estimates.decodeStepMs;
}

describe("experts of one token", () => {
  const mixture = (expertsPerToken: number) =>
    modelFromConfig({
      model_type: "mixtral",
      hidden_size: 4096,
      num_hidden_layers: 16,
      num_attention_heads: 32,
      num_key_value_heads: 8,
      intermediate_size: 8192,
      vocab_size: 32_000,
      num_local_experts: 8,
      num_experts_per_tok: expertsPerToken,
      max_position_embeddings: 32_768,
    });

  it.each([
    ["llama.cpp", "dgx-spark", "q8_0"],
    ["llama.cpp", "m2 ultra 192gb", "q4_k_m"],
    ["vllm", "h100", "bf16"],
    ["tensorrt-llm", "h100", "fp8"],
    ["pytorch", "a100-80", "bf16"],
  ] as const)("are read once each, however concentrated routing is: %s on %s in %s", (engine, system, quant) => {
    const [two, four, eight] = [2, 4, 8].map((k) => decodeMs({ model: mixture(k), engine, quant }, system));
    // One token chooses k experts, so four more cost twice what two more do.
    const ratio = ((eight ?? 0) - (four ?? 0)) / ((four ?? 0) - (two ?? 0));
    expect(ratio).toBeGreaterThan(1.9);
    expect(ratio).toBeLessThan(2.1);
  });

  it("a step takes no less than reading the active weights at the data sheet's bandwidth", () => {
    // Parameters that a token reads (model cards, without the embedding table), bits an element at least, GB/s.
    const cases = [
      ["mixtral-8x7b", "a6000", "q4_k_m", 12.75e9, 4.5, 768],
      ["mixtral-8x7b", "2x p40", "q4_k_m", 12.75e9, 4.5, 347],
      ["mixtral-8x7b", "2x rtx 3090", "q4_k_m", 12.75e9, 4.5, 936],
      ["qwen3-30b-a3b", "dgx-spark", "q8_0", 3.0e9, 8.5, 273],
      ["gpt-oss-120b", "dgx-spark", "mxfp4", 4.5e9, 4.25, 273],
    ] as const;
    for (const [name, system, quant, active, bits, gigabytes] of cases) {
      const leastMs = (active * bits) / 8 / (gigabytes * 1e6);
      expect(decodeMs({ model: modelPreset(name), quant }, system), `${name} on ${system}`).toBeGreaterThan(leastMs);
    }
  });
});

it("GPT-OSS in llama.cpp has the size of ggml-org's files, elsewhere that of the checkpoint", () => {
  const weightsOf = (name: string, engine: "llama.cpp" | "vllm") => {
    const inventory = parseSystem("h100");
    if (inventory === undefined) throw new Error("no system");
    const [plan] = planModel({ model: modelPreset(name), inventory, engine, contextTokens: 512 }).plans;
    return (plan?.ranks[0]?.memory.items.weights ?? 0) / 2 ** 30;
  };
  // llama-bench prints these of gpt-oss-20b-mxfp4.gguf and gpt-oss-120b-mxfp4.gguf.
  expect(Math.abs(weightsOf("gpt-oss-20b", "llama.cpp") / 11.27 - 1)).toBeLessThan(0.01);
  expect(Math.abs(weightsOf("gpt-oss-120b", "llama.cpp") / 59.02 - 1)).toBeLessThan(0.01);
  expect(weightsOf("gpt-oss-120b", "vllm")).toBeGreaterThan(60);
});
