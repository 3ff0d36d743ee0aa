import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { FormatError } from "../../core/index.ts";
import { parseConfigText, parseGenerationEos, parseLlamaConfig, readLlamaConfig } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-config-"));
afterAll(() => rmSync(folder, { recursive: true }));

const base = {
  architectures: ["LlamaForCausalLM"],
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  vocab_size: 100,
};
const parse = (extra: object) => parseLlamaConfig({ ...base, ...extra }, "config.json");

describe("parseLlamaConfig", () => {
  it("fills the defaults of transformers", () => {
    expect(parse({})).toEqual({
      architecture: "LlamaForCausalLM",
      hiddenSize: 64,
      intermediateSize: 96,
      numLayers: 3,
      numHeads: 4,
      numKvHeads: 4,
      headDim: 16,
      vocabSize: 100,
      maxPositions: 2048,
      rmsNormEps: 1e-6,
      ropeTheta: 10_000,
      ropeScaling: { kind: "default" },
      qkvBias: false,
      outputBias: false,
      mlpBias: false,
      tiedEmbeddings: false,
      slidingWindow: undefined,
      bosTokenId: undefined,
      eosTokenIds: [],
      dtype: undefined,
    });
  });

  it("reads rope in the words of transformers 4 and 5", () => {
    const llama3 = {
      rope_type: "llama3",
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    };
    const scaling = { kind: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositions: 8192 };
    expect(parse({ rope_theta: 5e5, rope_scaling: llama3 })).toMatchObject({ ropeTheta: 5e5, ropeScaling: scaling });
    expect(parse({ rope_parameters: { ...llama3, rope_theta: 5e5 } })).toMatchObject({
      ropeTheta: 5e5,
      ropeScaling: scaling,
    });
    expect(parse({ rope_scaling: { type: "linear", factor: 2 } }).ropeScaling).toEqual({ kind: "linear", factor: 2 });
  });

  it("knows the biases of each architecture", () => {
    const biases = (extra: object) => {
      const { qkvBias, outputBias, mlpBias } = parse(extra);
      return [qkvBias, outputBias, mlpBias];
    };
    expect(biases({ attention_bias: true })).toEqual([true, true, false]);
    expect(biases({ mlp_bias: true })).toEqual([false, false, true]);
    expect(biases({ architectures: ["Qwen2ForCausalLM"] })).toEqual([true, false, false]);
    expect(biases({ architectures: ["MistralForCausalLM"] })).toEqual([false, false, false]);
  });

  it("reads end tokens as a number, a list or nothing", () => {
    expect(parse({ eos_token_id: 2 }).eosTokenIds).toEqual([2]);
    expect(parse({ eos_token_id: [1, 2] }).eosTokenIds).toEqual([1, 2]);
    expect(parse({ eos_token_id: null }).eosTokenIds).toEqual([]);
    expect(parseGenerationEos({}, "g")).toBeUndefined();
    expect(parseGenerationEos({ eos_token_id: [7] }, "g")).toEqual([7]);
  });

  it.each([
    ["hidden_size", { hidden_size: 0 }],
    ["hidden_size", { hidden_size: "64" }],
    ["num_hidden_layers", { num_hidden_layers: 1.5 }],
    ["vocab_size", { vocab_size: undefined }],
    ["vocab_size", { vocab_size: 2 ** 40 }],
    ["architectures", { architectures: ["GPT2LMHeadModel"] }],
    ["model_type", { architectures: null, model_type: "toString" }],
    ["num_attention_heads", { num_attention_heads: 5 }],
    ["num_key_value_heads", { num_key_value_heads: 3 }],
    ["num_key_value_heads", { num_key_value_heads: 8 }],
    ["head_dim", { head_dim: 7 }],
    ["hidden_act", { hidden_act: "gelu" }],
    ["quantization_config", { quantization_config: { bits: 4 } }],
    ["rope_scaling.rope_type", { rope_scaling: { rope_type: "yarn", factor: 4 } }],
    ["rope_scaling.factor", { rope_scaling: { type: "linear" } }],
    ["rope_parameters.low_freq_factor", { rope_parameters: { rope_type: "llama3", factor: 8 } }],
    ["partial_rotary_factor", { partial_rotary_factor: 0.5 }],
    ["eos_token_id", { eos_token_id: -1 }],
    ["tie_word_embeddings", { tie_word_embeddings: 1 }],
  ])("refuses and names %s", (field, extra) => {
    expect(() => parse(extra)).toThrow(FormatError);
    expect(() => parse(extra)).toThrow(expect.objectContaining({ where: "config.json", field }));
  });
});

describe("readLlamaConfig", () => {
  it("lets generation_config.json replace the end tokens", () => {
    const dir = mkdtempSync(join(folder, "m-"));
    writeFileSync(join(dir, "config.json"), JSON.stringify({ ...base, eos_token_id: 2 }));
    expect(readLlamaConfig(dir).eosTokenIds).toEqual([2]);
    writeFileSync(join(dir, "generation_config.json"), JSON.stringify({ do_sample: true }));
    expect(readLlamaConfig(dir).eosTokenIds).toEqual([2]);
    writeFileSync(join(dir, "generation_config.json"), JSON.stringify({ eos_token_id: [3, 4] }));
    expect(readLlamaConfig(dir).eosTokenIds).toEqual([3, 4]);
    writeFileSync(join(dir, "generation_config.json"), '{"eos_token_id": 1, "eos_token_id": 2}');
    expect(() => readLlamaConfig(dir)).toThrow(/twice/);
  });

  it("names the whole document where a key stands twice", () => {
    expect(() => parseConfigText('{"a": 1, "a": 2}', "config.json")).toThrow(
      'config.json: (document): has the key "a" twice',
    );
  });

  it("says which file is missing", () => {
    expect(() => readLlamaConfig(join(folder, "none"))).toThrow(/none\/config.json: does not exist/);
  });
});
