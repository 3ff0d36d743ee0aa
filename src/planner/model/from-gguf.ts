/**
 * From a GGUF header to a ModelSpec: its metadata is put into the words of a Hugging Face config, and the sizes of its
 * tensors are taken as they are (every tensor has a type of its own). Metadata keys: GGUF specification, ggml/docs/gguf.md.
 */
import { FormatError, show, UnsupportedError, wordTable } from "../../core/index.ts";
import type { GgufHeader, GgufValue } from "../../foreign/formats/index.ts";
import { FORMAT_NAMES } from "../memory/formats.ts";
import { modelFromConfig } from "./from-config.ts";
import { countParameters, type ModelSpec, type StoredBytes } from "./spec.ts";

/** GGUF's architecture to `model_type`. */
const MODEL_TYPES: Readonly<Record<string, string>> = wordTable({
  llama: "llama",
  llama4: "llama4_text",
  qwen2: "qwen2",
  qwen2moe: "qwen2_moe",
  qwen3: "qwen3",
  qwen3moe: "qwen3_moe",
  gemma: "gemma",
  gemma2: "gemma2",
  gemma3: "gemma3_text",
  phi3: "phi3",
  gpt2: "gpt2",
  gptneox: "gpt_neox",
  "gpt-oss": "gpt_oss",
  falcon: "falcon",
  deepseek2: "deepseek_v2",
  "command-r": "cohere",
  cohere2: "cohere2",
  olmo: "olmo",
  olmo2: "olmo2",
  olmoe: "olmoe",
  bert: "bert",
});

/** `general.file_type` to the format that most of the file is in (llama.h, llama_ftype). */
const FILE_TYPES: Readonly<Record<number, string>> = {
  0: "f32",
  1: "f16",
  2: "q4_0",
  3: "q4_1",
  7: "q8_0",
  8: "q5_0",
  9: "q5_1",
  10: "q2_k",
  11: "q3_k",
  12: "q3_k",
  13: "q3_k",
  14: "q4_k",
  15: "q4_k_m",
  16: "q5_k",
  17: "q5_k_m",
  18: "q6_k",
  19: "iq2_xxs",
  20: "iq2_xs",
  23: "iq3_xxs",
  24: "iq1_s",
  25: "iq4_nl",
  26: "iq3_s",
  28: "iq2_s",
  30: "iq4_xs",
  31: "iq1_m",
  32: "bf16",
  36: "tq1_0",
  37: "tq2_0",
  38: "mxfp4",
};

/** Config field, and the metadata key after the architecture's prefix. */
const FIELDS: readonly (readonly [string, string])[] = [
  ["hidden_size", "embedding_length"],
  ["num_hidden_layers", "block_count"],
  ["intermediate_size", "feed_forward_length"],
  ["num_attention_heads", "attention.head_count"],
  ["num_key_value_heads", "attention.head_count_kv"],
  ["head_dim", "attention.key_length"],
  ["max_position_embeddings", "context_length"],
  ["sliding_window", "attention.sliding_window"],
  ["num_experts_per_tok", "expert_used_count"],
  ["moe_intermediate_size", "expert_feed_forward_length"],
  ["shared_expert_intermediate_size", "expert_shared_feed_forward_length"],
  ["n_shared_experts", "expert_shared_count"],
  ["first_k_dense_replace", "leading_dense_block_count"],
  ["q_lora_rank", "attention.q_lora_rank"],
  ["kv_lora_rank", "attention.kv_lora_rank"],
  ["v_head_dim", "attention.value_length"],
  ["qk_rope_head_dim", "rope.dimension_count"],
];

/**
 * Builds a ModelSpec from a GGUF header.
 * @throws FormatError naming the metadata key or tensor; UnsupportedError for an unknown architecture
 */
