import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../core/index.ts";
import { ARCHITECTURES } from "./architectures.ts";
import { modelFromConfig } from "./from-config.ts";
import { findModelPreset, MODEL_CONFIGS, modelPreset } from "./presets.ts";
import { CONFIGS_OF_2026 } from "./presets-of-2026.ts";
import { countParameters } from "./spec.ts";

const publishedModels = JSON.parse(
  readFileSync(new URL("../../../test/planner/published-models.json", import.meta.url), "utf8"),
) as { models: unknown };

const HF = "safetensors metadata on the model's Hugging Face page";

/** [preset, published count, where it is published] */
const PUBLISHED: readonly (readonly [string, number, string])[] = [
  ["gpt2", 124_439_808, "Hugging Face transformers, GPT2LMHeadModel.num_parameters()"],
  ["gpt2-xl", 1_557_611_200, "Hugging Face transformers, GPT2LMHeadModel.num_parameters()"],
  ["llama-2-7b", 6_738_415_616, HF],
  ["llama-2-13b", 13_015_864_320, HF],
  ["llama-2-70b", 68_976_648_192, HF],
  ["llama-3.1-8b", 8_030_261_248, HF],
  ["llama-3.1-70b", 70_553_706_496, HF],
  ["llama-3.1-405b", 405_853_388_800, HF],
  ["llama-3.2-1b", 1_235_814_400, HF],
  ["llama-3.2-3b", 3_212_749_824, HF],
  ["llama-4-scout", 108_641_793_536, `${HF}, vision tower included`],
  ["mistral-7b", 7_241_732_096, HF],
  ["mistral-nemo", 12_247_782_400, HF],
  ["mistral-large-2", 122_610_069_504, HF],
  ["mixtral-8x7b", 46_702_792_704, HF],
  ["mixtral-8x22b", 140_620_634_112, HF],
  ["qwen2.5-0.5b", 494_032_768, HF],
  ["qwen2.5-1.5b", 1_543_714_304, HF],
  ["qwen2.5-7b", 7_615_616_512, HF],
  ["qwen2.5-14b", 14_770_033_664, HF],
  ["qwen2.5-32b", 32_763_876_352, HF],
  ["qwen2.5-72b", 72_706_203_648, HF],
  ["qwen3-0.6b", 596_049_920, "Hugging Face transformers, num_parameters(); the file repeats the tied head"],
  ["qwen3-8b", 8_190_735_360, HF],
  ["qwen3-32b", 32_762_123_264, HF],
  ["qwen3-30b-a3b", 30_532_122_624, HF],
  ["qwen3-235b-a22b", 235_093_634_560, HF],
  ["gemma-2b", 2_506_172_416, HF],
  ["gemma-7b", 8_537_680_896, HF],
  ["gemma-2-2b", 2_614_341_888, HF],
  ["gemma-2-9b", 9_241_705_984, HF],
  ["gemma-2-27b", 27_227_128_320, HF],
  ["gemma-3-1b", 999_885_952, HF],
  ["gemma-3-4b", 4_300_079_472, `${HF}, vision tower included`],
  ["phi-3-mini", 3_821_079_552, HF],
  ["phi-3-medium", 13_960_238_080, HF],
  ["phi-4", 14_659_507_200, HF],
  ["phi-4-mini", 3_836_021_760, HF],
  ["gpt-neox-20b", 20_554_567_680, "table of EleutherAI/gpt-neox-20b's model card"],
  ["pythia-6.9b", 6_857_302_016, "table of EleutherAI/pythia's README"],
  ["gpt-oss-20b", 20_914_757_184, "OpenAI gpt-oss model card, table 1 (20.91 B); Ollama's model info"],
  ["gpt-oss-120b", 116_829_156_672, "OpenAI gpt-oss model card, table 1 (116.83 B)"],
  ["deepseek-v2-lite", 15_706_484_224, HF],
  ["deepseek-v2", 235_741_434_880, HF],
  ["deepseek-v3", 671_026_419_200, "DeepSeek-V3's README_WEIGHTS: 671 B main weights; exact without the MTP layer"],
  ["command-r", 34_980_831_232, HF],
  ["command-r-plus", 103_810_674_688, HF],
  ["command-r7b", 8_028_033_024, HF],
  ["olmo-1b", 1_176_764_416, HF],
  ["olmo-7b", 6_888_095_744, HF],
  ["olmo-2-7b", 7_298_617_344, HF],
  ["olmoe-1b-7b", 6_919_161_856, HF],
  ["bert-base", 109_482_240, "Hugging Face transformers, BertModel.num_parameters()"],
  ["bert-large", 335_141_888, "Hugging Face transformers, BertModel.num_parameters()"],
];

