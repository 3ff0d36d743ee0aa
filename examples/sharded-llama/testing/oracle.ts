/**
 * The oracle of the tests: a Llama forward pass in float64, as slow and plain as it can be written, from the
 * definitions (Touvron et al. 2023; Su et al. 2021 for RoPE; transformers' modeling_llama.py for names and order). It
 * shares no code with the example and keeps no cache: every token is computed from the whole text.
 */

/** config.json, as transformers writes it. */
export interface OracleConfig {
  readonly architectures: readonly string[];
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly head_dim: number;
  readonly vocab_size: number;
  readonly max_position_embeddings: number;
  readonly rms_norm_eps: number;
  readonly tie_word_embeddings: boolean;
  readonly attention_bias?: boolean;
  readonly mlp_bias?: boolean;
  readonly sliding_window?: number;
  readonly rope_theta?: number;
  readonly rope_scaling?: Readonly<Record<string, number | string>>;
  readonly eos_token_id?: number | readonly number[];
}

export interface OracleTensor {
  readonly shape: readonly number[];
  readonly values: ArrayLike<number>;
}

type Vector = number[];

function frequencies(config: OracleConfig): Vector {
  const scaling = config.rope_scaling;
  const value = (key: string) => Number(scaling?.[key]);
  return Array.from({ length: config.head_dim / 2 }, (_, i) => {
    const inverse = 1 / (config.rope_theta ?? 10000) ** ((2 * i) / config.head_dim);
    if (scaling === undefined) return inverse;
    if (scaling["rope_type"] === "linear") return inverse / value("factor");
    // llama3
    const wavelength = (2 * Math.PI) / inverse;
    const original = value("original_max_position_embeddings");
    const [low, high] = [original / value("low_freq_factor"), original / value("high_freq_factor")];
    if (wavelength > low) return inverse / value("factor");
    if (wavelength < high) return inverse;
    const smooth =
      (original / wavelength - value("low_freq_factor")) / (value("high_freq_factor") - value("low_freq_factor"));
    return (1 - smooth) * (inverse / value("factor")) + smooth * inverse;
  });
}

/** Logits after the last token. */
export function oracleLogits(
  config: OracleConfig,
  tensors: Readonly<Record<string, OracleTensor>>,
  tokens: readonly number[],
): Vector {
  const tensor = (name: string): OracleTensor => {
    const found = tensors[name];
    if (found === undefined) throw new Error(`the model has no ${name}`);
    return found;
  };
  const linear = (name: string, x: Vector, bias: boolean): Vector => {
    const { shape, values } = tensor(`${name}.weight`);
    const [rows, columns] = shape as [number, number];
    if (columns !== x.length) throw new Error(`${name}: ${columns} columns for ${x.length}`);
    const b = bias ? tensor(`${name}.bias`).values : undefined;
    return Array.from({ length: rows }, (_, r) => {
      let sum = b === undefined ? 0 : b[r]!;
      for (let c = 0; c < columns; c++) sum += values[r * columns + c]! * x[c]!;
      return sum;
    });
  };
  const norm = (name: string, x: Vector): Vector => {
    const { values } = tensor(name);
    const mean = x.reduce((sum, v) => sum + v * v, 0) / x.length;
    return x.map((v, i) => (values[i]! * v) / Math.sqrt(mean + config.rms_norm_eps));
  };
  const { head_dim: d, num_attention_heads: heads, num_key_value_heads: kvHeads } = config;
  const inverse = frequencies(config);
  const rotate = (x: Vector, position: number): Vector =>
    x.map((v, i) => {
      const at = i % d;
      const half = d / 2;
      const angle = position * inverse[at % half]!;
      return at < half
        ? v * Math.cos(angle) - x[i + half]! * Math.sin(angle)
        : v * Math.cos(angle) + x[i - half]! * Math.sin(angle);
    });
  const qwen = config.architectures[0] === "Qwen2ForCausalLM";
  const bias = config.attention_bias === true;
  const window = config.sliding_window ?? Number.POSITIVE_INFINITY;

  const embedding = tensor("model.embed_tokens.weight").values;
  const h = config.hidden_size;
  let x = tokens.map((token) => Array.from({ length: h }, (_, i) => embedding[token * h + i]!));
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const name = `model.layers.${layer}`;
    const normed = x.map((row) => norm(`${name}.input_layernorm.weight`, row));
    const q = normed.map((row, p) => rotate(linear(`${name}.self_attn.q_proj`, row, bias || qwen), p));
    const k = normed.map((row, p) => rotate(linear(`${name}.self_attn.k_proj`, row, bias || qwen), p));
    const v = normed.map((row) => linear(`${name}.self_attn.v_proj`, row, bias || qwen));
    x = x.map((row, p) => {
      const out: Vector = [];
      for (let head = 0; head < heads; head++) {
        const kv = Math.floor(head / (heads / kvHeads));
        const seen = tokens.map((_, j) => j).filter((j) => j <= p && p - j < window);
        const scores = seen.map((j) => {
          let dot = 0;
          for (let i = 0; i < d; i++) dot += q[p]![head * d + i]! * k[j]![kv * d + i]!;
          return dot / Math.sqrt(d);
        });
        const max = Math.max(...scores);
        const weights = scores.map((s) => Math.exp(s - max));
        const total = weights.reduce((a, b) => a + b, 0);
        for (let i = 0; i < d; i++) {
          out.push(seen.reduce((sum, j, n) => sum + (weights[n]! / total) * v[j]![kv * d + i]!, 0));
        }
      }
      const projected = linear(`${name}.self_attn.o_proj`, out, bias);
      return row.map((value, i) => value + projected[i]!);
    });
    x = x.map((row) => {
      const input = norm(`${name}.post_attention_layernorm.weight`, row);
      const gate = linear(`${name}.mlp.gate_proj`, input, config.mlp_bias === true);
      const up = linear(`${name}.mlp.up_proj`, input, config.mlp_bias === true);
      const active = gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!);
      const down = linear(`${name}.mlp.down_proj`, active, config.mlp_bias === true);
      return row.map((value, i) => value + down[i]!);
    });
  }
  const last = norm("model.norm.weight", x.at(-1) as Vector);
  const head = config.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  return linear(head, last, false);
}

/** Greedy continuation, end token included. */
export function oracleGenerate(
  config: OracleConfig,
  tensors: Readonly<Record<string, OracleTensor>>,
  prompt: readonly number[],
  maxNewTokens: number,
): { readonly tokens: number[]; readonly lastLogits: Vector; readonly smallestGap: number } {
  const eos = typeof config.eos_token_id === "number" ? [config.eos_token_id] : (config.eos_token_id ?? []);
  const tokens: number[] = [];
  let lastLogits: Vector = [];
  let smallestGap = Number.POSITIVE_INFINITY;
  while (tokens.length < maxNewTokens) {
    const logits = oracleLogits(config, tensors, [...prompt, ...tokens]);
    if (tokens.length === 0) lastLogits = logits;
    const [best, second] = [...logits].sort((a, b) => b - a);
    smallestGap = Math.min(smallestGap, best! - second!);
    tokens.push(logits.indexOf(best!));
    if (eos.includes(tokens.at(-1)!)) break;
  }
  return { tokens, lastLogits, smallestGap };
}