export function modelFromGguf(header: GgufHeader): ModelSpec {
  const { where, metadata, tensors } = header;
  const architecture = metadata.get("general.architecture");
  if (typeof architecture !== "string") {
    throw new FormatError(where, `is ${show(architecture)}; expected a string`, { field: "general.architecture" });
  }
  const type = Object.hasOwn(MODEL_TYPES, architecture) ? MODEL_TYPES[architecture] : undefined;
  if (type === undefined) {
    throw new UnsupportedError(
      `GGUF architecture ${show(architecture)} (${where})`,
      `known ones are ${Object.keys(MODEL_TYPES).join(", ")}`,
    );
  }
  const config: Record<string, unknown> = { model_type: type };
  const keyOf = (suffix: string) => `${architecture}.${suffix}`;
  for (const [field, suffix] of FIELDS) {
    const value = metadata.get(keyOf(suffix));
    if (value !== undefined) config[field] = numberOf(value, where, keyOf(suffix));
  }
  const experts = metadata.get(keyOf("expert_count"));
  const numExperts = experts === undefined ? 0 : numberOf(experts, where, keyOf("expert_count"));
  if (numExperts > 0) {
    for (const field of ["num_experts", "num_local_experts", "n_routed_experts"]) config[field] = numExperts;
    if (type === "llama") config["model_type"] = "mixtral";
    config["moe_intermediate_size"] ??= config["intermediate_size"];
  }
  config["vocab_size"] = vocabulary(header, architecture);
  const names = new Set(tensors.map((tensor) => tensor.name));
  if (tensors.length > 0) config["tie_word_embeddings"] = !names.has("output.weight");
  fixUps(config, type, metadata);
  const spec = rename(where, () => modelFromConfig(config, where, modelName(metadata, where)), architecture);
  const numTensorElements = tensors.reduce((sum, tensor) => sum + tensor.numElements, 0);
  const { total } = countParameters(spec);
  const assumptions = [...spec.assumptions.filter((text) => !text.includes("names no dtype"))];
  if (header.isHeaderOnly) assumptions.push("the file is a header without data");
  if (tensors.length > 0 && numTensorElements !== total) {
    assumptions.push(`its tensors hold ${numTensorElements} elements, the architecture's formula gives ${total}`);
  }
  return {
    ...spec,
    weightFormat: formatOf(header),
    storedBytes: tensors.length > 0 ? storedBytes(header, spec.numLayers) : undefined,
    assumptions,
  };
}

function numberOf(value: GgufValue, where: string, field: string): number {
  // Per-layer lists: the largest is what memory must hold.
  const one = Array.isArray(value)
    ? value.reduce<number>((most, item) => Math.max(most, Number(item)), Number.NEGATIVE_INFINITY)
    : value;
  const number = typeof one === "bigint" ? Number(one) : one;
  if (typeof number !== "number" || !Number.isFinite(number)) {
    throw new FormatError(where, `is ${show(value)}; expected a number`, { field });
  }
  return number;
}

function vocabulary(header: GgufHeader, architecture: string): number {
  const stated = header.metadata.get(`${architecture}.vocab_size`);
  if (stated !== undefined) return numberOf(stated, header.where, `${architecture}.vocab_size`);
  const table = header.tensors.find((tensor) => tensor.name === "token_embd.weight");
  const rows = table?.shape[1];
  if (rows !== undefined) return rows;
  const tokens = header.metadata.get("tokenizer.ggml.tokens");
  if (Array.isArray(tokens)) return tokens.length;
  throw new FormatError(header.where, "is missing (no tokens and no token_embd.weight either)", {
    field: `${architecture}.vocab_size`,
  });
}

