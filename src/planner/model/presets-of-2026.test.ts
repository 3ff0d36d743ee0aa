/** Counts of the models of 2026 beside the published ones, and their caches beside sums worked out by hand. */
import { describe, expect, it } from "vitest";
import { weightFormat } from "../memory/formats.ts";
import { kvBytesByLayer } from "../memory/kv-cache.ts";
import { modelBytes } from "../memory/weights.ts";
import { loadModel } from "./load.ts";
import { findModelPreset, MODEL_CONFIGS } from "./presets.ts";
import { CONFIGS_OF_2026 } from "./presets-of-2026.ts";
import { countParameters } from "./spec.ts";

const B = 1e9;

/** A published count that was remembered and not looked up: it is weaker evidence than the others. */
const RECALLED = "recalled, not looked up";

// Name, total, active (billions) and where they are published. Multi-token-prediction layers are not counted.
const PUBLISHED: readonly (readonly [name: string, total: number, active: number | null, source: string])[] = [
  ["Qwen/Qwen3.5-2B", 2.27 - 0.061, null, "safetensors total, less the layer of multi-token prediction"],
  ["Qwen/Qwen3.5-4B", 4.66 - 0.121, null, "safetensors total, less the layer of multi-token prediction"],
  ["Qwen/Qwen3.5-27B", 27, null, "its name"],
  ["Qwen/Qwen3.6-27B-FP8", 27, null, "its name"],
  ["Qwen/Qwen3.5-35B-A3B", 35, null, "its name"],
  ["Qwen/Qwen3.6-35B-A3B", 35, null, "its name"],
  ["Qwen/Qwen3.5-122B-A10B", 122, 10, "its name"],
  ["Qwen/Qwen3.5-397B-A17B", 397, 17, "its name"],
  ["google/gemma-4-E2B-it", 5.12, null, "safetensors total"],
  ["google/gemma-4-E4B-it", 8.0, null, "safetensors total"],
  ["google/gemma-4-26B-A4B-it", 25.2 + 0.57, 3.8, "model card, and its vision encoder"],
  ["google/gemma-4-31B-it", 30.7 + 0.57, 30.7, "model card, and its vision encoder"],
  ["deepseek-ai/DeepSeek-V4-Flash", 284, 13, "model card"],
  ["deepseek-ai/DeepSeek-V4-Pro", 1600, 49, "model card"],
  ["zai-org/GLM-5", 744, 40, "model card"],
  ["zai-org/GLM-5.1-FP8", 744, 40, "GLM-5's, whose shape it has"],
  ["zai-org/GLM-5.2", 744, 40, "GLM-5's, whose shape it has"],
  ["zai-org/GLM-4.7-Flash", 30, null, "model card"],
  ["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6, 3.6, "technical report, table 1"],
  ["nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.6, 12.7, "technical report"],
  ["nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B", 550, 55, "its name"],
  ["mistralai/Mistral-Large-3-675B-Instruct-2512", 673, 39, "announced as 675 and 41, less the vision encoder"],
  ["mistralai/Ministral-3-3B-Instruct-2512", 3.85, null, RECALLED],
  ["mistralai/Ministral-3-8B-Instruct-2512", 8.9, null, "Megatron-Bridge's page of the model"],
  ["mistralai/Ministral-3-14B-Reasoning-2512", 13.9, null, "Megatron-Bridge's page of the model"],
  ["llava-hf/llava-1.5-7b-hf", 7.06, null, RECALLED],
  ["llava-hf/llava-1.5-13b-hf", 13.35, null, RECALLED],
  ["liuhaotian/llava-v1.6-vicuna-7b", 7.06, null, RECALLED],
  ["liuhaotian/llava-v1.6-vicuna-13b", 13.35, null, RECALLED],
  ["llava-hf/llava-v1.6-mistral-7b-hf", 7.57, null, RECALLED],
  ["tiiuae/Falcon-H1-34B-Instruct", 33.6, null, RECALLED],
  ["ibm-granite/granite-4.0-350m", 0.352, null, RECALLED],
  ["ibm-granite/granite-4.0-1b", 1.63, null, RECALLED],
  ["ai21labs/AI21-Jamba-Mini-1.7", 52, 12, "model card"],
  ["ai21labs/AI21-Jamba-1.5-Large", 398, 94, "model card, arXiv 2408.12570"],
  ["LiquidAI/LFM2-350M", 0.354, null, "model card: 354,483,968"],
  ["LiquidAI/LFM2-700M", 0.742, null, "model card: 742,489,344"],
  ["LiquidAI/LFM2-1.2B", 1.17, null, "model card: 1,170,340,608"],
  ["LiquidAI/LFM2-8B-A1B", 8.34, 1.5, "model card: 8.3 B and 1.5 B"],
];

describe("published parameter counts", () => {
  it.each(PUBLISHED)("%s has %d billion (active %s; %s)", async (name, total, active, _source) => {
    const counts = countParameters(await loadModel(name));
    expect(Math.abs(counts.total / (total * B) - 1)).toBeLessThan(0.025);
    if (active !== null) expect(Math.abs(counts.active / (active * B) - 1)).toBeLessThan(0.06);
  });

  it("every preset of 2026 is among them, but for two whose cards give one digit", () => {
    const compared = PUBLISHED.map(([name]) => findModelPreset(name));
    const others = Object.keys(CONFIGS_OF_2026).filter((name) => !compared.includes(name));
    expect(others).toEqual(["qwen3.5-0.8b", "qwen3.5-9b"]);
  });
});

const BF16 = { bytes: 2, scaleBytesPerHead: 0 };
async function cacheBytes(name: string, contextTokens: number, tp = 1): Promise<number> {
  const model = await loadModel(name);
  return kvBytesByLayer(model, { contextTokens, sequences: 1, tp, cp: 1, format: BF16 }).reduce((a, b) => a + b, 0);
}

describe("caches of 16-bit elements, by hand", () => {
  it.each([
    // One layer in four attends: 16 of 64, with 4 heads of 256 for keys and for values.
    ["qwen3.5-27b", 16 * 2 * 4 * 256 * 2],
    ["qwen3.5-397b-a17b", 15 * 2 * 2 * 256 * 2],
    // Ten global layers; the fifty others keep 1,024 tokens.
    ["gemma-4-31b", 10 * 2 * 4 * 512 * 2],
    ["gemma-4-26b-a4b", 5 * 2 * 2 * 512 * 2],
    // The last 18 layers use the caches of earlier ones: of the first 24, layers 6, 12, 18 and 24 are global.
    ["gemma-4-e4b", 4 * 2 * 2 * 512 * 2],
    // 15 of 35 layers cache; 5, 10 and 15 are global.
    ["gemma-4-e2b", 3 * 2 * 1 * 512 * 2],
    // A vector of 512 + 64, and an indexer's key of 128 bytes with a scale of 4.
    ["glm-5", 78 * (576 * 2 + 132)],
    ["deepseek-v3.2", 61 * (576 * 2 + 132)],
    // 21 of its 78 layers have an indexer: the first three and every fourth from the seventh.
    ["glm-5.2", 78 * 576 * 2 + 21 * 132],
    // 21 layers keep one vector of 512 and one indexer's key for 4 tokens, 20 one vector for 128, two the window alone.
    ["deepseek-v4-flash", (21 * (1024 + 132)) / 4 + (20 * 1024) / 128],
    ["deepseek-v4-pro", (30 * (1024 + 132)) / 4 + (31 * 1024) / 128],
    ["glm-4.7-flash", 47 * 576 * 2],
    ["mistral-large-3", 61 * 576 * 2],
    ["nemotron-3-nano-30b-a3b", 6 * 2 * 2 * 128 * 2],
    ["nemotron-3-super-120b-a12b", 8 * 2 * 2 * 128 * 2],
    // 4 GiB at 256 Ki tokens, as the Jamba paper says (arXiv 2403.19887, table 1).
    ["jamba-mini", (4 * 2 ** 30) / 2 ** 18],
    ["jamba-large", 9 * 2 * 8 * 128 * 2],
    ["falcon-h1-34b", 72 * 2 * 4 * 128 * 2],
    ["lfm2-1.2b", 6 * 2 * 8 * 64 * 2],
  ] as const)("%s keeps %d bytes of each further token", async (name, bytes) => {
    expect((await cacheBytes(name, 65_536)) - (await cacheBytes(name, 32_768))).toBe(bytes * 32_768);
  });

  it.each([
    // Delta nets: a 128 by 128 matrix for each of 48 heads, and 4 columns of what is convolved (2 * 2048 keys, 6144 values).
    ["qwen3.5-27b", 48 * 4 * (48 * 128 * 128 + 4 * (2 * 2048 + 6144))],
    // Mamba-2: 64 heads of 64 by 128, and 4 columns of 4096 + 2 * 8 * 128.
    ["nemotron-3-nano-30b-a3b", 23 * 4 * (64 * 64 * 128 + 4 * (4096 + 2048))],
    // Mamba: 8192 columns with 16 states, and 4 convolved.
    ["jamba-mini", 28 * 4 * 8192 * (16 + 4)],
    // Short convolutions: the last 3 columns of 2048.
    ["lfm2-1.2b", 10 * 4 * 2048 * 3],
  ] as const)("%s keeps a state of %d bytes for a sequence", async (name, bytes) => {
    const perToken = ((await cacheBytes(name, 32_768)) - (await cacheBytes(name, 16_384))) / 16_384;
    expect((await cacheBytes(name, 16_384)) - 16_384 * perToken).toBe(bytes);
  });

  it("windows keep no more than they look back, and states are cut over tp", async () => {
    const local = 50 * 2 * 16 * 256 * 2 * 1024;
    expect(await cacheBytes("gemma-4-31b", 32_768)).toBe(local + 10 * 2 * 4 * 512 * 2 * 32_768);
    const whole = await cacheBytes("qwen3.5-27b", 16_384);
    expect(await cacheBytes("qwen3.5-27b", 16_384, 4)).toBe(whole / 4);
    // The compressed vector and the indexer's key lie on every rank.
    expect(await cacheBytes("glm-5", 16_384, 8)).toBe(await cacheBytes("glm-5", 16_384));
  });
});

describe("what their configs say", () => {
  it("a quantization that only the text model names is kept", async () => {
    const { modelFromConfig } = await import("./from-config.ts");
    const text_config = {
      ...MODEL_CONFIGS["kimi-k2"],
      quantization_config: {
        quant_method: "compressed-tensors",
        format: "pack-quantized",
        config_groups: { group_0: { weights: { num_bits: 4, group_size: 32 } } },
      },
    };
    const model = modelFromConfig({ model_type: "kimi_k25", text_config, vision_config: {} });
    expect(model.weightFormat).toBe("awq-4-g32");
    // MoonViT has 0.47 billion with its projector.
    const { vision } = countParameters(model).byComponent;
    expect(Math.abs(vision / 0.47e9 - 1)).toBeLessThan(0.02);
  });

  it("LLaVA's leaves out what Llama's class has as defaults", async () => {
    const { modelFromConfig } = await import("./from-config.ts");
    const text_config = {
      model_type: "llama",
      max_position_embeddings: 4096,
      vocab_size: 32_064,
      torch_dtype: "float16",
    };
    const model = modelFromConfig({ model_type: "llava", text_config });
    expect(countParameters(model)).toEqual(countParameters(await loadModel("llava-1.5-7b")));
    expect(model.weightFormat).toBe("f16");
    expect(() => modelFromConfig({ model_type: "llava" })).toThrow(/text_config: is missing/);
    expect(() => modelFromConfig({ model_type: "llava", text_config: { model_type: "rwkv" } })).toThrow(/"rwkv"/);
  });

  it("DeepSeek V4's names the experts' format apart, and a ratio for each layer", async () => {
    const { modelFromConfig } = await import("./from-config.ts");
    const config = MODEL_CONFIGS["deepseek-v4-flash"] as Readonly<Record<string, unknown>>;
    expect(modelFromConfig(config).weightFormat).toBe("mxfp4-fp8");
    expect(modelFromConfig({ ...config, expert_dtype: undefined }).weightFormat).toBe("fp8-block128");
    expect(() => modelFromConfig({ ...config, compress_ratios: [4, 128] })).toThrow(/has 2 entries/);
    // 277 billion in 4 bits and a scale of 8 for 32, 7.3 billion in 8 bits.
    const experts = 43 * 256 * 3 * 4096 * 2048;
    const gigabytes = (experts * 4.25) / 8e9 + (284.3 - experts / 1e9);
    expect(
      Math.abs(modelBytes(await loadModel("deepseek-v4-flash"), weightFormat("mxfp4-fp8")) / (gigabytes * 1e9) - 1),
    ).toBeLessThan(0.01);
  });

  it("Nemotron's list of blocks is its pattern, and Python's Infinity is read over", async () => {
    const { modelFromConfigText } = await import("./from-config.ts");
    const config = MODEL_CONFIGS["nemotron-3-nano-30b-a3b"] as Readonly<Record<string, unknown>>;
    const names: Readonly<Record<string, string>> = { M: "mamba", E: "moe", "*": "attention" };
    const { hybrid_override_pattern, num_hidden_layers, ...rest } = config;
    const listed = { ...rest, layers_block_type: [...String(hybrid_override_pattern)].map((letter) => names[letter]) };
    const text = JSON.stringify(listed).replace(
      /^\{/,
      '{"time_step_limit": [0.0, Infinity], "note": "Infinity \\" NaN", ',
    );
    const spec = modelFromConfigText(text);
    expect(spec.numLayers).toBe(num_hidden_layers);
    expect(countParameters(spec)).toEqual(countParameters(await loadModel("nemotron-3-nano-30b-a3b")));
    expect(() => modelFromConfigText(text.replace('"moe"', '"rwkv"'))).toThrow(/each of mamba, attention, mlp, moe/);
  });
});
