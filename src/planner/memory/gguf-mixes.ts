/**
 * Which type each tensor of a GGUF file has: llama.cpp's file types are mixes, which give more bits to tensors that suffer
 * most. The rules are those of its quantizer (llama-quant.cpp, `llama_tensor_get_type`, 2025); bits of a type are those of
 * a whole super-block (ggml-common.h).
 */
import { wordTable } from "../../core/index.ts";
import type { WeightSpec } from "../model/spec.ts";

/** Bits of one element of a tensor type, scales included. */
export const GGUF_BITS: Readonly<Record<string, number>> = wordTable({
  q4_0: 4.5,
  q4_1: 5,
  q5_0: 5.5,
  q5_1: 6,
  q8_0: 8.5,
  q2_k: 2.625,
  q3_k: 3.4375,
  q4_k: 4.5,
  q5_k: 5.5,
  q6_k: 6.5625,
  q8_k: 9.125,
  iq1_s: 1.5625,
  iq1_m: 1.75,
  iq2_xxs: 2.0625,
  iq2_xs: 2.3125,
  iq2_s: 2.5625,
  iq3_xxs: 3.0625,
  iq3_s: 3.4375,
  iq4_nl: 4.5,
  iq4_xs: 4.25,
  tq1_0: 1.6875,
  tq2_0: 2.0625,
});

/** File types, and the type that most of their tensors have. */
export const GGUF_MIXES: Readonly<Record<string, string>> = wordTable({
  iq1_s: "iq1_s",
  iq1_m: "iq1_m",
  iq2_xxs: "iq2_xxs",
  iq2_xs: "iq2_xs",
  iq2_s: "iq2_xs",
  iq2_m: "iq2_s",
  iq3_xxs: "iq3_xxs",
  iq3_xs: "iq3_s",
  iq3_s: "iq3_s",
  iq3_m: "iq3_s",
  iq4_nl: "iq4_nl",
  iq4_xs: "iq4_xs",
  q2_k: "q2_k",
  q2_k_s: "q2_k",
  q3_k_s: "q3_k",
  q3_k_m: "q3_k",
  q3_k_l: "q3_k",
  q4_k_s: "q4_k",
  q4_k_m: "q4_k",
  q5_k_s: "q5_k",
  q5_k_m: "q5_k",
});

/** Where in the model a tensor is, as far as the rules ask. */
export interface TensorPlace {
  readonly layer: number;
  readonly numLayers: number;
  /** Query heads for each KV head. */
  readonly groupedHeads: number;
}

/** llama.cpp's rule for which layers of a K_M mix get more bits (use_more_bits). */
export function getsMoreBits(layer: number, numLayers: number): boolean {
  const eighth = Math.floor(numLayers / 8);
  return layer < eighth || layer >= Math.floor((7 * numLayers) / 8) || (layer - eighth) % 3 === 2;
}

const TWO_BITS = new Set(["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"]);

function headType(file: string): string {
  if (TWO_BITS.has(file) || file === "iq3_xxs") return "q5_k";
  return "q6_k";
}

function embeddingType(file: string): string | undefined {
  if (file === "iq2_s" || file === "iq2_m" || file === "iq3_xxs") return "iq3_s";
  return TWO_BITS.has(file) ? "q2_k" : undefined;
}

function valueType(file: string, { layer, numLayers, groupedHeads }: TensorPlace): string | undefined {
  const grouped = groupedHeads >= 4;
  if (TWO_BITS.has(file)) return grouped ? "q4_k" : file === "iq2_s" || file === "iq2_m" ? "iq3_s" : "q2_k";
  switch (file) {
    case "q2_k":
      return grouped ? "q4_k" : "q3_k";
    case "q2_k_s":
      return grouped ? "q4_k" : undefined;
    case "iq3_xxs":
      return grouped ? "q4_k" : "iq3_s";
    case "iq3_xs":
    case "iq3_s":
      return grouped ? "q4_k" : undefined;
    case "iq3_m":
      return "q4_k";
    case "q3_k_m":
      return layer < 2 ? "q5_k" : "q4_k";
    case "q3_k_l":
      return "q5_k";
    case "iq4_nl":
    case "iq4_xs":
      return grouped ? "q5_k" : undefined;
    case "q4_k_m":
    case "q5_k_m":
      return getsMoreBits(layer, numLayers) ? "q6_k" : undefined;
    case "q4_k_s":
      return layer < 4 ? "q5_k" : undefined;
    default:
      return undefined;
  }
}

function downType(file: string, { layer, numLayers }: TensorPlace): string | undefined {
  const isEarly = layer < Math.floor(numLayers / 8);
  if (TWO_BITS.has(file)) return isEarly ? (file === "iq2_s" || file === "iq2_m" ? "iq3_s" : "q2_k") : undefined;
  switch (file) {
    case "q2_k":
      return "q3_k";
    case "q2_k_s":
      return isEarly ? "q4_k" : undefined;
    case "q3_k_m":
      return layer < Math.floor(numLayers / 16) ? "q5_k" : "q4_k";
    case "q3_k_l":
      return "q5_k";
    case "iq3_m":
      return isEarly || getsMoreBits(layer, numLayers) ? "q4_k" : undefined;
    case "q4_k_m":
    case "q5_k_m":
      return getsMoreBits(layer, numLayers) ? "q6_k" : undefined;
    case "q4_k_s":
      return isEarly ? "q5_k" : undefined;
    case "iq4_nl":
    case "iq4_xs":
      return isEarly ? "q5_k" : undefined;
    default:
      return undefined;
  }
}

const OUTPUT_TYPES: Readonly<Record<string, string>> = wordTable({
  q2_k: "q3_k",
  q3_k_m: "q4_k",
  q3_k_l: "q5_k",
  iq1_s: "iq2_xxs",
  iq1_m: "iq2_xxs",
  iq2_s: "iq3_s",
  iq2_m: "iq3_s",
  iq3_xxs: "iq3_s",
  iq3_m: "q4_k",
});

/** The tensor type of a matrix in a file of the given type. */
export function ggufTensorType(file: string, weight: WeightSpec, place: TensorPlace | undefined): string {
  const most = GGUF_MIXES[file] ?? file;
  if (weight.component === "head") {
    return (GGUF_BITS[most] ?? 0) >= 8 ? most : Object.hasOwn(GGUF_MIXES, file) ? headType(file) : "q6_k";
  }
  if (weight.component === "embedding") return embeddingType(file) ?? most;
  if (place === undefined) return most;
  if (weight.name.startsWith("attention.v")) {
    const type = valueType(file, place) ?? most;
    // Models of the size of Llama 70B share one value head among eight: five bits cost nearly nothing there.
    const isLarge = place.numLayers === 80 && place.groupedHeads >= 8;
    return isLarge && (type === "q3_k" || type === "q4_k") ? "q5_k" : type;
  }
  if (weight.name.includes("down")) return downType(file, place) ?? most;
  if (weight.name.startsWith("attention.o")) return OUTPUT_TYPES[file] ?? most;
  const isQueryOrKey = weight.name.startsWith("attention.q.") || weight.name.startsWith("attention.k.");
  if (isQueryOrKey && file === "iq3_xxs") return "iq2_s";
  if (isQueryOrKey && file === "iq3_xs") return "iq3_xxs";
  const middle = place.layer >= Math.floor(place.numLayers / 8) && place.layer < Math.floor((7 * place.numLayers) / 8);
  if (file === "iq3_xs" && middle && /gate|up/.test(weight.name)) return "iq3_xxs";
  return most;
}
