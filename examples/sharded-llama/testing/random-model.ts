/** Writes Hugging Face folders with random weights, for the tests. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeArray, encodeArray } from "chorale";
import { type EncodeTensor, encodeSafetensors } from "chorale/formats";
import type { OracleConfig, OracleTensor } from "./oracle.ts";

export type WeightType = "F32" | "F16" | "BF16";

/** xorshift32, then the sum of four as a bell curve of variance 1. */
function bell(seed: number): () => number {
  let state = seed | 1;
  const uniform = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32 - 0.5;
  };
  return () => (uniform() + uniform() + uniform() + uniform()) * Math.sqrt(3);
}

/** Names and shapes of a model's tensors. */
function shapes(config: OracleConfig): Record<string, number[]> {
  const { hidden_size: h, intermediate_size: m, head_dim: d, vocab_size: vocab } = config;
  const [q, kv] = [config.num_attention_heads * d, config.num_key_value_heads * d];
  const qwen = config.architectures[0] === "Qwen2ForCausalLM";
  const all: Record<string, number[]> = { "model.embed_tokens.weight": [vocab, h], "model.norm.weight": [h] };
  if (!config.tie_word_embeddings) all["lm_head.weight"] = [vocab, h];
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const name = `model.layers.${i}`;
    all[`${name}.input_layernorm.weight`] = [h];
    all[`${name}.post_attention_layernorm.weight`] = [h];
    const linear = (part: string, rows: number, columns: number, bias: boolean) => {
      all[`${name}.${part}.weight`] = [rows, columns];
      if (bias) all[`${name}.${part}.bias`] = [rows];
    };
    linear("self_attn.q_proj", q, h, qwen || config.attention_bias === true);
    linear("self_attn.k_proj", kv, h, qwen || config.attention_bias === true);
    linear("self_attn.v_proj", kv, h, qwen || config.attention_bias === true);
    linear("self_attn.o_proj", h, q, config.attention_bias === true);
    linear("mlp.gate_proj", m, h, config.mlp_bias === true);
    linear("mlp.up_proj", m, h, config.mlp_bias === true);
    linear("mlp.down_proj", h, m, config.mlp_bias === true);
  }
  return all;
}

/** Writes config.json and the weights in `numFiles` files; gives the values that the files hold. */
export function writeRandomModel(
  folder: string,
  config: OracleConfig,
  { type, numFiles, seed }: { readonly type: WeightType; readonly numFiles: number; readonly seed: number },
): Record<string, OracleTensor> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const random = bell(seed);
  const tensors: Record<string, OracleTensor> = {};
  const encoded: Record<string, EncodeTensor> = {};
  for (const [name, shape] of Object.entries(shapes(config))) {
    const size = shape.reduce((a, b) => a * b, 1);
    const isNorm = name.includes("norm");
    // Variance 1 / fan-in keeps activations near 1; norms near 1.
    const scale = isNorm ? 0.2 : shape.length === 1 ? 0.3 : 1.2 / Math.sqrt(shape[1]!);
    const values = Float32Array.from({ length: size }, () => (isNorm ? 1 : 0) + scale * random());
    if (type === "F32") {
      encoded[name] = { dtype: type, shape, bytes: new Uint8Array(values.buffer) };
      tensors[name] = { shape, values };
    } else {
      const dtype = type === "F16" ? "f16" : "bf16";
      const bits = encodeArray(dtype, values);
      encoded[name] = { dtype: type, shape, bytes: new Uint8Array(bits.buffer as ArrayBuffer) };
      tensors[name] = { shape, values: decodeArray(dtype, bits) };
    }
  }
  const names = Object.keys(encoded);
  if (numFiles === 1) {
    writeFileSync(join(folder, "model.safetensors"), encodeSafetensors(encoded));
    return tensors;
  }
  const weightMap: Record<string, string> = {};
  for (let f = 0; f < numFiles; f++) {
    const file = `model-${String(f + 1).padStart(5, "0")}-of-${String(numFiles).padStart(5, "0")}.safetensors`;
    // Round robin: a layer's tensors lie in different files.
    const part = names.filter((_, i) => i % numFiles === f);
    writeFileSync(
      join(folder, file),
      encodeSafetensors(Object.fromEntries(part.map((name) => [name, encoded[name] as EncodeTensor])), {
        format: "pt",
      }),
    );
    for (const name of part) weightMap[name] = file;
  }
  writeFileSync(
    join(folder, "model.safetensors.index.json"),
    JSON.stringify({ metadata: { total_size: 0 }, weight_map: weightMap }),
  );
  return tensors;
}
