import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { modelFromConfig } from "../model/from-config.ts";
import { MODEL_CONFIGS, modelPreset } from "../model/presets.ts";
import { countParameters } from "../model/spec.ts";
import { memoryShortfall } from "../nearest-changes.ts";
import type { PlanRequest } from "../plan-model.ts";
import { forwardBytes, logitsBytes, savedBytesPerToken } from "./activations.ts";
import { effectiveBits, FORMAT_NAMES, kvFormat, weightFormat } from "./formats.ts";
import { cachedTokens, kvBytesByLayer, kvBytesPerToken } from "./kv-cache.ts";
import { adapterElements, estimateTrainingMemory, TRAINING_METHODS, trainingMethod } from "./training.ts";
import { modelBytes, shardShape, weightBytes } from "./weights.ts";

const GIB = 2 ** 30;
const bytes = (model: string, format: string) => modelBytes(modelPreset(model), weightFormat(format));
const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

describe("weights in a format", () => {
  it("plain dtypes are parameters times bytes", () => {
    for (const name of ["gpt2", "llama-3.1-8b", "deepseek-v3", "gemma-3-4b"]) {
      const { total } = countParameters(modelPreset(name));
      expect(bytes(name, "bf16")).toBe(2 * total);
      expect(bytes(name, "f32")).toBe(4 * total);
    }
  });

  it("GPT-OSS in MXFP4 has the checkpoint sizes of its model card: 60.8 and 12.8 GiB", () => {
    expect(bytes("gpt-oss-120b", "mxfp4") / GIB).toBeCloseTo(60.8, 1);
    expect(bytes("gpt-oss-20b", "mxfp4") / GIB).toBeCloseTo(12.8, 1);
  });

  it("Kimi K2 Thinking has the 594 GB of its checkpoint in 4 bits, not the FP8 of Kimi K2", () => {
    const { weightFormat: format } = modelPreset("moonshotai/Kimi-K2-Thinking");
    expect(Math.abs(bytes("moonshotai/Kimi-K2-Thinking", format) / 594e9 - 1)).toBeLessThan(0.02);
  });

  it("Llama-2-7B in 4-bit GPTQ with groups of 128 has the 3.90 GB of the published file", () => {
    expect(Math.abs(bytes("llama-2-7b", "gptq-4-g128") / 3.9e9 - 1)).toBeLessThan(0.01);
  });

  it("Llama-3.1-8B in GGUF has the sizes of the published files", () => {
    // bartowski/Meta-Llama-3.1-8B-Instruct-GGUF: bytes of the files; their headers hold 8 MB of vocabulary.
    const published: readonly (readonly [string, number])[] = [
      ["q8_0", 8.54e9],
      ["q6_k", 6.6e9],
      ["q5_k_m", 5.73e9],
      ["q4_k_m", 4.92e9],
      ["bf16", 16.07e9],
    ];
    for (const [format, size] of published)
      expect(Math.abs(bytes("llama-3.1-8b", format) / size - 1)).toBeLessThan(0.012);
  });

  it("DeepSeek-V3 in FP8 blocks of 128 x 128 costs one f32 scale a block", () => {
    const { byComponent, total } = countParameters(modelPreset("deepseek-v3"));
    const rest = byComponent.embedding + byComponent.head + byComponent.norm + byComponent.router;
    const expected = total - rest + 2 * rest + ((total - rest) / 128 / 128) * 4;
    // Some matrices are no multiple of 128: their last block is whole.
    expect(Math.abs(bytes("deepseek-v3", "fp8-block128") / expected - 1)).toBeLessThan(1e-3);
  });

  it("effective bits include scales and zero points", () => {
    expect(effectiveBits(weightFormat("mxfp4"))).toBe(4.25);
    expect(effectiveBits(weightFormat("nvfp4"))).toBe(4.5);
    expect(effectiveBits(weightFormat("gptq-4-g128"))).toBeCloseTo(4 + 20 / 128, 10);
    expect(effectiveBits(weightFormat("nf4"))).toBeCloseTo(4.127, 3);
    expect(effectiveBits(weightFormat("q4_k"))).toBe(4.5);
    expect(effectiveBits(weightFormat("q6_k"))).toBe(6.5625);
  });

  it("names of the ancestors and of engines are understood, others refused", () => {
    for (const [alias, name] of [
      ["fp32", "f32"],
      ["none", "f32"],
      ["fp16", "f16"],
      ["i8", "int8"],
      ["q8", "int8"],
      ["q4", "int4"],
      ["FP8", "fp8"],
      ["awq", "awq-4-g128"],
    ] as const) {
      expect(weightFormat(alias).name).toBe(name);
    }
    for (const name of FORMAT_NAMES) expect(weightFormat(name).name).toBe(name);
    for (const wrong of ["int5", "gptq-5-g128", "gptq-4-g0", "", "__proto__", "constructor"])
      expect(() => weightFormat(wrong)).toThrow(/one of/);
    expect(() => kvFormat("toString")).toThrow(/one of/);
  });

  it("a scale a tensor, a channel or a group is counted once for each shard that needs it", () => {
    const model = modelPreset("llama-3.1-8b");
    for (const name of ["fp8", "int8", "int4", "gptq-4-g128", "mxfp8", "q4_k_m"]) {
      const format = weightFormat(name);
      const whole = modelBytes(model, format);
      const { embeddings, layers, head } = weightBytes(model, format, 8, 1);
      const eight = 8 * (embeddings + head + sum(layers));
      // Norms lie on every rank; nothing else is repeated (8 KV heads over 8 ranks).
      expect(eight).toBeGreaterThanOrEqual(whole);
      expect(eight / whole).toBeLessThan(1.006);
    }
  });
});

