/**
 * The formats that weights and KV caches are kept in, with what they really cost: payload, scales, zero points, block
 * headers. Sources: llama.cpp ggml-common.h (block sizes of GGUF types), OCP Microscaling Formats 1.0 (MXFP4: one E8M0
 * scale for 32 elements), NVIDIA's NVFP4 description (one E4M3 scale for 16), the GPTQ and AWQ checkpoints' tensors
 * (qweight, f16 scales, packed qzeros, g_idx), QLoRA (arXiv 2305.14314: NF4 blocks of 64, double quantization).
 */
import { type DType, InvalidArgumentError, wordTable } from "../../core/index.ts";
import type { WeightSpec } from "../model/spec.ts";
import { GGUF_BITS, GGUF_MIXES, ggufTensorType, type TensorPlace } from "./gguf-mixes.ts";

export interface WeightFormat {
  readonly name: string;
  /** Bits of one element's payload. */
  readonly bits: number;
  /** Elements along the input dim that share a scale; 0: one scale a tensor; Infinity: one an output channel. */
  readonly group: number;
  /** Outputs that share a scale (2-D blocks); 1 otherwise. */
  readonly groupOut: number;
  readonly scaleBits: number;
  readonly zeroBits: number;
  /** Bits for each input channel (GPTQ's g_idx). */
  readonly perInputBits: number;
  /** Which weights are in this format. `matrices`: embeddings and head too (GGUF). */
  readonly scope: "all" | "linear" | "experts" | "matrices";
  /** Bits of one element of the matrices outside of the scope; vectors have 16. */
  readonly restBits: number;
  /** The dtype that the arithmetic runs in; weight-only formats are expanded on the fly. */
  readonly compute: DType;
  /** Activations are quantized too, so that units for 4-bit floats multiply where the device has them. */
  readonly fourBit: boolean;
  /** A GGUF file: each tensor has the type that llama.cpp's mix gives it. */
  readonly gguf: boolean;
}

/** Bits of one element outside of a format's scope, unless the format says otherwise. */
const REST_BITS = 16;

function format(name: string, bits: number, more: Partial<Omit<WeightFormat, "name" | "bits">> = {}): WeightFormat {
  return {
    name,
    bits,
    group: 0,
    groupOut: 1,
    scaleBits: 0,
    zeroBits: 0,
    perInputBits: 0,
    scope: "linear",
    restBits: REST_BITS,
    compute: "bf16",
    fourBit: false,
    gguf: false,
    ...more,
  };
}

const gguf = (name: string) =>
  format(name, GGUF_BITS[GGUF_MIXES[name] ?? name] ?? 16, {
    group: /^(q[458]_[01]|iq4_nl)$/.test(name) ? 32 : 256,
    scope: "matrices",
    compute: "f16",
    gguf: true,
  });

const FORMATS: readonly WeightFormat[] = [
  format("f32", 32, { scope: "all", compute: "f32" }),
  format("f16", 16, { scope: "all", compute: "f16" }),
  format("bf16", 16, { scope: "all" }),
  format("fp8", 8, { scaleBits: 32, compute: "f8e4m3" }),
  format("fp8-block128", 8, { group: 128, groupOut: 128, scaleBits: 32, compute: "f8e4m3" }),
  format("mxfp8", 8, { group: 32, scaleBits: 8, compute: "f8e4m3" }),
  format("mxfp6", 6, { group: 32, scaleBits: 8 }),
  format("mxfp4", 4, { group: 32, scaleBits: 8, scope: "experts", fourBit: true }),
  // DeepSeek V4: experts in MXFP4, the other matrices in FP8.
  format("mxfp4-fp8", 4, { group: 32, scaleBits: 8, scope: "experts", restBits: 8, fourBit: true }),
  format("mxfp4-linear", 4, { group: 32, scaleBits: 8, fourBit: true }),
  format("nvfp4", 4, { group: 16, scaleBits: 8, fourBit: true }),
  format("int8", 8, { group: Number.POSITIVE_INFINITY, scaleBits: 16, compute: "i8" }),
  format("int4", 4, { group: 128, scaleBits: 16, zeroBits: 4 }),
  format("nf4", 4, { group: 64, scaleBits: 8 + 32 / 256 }),
  format("int2", 2, { group: 64, scaleBits: 16, zeroBits: 2 }),
  ...[...new Set([...Object.keys(GGUF_BITS), ...Object.keys(GGUF_MIXES)])].map(gguf),
];

