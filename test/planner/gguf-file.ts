/** Writes small GGUF files for tests, from the specification (ggml/docs/gguf.md): version 3, little-endian. */

export type GgufEntry =
  | readonly ["u32", number]
  | readonly ["u64", bigint]
  | readonly ["f32", number]
  | readonly ["string", string]
  | readonly ["strings", readonly string[]];

export interface GgufTensorSpec {
  readonly name: string;
  /** First dim contiguous. */
  readonly shape: readonly number[];
  /** GGML type number and bytes of the whole tensor. */
  readonly type: number;
  readonly sizeBytes: number;
}

class Writer {
  readonly #parts: Uint8Array[] = [];
  length = 0;

  bytes(part: Uint8Array): void {
    this.#parts.push(part);
    this.length += part.length;
  }

  u32(value: number): void {
    const view = new DataView(new ArrayBuffer(4));
    view.setUint32(0, value, true);
    this.bytes(new Uint8Array(view.buffer));
  }

  u64(value: bigint | number): void {
    const view = new DataView(new ArrayBuffer(8));
    view.setBigUint64(0, BigInt(value), true);
    this.bytes(new Uint8Array(view.buffer));
  }

  f32(value: number): void {
    this.bytes(new Uint8Array(new Float32Array([value]).buffer));
  }

  string(text: string): void {
    const encoded = new TextEncoder().encode(text);
    this.u64(encoded.length);
    this.bytes(encoded);
  }

  join(): Uint8Array {
    const all = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.#parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}

/** The header and, unless told otherwise, zeros for the data. */
export function encodeGguf(
  metadata: Readonly<Record<string, GgufEntry>>,
  tensors: readonly GgufTensorSpec[],
  withData = true,
): Uint8Array {
  const out = new Writer();
  out.bytes(new TextEncoder().encode("GGUF"));
  out.u32(3);
  out.u64(tensors.length);
  out.u64(Object.keys(metadata).length);
  for (const [key, [type, value]] of Object.entries(metadata)) {
    out.string(key);
    if (type === "u32") {
      out.u32(4);
      out.u32(value);
    } else if (type === "u64") {
      out.u32(10);
      out.u64(value);
    } else if (type === "f32") {
      out.u32(6);
      out.f32(value);
    } else if (type === "string") {
      out.u32(8);
      out.string(value);
    } else {
      out.u32(9);
      out.u32(8);
      out.u64(value.length);
      for (const text of value) out.string(text);
    }
  }
  let offset = 0;
  for (const { name, shape, type, sizeBytes } of tensors) {
    out.string(name);
    out.u32(shape.length);
    for (const dim of shape) out.u64(dim);
    out.u32(type);
    out.u64(offset);
    offset += Math.ceil(sizeBytes / 32) * 32;
  }
  if (withData) out.bytes(new Uint8Array(Math.ceil(out.length / 32) * 32 - out.length + offset));
  return out.join();
}

const F32 = 0;
const Q4_K = 12;
const Q6_K = 14;
const size = {
  [F32]: (n: number) => 4 * n,
  [Q4_K]: (n: number) => (n / 256) * 144,
  [Q6_K]: (n: number) => (n / 256) * 210,
};

/** A small Llama in Q4_K, head and value projection in Q6_K. */
export function llamaGguf(options: { layers?: number; withData?: boolean } = {}): Uint8Array {
  const { layers = 2, withData = true } = options;
  const [hidden, heads, kv, mlp, vocab] = [256, 4, 2, 512, 512];
  const matrix = (name: string, inner: number, outer: number, type: typeof Q4_K | typeof Q6_K): GgufTensorSpec => ({
    name,
    shape: [inner, outer],
    type,
    sizeBytes: size[type](inner * outer),
  });
  const vector = (name: string, length: number): GgufTensorSpec => ({
    name,
    shape: [length],
    type: F32,
    sizeBytes: size[F32](length),
  });
  const tensors = [
    matrix("token_embd.weight", hidden, vocab, Q4_K),
    ...Array.from({ length: layers }, (_, layer) => [
      vector(`blk.${layer}.attn_norm.weight`, hidden),
      matrix(`blk.${layer}.attn_q.weight`, hidden, hidden, Q4_K),
      matrix(`blk.${layer}.attn_k.weight`, hidden, (hidden / heads) * kv, Q4_K),
      matrix(`blk.${layer}.attn_v.weight`, hidden, (hidden / heads) * kv, Q6_K),
      matrix(`blk.${layer}.attn_output.weight`, hidden, hidden, Q4_K),
      vector(`blk.${layer}.ffn_norm.weight`, hidden),
      matrix(`blk.${layer}.ffn_gate.weight`, hidden, mlp, Q4_K),
      matrix(`blk.${layer}.ffn_up.weight`, hidden, mlp, Q4_K),
      matrix(`blk.${layer}.ffn_down.weight`, mlp, hidden, Q4_K),
    ]).flat(),
    vector("output_norm.weight", hidden),
    matrix("output.weight", hidden, vocab, Q6_K),
  ];
  return encodeGguf(
    {
      "general.architecture": ["string", "llama"],
      "general.name": ["string", "a small llama"],
      "general.file_type": ["u32", 15],
      "llama.block_count": ["u32", layers],
      "llama.context_length": ["u32", 2048],
      "llama.embedding_length": ["u32", hidden],
      "llama.feed_forward_length": ["u32", mlp],
      "llama.attention.head_count": ["u32", heads],
      "llama.attention.head_count_kv": ["u32", kv],
      "llama.attention.layer_norm_rms_epsilon": ["f32", 1e-5],
      "llama.vocab_size": ["u32", vocab],
      "tokenizer.ggml.tokens": ["strings", ["a", "b", "c"]],
    },
    tensors,
    withData,
  );
}