describe("shards of weights", () => {
  it("KV heads are repeated when tp exceeds them, and one vocabulary entry is padded", () => {
    const model = modelPreset("qwen2.5-0.5b");
    const layer = model.layerKinds[0];
    const k = layer?.weights.find((weight) => weight.name === "attention.k.weight");
    if (k === undefined) throw new Error("no K");
    expect(shardShape(k, 2, 1, 2)).toEqual({ copies: 1, out: 64, input: 896 });
    expect(shardShape(k, 14, 1, 2)).toEqual({ copies: 1, out: 64, input: 896 });
    const table = modelPreset("gpt2").embeddings[0];
    if (table === undefined) throw new Error("no table");
    expect(shardShape(table, 2, 1, 12).out).toBe(25_129);
  });

  it("experts are divided over ep, then inside each over tp", () => {
    const layer = modelPreset("mixtral-8x7b").layerKinds[0];
    const down = layer?.weights.find((weight) => weight.name === "experts.down.weight");
    if (down === undefined) throw new Error("no experts");
    expect(shardShape(down, 2, 4, 8)).toEqual({ copies: 2, out: 4096, input: 7168 });
  });

  it("a tied head is held by the last stage too", () => {
    const { tiedHead } = weightBytes(modelPreset("llama-3.2-1b"), weightFormat("bf16"), 1, 1);
    expect(tiedHead).toBe(2 * 128_256 * 2048);
    expect(weightBytes(modelPreset("llama-3.1-8b"), weightFormat("bf16"), 1, 1).tiedHead).toBe(0);
  });
});

describe("the KV cache", () => {
  const bf16 = kvFormat("bf16");
  const perToken = (name: string, tp = 1) => {
    const model = modelPreset(name);
    return sum(model.layers.map((kind) => kvBytesPerToken(model.layerKinds[kind]!, tp, bf16)));
  };

  it("has the published bytes a token", () => {
    // Llama: 2 x layers x KV heads x 128 x 2 bytes. DeepSeek-V3: 61 x (512 + 64) x 2, as its paper's 70 KB.
    expect(perToken("llama-2-7b")).toBe(524_288);
    expect(perToken("llama-3.1-8b")).toBe(131_072);
    expect(perToken("llama-3.1-70b")).toBe(327_680);
    expect(perToken("llama-3.1-405b")).toBe(516_096);
    expect(perToken("deepseek-v3")).toBe(70_272);
  });

  it("is divided over tp down to one head, and latent caches not at all", () => {
    expect(perToken("llama-3.1-8b", 8)).toBe(131_072 / 8);
    expect(perToken("llama-3.1-8b", 16)).toBe(131_072 / 8);
    expect(perToken("deepseek-v3", 8)).toBe(70_272);
  });

  it("is bounded by the window in layers that have one, in whole pages", () => {
    const model = modelPreset("gemma-2-9b");
    const [local, global] = [model.layerKinds[model.layers[0] ?? 0]!, model.layerKinds[model.layers[1] ?? 0]!];
    expect(cachedTokens(local, 8192, 1)).toBe(4096);
    expect(cachedTokens(global, 8192, 1)).toBe(8192);
    expect(cachedTokens(global, 8193, 1)).toBe(8208);
    expect(cachedTokens(global, 8192, 4)).toBe(2048);
    const kv = kvBytesByLayer(model, { contextTokens: 8192, sequences: 2, tp: 1, cp: 1, format: bf16 });
    expect(kv[1]).toBe(2 * (kv[0] ?? 0));
    expect(
      sum(kvBytesByLayer(modelPreset("bert-base"), { contextTokens: 512, sequences: 1, tp: 1, cp: 1, format: bf16 })),
    ).toBe(0);
  });

  it("in FP8 is half, in int8 half and the scales", () => {
    const layer = modelPreset("llama-3.1-8b").layerKinds[0]!;
    expect(kvBytesPerToken(layer, 1, kvFormat("fp8"))).toBe(kvBytesPerToken(layer, 1, bf16) / 2);
    expect(kvBytesPerToken(layer, 1, kvFormat("int8"))).toBe(2 * 8 * (128 + 2));
  });
});