const BY_NAME = new Map(FORMATS.map((item) => [item.name, item]));

/** Names that are accepted beside the formats' own. */
const ALIASES: Readonly<Record<string, string>> = wordTable({
  none: "f32",
  fp32: "f32",
  float32: "f32",
  fp16: "f16",
  float16: "f16",
  bfloat16: "bf16",
  f8: "fp8",
  f8e4m3: "fp8",
  float8: "fp8",
  i8: "int8",
  q8: "int8",
  w8a8: "int8",
  i4: "int4",
  q4: "int4",
  gptq: "gptq-4-g128",
  awq: "awq-4-g128",
  "bnb-4bit": "nf4",
  "bnb-8bit": "int8",
  fp4: "nvfp4",
  fp8_e4m3: "fp8",
  w8a8_fp8: "fp8",
  w4a16: "gptq-4-g128",
  w8a16: "gptq-8-gchannel",
  hqq: "hqq-4-g64",
  mlx: "mlx-4-g64",
  "mlx-4bit": "mlx-4-g64",
  "mlx-8bit": "mlx-8-g64",
  "bnb-nf4": "nf4",
  "nf4-dq": "nf4",
});

/** The names, for messages; `gptq-BITS-gGROUP`, `awq-`, `hqq-` and `mlx-BITS-gGROUP` stand for families. */
export const FORMAT_NAMES: readonly string[] = [
  ...BY_NAME.keys(),
  "gptq-4-g128",
  "awq-4-g128",
  "hqq-4-g64",
  "mlx-4-g64",
];

/** Finds a weight format by name or alias; undefined when there is none of that name. */
export function findWeightFormat(text: string): WeightFormat | undefined {
  const lower = text.toLowerCase().replace(/^(?:gguf[-_:]|ud-)/, "");
  const name = Object.hasOwn(ALIASES, lower) ? (ALIASES[lower] ?? lower) : lower;
  const known = BY_NAME.get(name);
  if (known !== undefined) return known;
  const match = /^(?:(gptq|awq)-([2348])|(hqq|mlx)-([234568]))-g(\d{1,5}|channel)$/.exec(name);
  if (match !== null) {
    const [, early, earlyBits, late, lateBits, groupText] = match;
    const bits = Number(earlyBits ?? lateBits);
    const group = groupText === "channel" ? Number.POSITIVE_INFINITY : Number(groupText);
    if (group > 0) {
      const isMlx = late === "mlx";
      return format(name, bits, {
        group,
        scaleBits: 16,
        // MLX keeps a bias of 16 bits beside the scale, and quantizes embeddings and head too.
        zeroBits: isMlx ? 16 : bits,
        perInputBits: early === "gptq" ? 32 : 0,
        scope: isMlx ? "matrices" : "linear",
        compute: "f16",
      });
    }
  }
  return undefined;
}

/**
 * A format as the files of llama.cpp have it: GGUF files of MXFP4 models (ggml-org's of GPT-OSS) keep attention, embeddings
 * and head in Q8_0, where the safetensors of the same models have 16 bits.
 */
export function inGgufFile(item: WeightFormat): WeightFormat {
  return item.name === "mxfp4" ? { ...item, restBits: GGUF_BITS["q8_0"] ?? REST_BITS } : item;
}

/**
 * Finds a weight format by name or alias.
 * @throws InvalidArgumentError naming the formats
 * @example
 * weightFormat("mxfp4").bits // 4, and an 8-bit scale for 32 elements
 */
export function weightFormat(text: string, argument = "quant"): WeightFormat {
  const found = findWeightFormat(text);
  if (found === undefined) throw new InvalidArgumentError(argument, text, `one of ${FORMAT_NAMES.join(", ")}`);
  return found;
}