describe("parameter counts", () => {
  it.each(PUBLISHED)("%s has %i (%s)", (name, published) => {
    expect(countParameters(modelPreset(name)).total).toBe(published);
  });

  it("Falcon 180B has 179,522,565,120: its files hold the head beside the tied embedding", () => {
    const config = { ...MODEL_CONFIGS["falcon-180b"], tie_word_embeddings: false };
    expect(countParameters(modelFromConfig(config)).total).toBe(179_522_565_120);
  });

  it("Qwen1.5-MoE-A2.7B has 14,315,784,192", () => {
    const config = {
      model_type: "qwen2_moe",
      hidden_size: 2048,
      num_hidden_layers: 24,
      num_attention_heads: 16,
      num_key_value_heads: 16,
      intermediate_size: 5632,
      moe_intermediate_size: 1408,
      shared_expert_intermediate_size: 5632,
      num_experts: 60,
      num_experts_per_tok: 4,
      vocab_size: 151_936,
    };
    expect(countParameters(modelFromConfig(config)).total).toBe(14_315_784_192);
  });

  it("Command R 08-2024 has 32,296,476,672: its KV heads are grouped", () => {
    const config = { ...MODEL_CONFIGS["command-r"], num_key_value_heads: 8, intermediate_size: 24_576 };
    expect(countParameters(modelFromConfig(config)).total).toBe(32_296_476_672);
  });

  it.each([
    // Active parameters as the model cards give them; OpenAI's leave the embedding table out (table 1 of the card).
    ["mixtral-8x7b", 12.9e9],
    ["qwen3-30b-a3b", 3.3e9],
    ["qwen3-235b-a22b", 22e9],
    ["gpt-oss-120b", 5.13e9],
    ["gpt-oss-20b", 3.61e9],
    ["deepseek-v2", 21e9],
    ["deepseek-v3", 37e9],
    ["olmoe-1b-7b", 1.3e9],
    ["llama-4-scout", 17e9],
    ["llama-4-maverick", 17e9],
  ] as const)("%s has about %d active parameters", (name, published) => {
    const active = countParameters(modelPreset(name)).active;
    expect(Math.abs(active / published - 1)).toBeLessThan(0.025);
  });

  it("splits by component, and the components add up", () => {
    const { total, byComponent } = countParameters(modelPreset("mixtral-8x7b"));
    expect(byComponent.embedding).toBe(32_000 * 4096);
    expect(byComponent.head).toBe(32_000 * 4096);
    expect(byComponent.router).toBe(32 * 8 * 4096);
    expect(byComponent.experts).toBe(32 * 8 * 3 * 4096 * 14_336);
    expect(byComponent.attention).toBe(32 * (2 * 4096 * 4096 + 2 * 1024 * 4096));
    expect(byComponent.norm).toBe(65 * 4096);
    expect(Object.values(byComponent).reduce((a, b) => a + b, 0)).toBe(total);
  });

  it("covers every architecture with a published count", () => {
    // presets-of-2026.test.ts has the newest; test/planner/names.test.ts compares the models that people ask for by name.
    const named = (publishedModels.models as [string, number][]).map(([name]) => findModelPreset(name) ?? "");
    const names = [...PUBLISHED.map(([name]) => name), ...named, ...Object.keys(CONFIGS_OF_2026)];
    const covered = new Set(names.map((name) => String(MODEL_CONFIGS[name]?.["model_type"])));
    const inTests = ["falcon", "qwen2_moe"];
    // Aliases of covered ones: text models inside multimodal ones, and twins whose configs differ in names alone.
    const texts = [
      "llama4_text",
      "qwen3_vl_text",
      "qwen3_vl_moe_text",
      "gemma3n_text",
      "qwen3_5_text",
      "qwen3_5_moe_text",
      "gemma4_text",
      "ministral3",
      "kimi_k25",
    ];
    const twins = [
      "camembert",
      "glm",
      "mamba",
      "mamba2",
      "granitemoe",
      "hunyuan_v1_dense",
      "ernie4_5",
      "qwen2_vl",
      "llava_onevision",
    ];
    const aliases = [...texts, ...twins];
    expect(Object.keys(ARCHITECTURES).filter((type) => ![...covered, ...inTests, ...aliases].includes(type))).toEqual(
      [],
    );
  });

  it("refuses an architecture that it does not know, naming those that it does", () => {
    expect(() => modelFromConfig({ model_type: "rwkv" })).toThrow(UnsupportedError);
    expect(() => modelFromConfig({ model_type: "rwkv" })).toThrow(/known ones are llama, mistral/);
    expect(() => modelFromConfig({ model_type: "__proto__" })).toThrow(UnsupportedError);
  });

  it.each(["__proto__", "constructor", "torch.toString"])("refuses a dtype that only objects have: %s", (dtype) => {
    const llama = MODEL_CONFIGS["llama-2-7b"];
    expect(() => modelFromConfig({ ...llama, dtype })).toThrow(/known are float32, float16/);
  });
});