describe("activations", () => {
  it("grow with tokens and shrink with tp; logits are those of the rows that are sampled", () => {
    const model = modelPreset("llama-3.1-8b");
    // 3 x hidden for residual, normed input and output, and gate, up and product of the MLP: 1000 tokens in bf16.
    expect(forwardBytes(model, 1000, 1, 2)).toBe(1000 * (3 * 4096 + 3 * 14_336) * 2);
    expect(forwardBytes(model, 1000, 8, 2)).toBe(1000 * (3 * 4096 + (3 * 14_336) / 8) * 2);
    expect(logitsBytes(model, 4, 8, 2)).toBe(4 * ((128_256 / 8) * 2 + 128_256 * 4));
    expect(logitsBytes(modelPreset("bert-base"), 4, 1, 2)).toBe(0);
  });

  it("kept for the backward pass fall with checkpointing: all of GPT-2's are about 34 bytes a hidden element", () => {
    const model = modelPreset("gpt2");
    const layer = model.layerKinds[0]!;
    const kept = (["none", "selective", "full"] as const).map((how) => savedBytesPerToken(model, layer, 1, 2, how));
    // arXiv 2205.05198, equation 1 without the scores that flash attention does not keep: 34 bytes, dropout masks included.
    expect((kept[0] ?? 0) / 768).toBeGreaterThan(28);
    expect((kept[0] ?? 0) / 768).toBeLessThan(36);
    expect(kept[1]).toBeLessThan(kept[0] ?? 0);
    expect(kept[2]).toBe(768 * 2);
  });
});

describe("training methods", () => {
  const model = modelPreset("llama-2-7b");
  const total = (method: string) => estimateTrainingMemory(model, trainingMethod(method)).totalBytes;
  const parameters = 6_738_415_616;

  it("full is 16 bytes a parameter, DPO two more for the reference, RLHF twice that and two frozen models", () => {
    expect(total("full")).toBe(16 * parameters);
    expect(total("dpo")).toBe(18 * parameters);
    expect(total("rlhf")).toBe(2 * 18 * parameters);
    expect(total("distillation")).toBe(18 * parameters);
  });

  it("what is missing counts the optimizer that was asked for", () => {
    const inventory = parseSystem("l4");
    if (inventory === undefined) throw new Error("no preset");
    const needs = (more: Partial<PlanRequest>) =>
      memoryShortfall({ model, inventory, train: "full", batch: 1, contextTokens: 512, ...more }).neededBytes /
      parameters;
    // Weights and gradients of two bytes; moments of f32 or of a byte with scales; a master copy of f32 beside the former.
    expect(needs({})).toBeCloseTo(16, 2);
    expect(needs({ optimizer: "adamw-8bit" })).toBeCloseTo(2 + 2 + 2.06, 2);
    expect(needs({ optimizer: "paged-adamw-8bit" })).toBeCloseTo(2, 2);
    expect(needs({ gradients: "f32" })).toBeCloseTo(18, 2);
  });

  it("LoRA of rank 16 on all matrices trains the 40 M parameters that PEFT counts", () => {
    const spec = trainingMethod("lora-16");
    // peft, r=16 on q, k, v, o, gate, up, down of Llama-2-7B: "trainable params: 39,976,960".
    expect(sum(model.layers.map((kind) => adapterElements(model, kind, spec, 1, 1)))).toBe(39_976_960);
    expect(total("lora-16")).toBe(2 * parameters + 16 * 39_976_960);
  });

  it("QLoRA keeps the base in NF4: a 7B fits a 6 GB card's weights", () => {
    expect(total("qlora") / 1e9).toBeGreaterThan(3.5);
    expect(total("qlora") / 1e9).toBeLessThan(5);
    expect(trainingMethod("qlora-8bit").baseFormat.name).toBe("int8");
  });

  it("every method has a name that is read, and others are refused", () => {
    for (const name of TRAINING_METHODS) expect(trainingMethod(name).method).toBe(name);
    for (const wrong of ["", "lora-0", "qlora-5bit", "sft"]) expect(() => trainingMethod(wrong)).toThrow(/expected/);
  });

  it("biases and experts count too", () => {
    const experts = modelFromConfig({ ...MODEL_CONFIGS["mixtral-8x7b"], num_hidden_layers: 1 });
    const spec = trainingMethod("lora-8");
    const routed = 8 * 8 * (2 * 14_336 + 4096 + (4096 + 14_336));
    expect(adapterElements(experts, 0, spec, 1, 1)).toBe(8 * (2 * (4096 + 4096) + 2 * (4096 + 1024)) + routed);
  });
});