function inScope(weight: WeightSpec, item: WeightFormat, hasExperts: boolean): boolean {
  switch (item.scope) {
    case "all":
      return true;
    case "matrices":
      return (
        weight.isLinear ||
        (weight.shape.length === 2 && (weight.component === "embedding" || weight.component === "head"))
      );
    case "experts":
      return weight.isLinear && (weight.perExpert || !hasExperts);
    case "linear":
      return weight.isLinear;
  }
}

/**
 * Bytes of a weight (or a shard of it) of the given outer sizes in a format, scales and zero points included.
 * @param place where the weight is: the mixes of GGUF files ask for it
 */
export function bytesOf(
  weight: WeightSpec,
  shape: { readonly copies: number; readonly out: number; readonly input: number },
  item: WeightFormat,
  hasExperts: boolean,
  place?: TensorPlace,
): number {
  const { copies, out, input } = shape;
  const elements = copies * out * input;
  if (!inScope(weight, item, hasExperts)) {
    const isMatrix = inScope(weight, { ...item, scope: "matrices" }, hasExperts);
    return Math.ceil((elements * (isMatrix ? item.restBits : REST_BITS)) / 8);
  }
  if (item.scope === "all") return Math.ceil((elements * item.bits) / 8);
  if (item.gguf) return Math.ceil((elements * (GGUF_BITS[ggufTensorType(item.name, weight, place)] ?? item.bits)) / 8);
  const scales =
    item.scaleBits === 0
      ? 0
      : item.group === 0
        ? copies
        : item.group === Number.POSITIVE_INFINITY
          ? copies * out
          : copies * Math.ceil(out / item.groupOut) * Math.ceil(input / item.group);
  const bits = elements * item.bits + scales * (item.scaleBits + item.zeroBits) + copies * input * item.perInputBits;
  return Math.ceil(bits / 8);
}

/** Bits an element on average over a large matrix: what people quote. */
export function effectiveBits(item: WeightFormat): number {
  if (item.gguf || item.group === 0 || item.group === Number.POSITIVE_INFINITY) return item.bits;
  return item.bits + (item.scaleBits + item.zeroBits) / (item.group * item.groupOut);
}

/** Formats of the KV cache. */
export const KV_FORMATS = {
  f32: { bytes: 4, scaleBytesPerHead: 0 },
  f16: { bytes: 2, scaleBytesPerHead: 0 },
  bf16: { bytes: 2, scaleBytesPerHead: 0 },
  fp8: { bytes: 1, scaleBytesPerHead: 0 },
  int8: { bytes: 1, scaleBytesPerHead: 2 },
  int4: { bytes: 0.5, scaleBytesPerHead: 4 },
  // llama.cpp: a 16-bit scale for 32 elements.
  q8_0: { bytes: 1.0625, scaleBytesPerHead: 0 },
  q5_1: { bytes: 0.75, scaleBytesPerHead: 0 },
  q5_0: { bytes: 0.6875, scaleBytesPerHead: 0 },
  q4_1: { bytes: 0.625, scaleBytesPerHead: 0 },
  q4_0: { bytes: 0.5625, scaleBytesPerHead: 0 },
  // NVIDIA's: an 8-bit scale for 16 elements.
  nvfp4: { bytes: 0.5625, scaleBytesPerHead: 0 },
} as const satisfies Readonly<Record<string, { bytes: number; scaleBytesPerHead: number }>>;
export type KvFormatName = keyof typeof KV_FORMATS;

/** Checks the name of a KV format. @throws InvalidArgumentError naming them */
export function kvFormat(
  text: string,
  argument = "kv format",
): { readonly bytes: number; readonly scaleBytesPerHead: number } {
  const found = Object.hasOwn(KV_FORMATS, text) ? KV_FORMATS[text as KvFormatName] : undefined;
  if (found === undefined)
    throw new InvalidArgumentError(argument, text, `one of ${Object.keys(KV_FORMATS).join(", ")}`);
  return found;
}