function fixUps(config: Record<string, unknown>, type: string, metadata: GgufHeader["metadata"]): void {
  if (type === "gpt2") {
    config["n_embd"] = config["hidden_size"];
    config["n_layer"] = config["num_hidden_layers"];
    config["n_head"] = config["num_attention_heads"];
    config["n_positions"] = config["max_position_embeddings"];
  }
  if (type === "falcon") {
    config["new_decoder_architecture"] = Number(config["num_key_value_heads"] ?? 1) > 1;
    config["num_kv_heads"] = config["num_key_value_heads"];
    config["ffn_hidden_size"] = config["intermediate_size"];
  }
  if (type === "deepseek_v2") {
    const keyLength =
      metadata.get("deepseek2.attention.key_length_mla") ?? metadata.get("deepseek2.attention.key_length");
    const rope = Number(config["qk_rope_head_dim"] ?? 64);
    config["qk_nope_head_dim"] = Number(keyLength ?? 192) - rope;
    config["v_head_dim"] = Number(metadata.get("deepseek2.attention.value_length_mla") ?? config["v_head_dim"] ?? 128);
    // llama.cpp's converter stores one KV head for the compressed cache.
    config["num_key_value_heads"] = config["num_attention_heads"];
    delete config["head_dim"];
    if (metadata.has("deepseek2.expert_gating_func"))
      config["topk_method"] = Number(metadata.get("deepseek2.expert_gating_func")) === 2 ? "noaux_tc" : "greedy";
  }
  if (type === "llama4_text") {
    // llama.cpp's converter names the dense width feed_forward_length and the experts' expert_feed_forward_length.
    config["intermediate_size_mlp"] = config["intermediate_size"];
    config["intermediate_size"] = config["moe_intermediate_size"] ?? config["intermediate_size"];
    const step = metadata.get("llama4.interleave_moe_layer_step");
    if (step !== undefined) config["interleave_moe_layer_step"] = Number(step);
    // Its loader takes three of four layers to attend within chunks of 8192.
    config["attention_chunk_size"] = config["sliding_window"] ?? 8192;
  }
}

/** Errors of the config reader speak of config fields; a GGUF's reader wants the metadata key. */
function rename(where: string, make: () => ModelSpec, architecture: string): ModelSpec {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    const known = FIELDS.find(([field]) => field === error.field);
    if (known === undefined) throw error;
    const problem = error.message.slice(error.message.indexOf(`${error.field}: `) + `${error.field}: `.length);
    throw new FormatError(where, problem, { field: `${architecture}.${known[1]}`, cause: error });
  }
}

function modelName(metadata: GgufHeader["metadata"], where: string): string {
  const name = metadata.get("general.name");
  return typeof name === "string" && name !== "" ? name : (where.split("/").at(-1) ?? where);
}

/** What the file says of itself, else the type that most of its bytes are in. */
function formatOf(header: GgufHeader): string {
  const fileType = header.metadata.get("general.file_type");
  const named = typeof fileType === "number" ? FILE_TYPES[fileType] : undefined;
  if (named !== undefined) return named;
  const bytes = new Map<string, number>();
  for (const tensor of header.tensors) bytes.set(tensor.type, (bytes.get(tensor.type) ?? 0) + tensor.sizeBytes);
  const [most] = [...bytes].sort((a, b) => b[1] - a[1]);
  return most !== undefined && FORMAT_NAMES.includes(most[0]) ? most[0] : "f16";
}

function storedBytes(header: GgufHeader, numLayers: number): StoredBytes {
  const layers = Array.from({ length: numLayers }, () => 0);
  let embeddings = 0;
  let head = 0;
  for (const { name, sizeBytes } of header.tensors) {
    const layer = /^blk\.(\d+)\./.exec(name);
    if (layer !== null) {
      const index = Number(layer[1]);
      if (index >= numLayers) {
        throw new FormatError(header.where, `is of layer ${index}; the model has ${numLayers}`, {
          field: `tensor ${name}`,
        });
      }
      layers[index] = (layers[index] ?? 0) + sizeBytes;
    } else if (name.startsWith("output")) head += sizeBytes;
    else embeddings += sizeBytes;
  }
  return { embeddings, layers, head };
}
