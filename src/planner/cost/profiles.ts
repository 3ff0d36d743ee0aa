/**
 * What an engine reaches on a generation of hardware. A constant is looked up by its most exact name first:
 * `engine/generation/name`, `generation/name`, `engine/name`, `name`. The values stand in fitted-constants.ts, written by
 * bench/planner-fit.mjs from published measurements and our own; what nothing was measured for keeps constants.ts's value.
 */
import { wordTable } from "../../core/index.ts";
import type { Device, Family } from "../../machine/topology/index.ts";
import { runsEngine } from "../export/device-support.ts";
import { servesFormat } from "../export/format-support.ts";
import type { WeightFormat } from "../memory/formats.ts";
import { ACHIEVABLE } from "./constants.ts";
import { FITTED } from "./fitted-constants.ts";

export const ENGINES = ["tensorrt-llm", "vllm", "sglang", "llama.cpp", "pytorch"] as const;
export type Engine = (typeof ENGINES)[number];

/** Constants by name, as above. */
export type TimeConstants = Readonly<Record<string, number>>;

export interface Achievable {
  /** Fraction of the peak memory bandwidth that streaming weights reaches. */
  readonly memoryBandwidth: number;
  /** The same of weights that are expanded on the fly, on top of it. */
  readonly packedBandwidth: number;
  /** Operations that expand one weight where GPUs have too few to hide them behind memory: Apple's, Maxwell. */
  readonly unpackOperations: number;
  /** Fraction of the dense peak that large matrix products reach, by the width of what is multiplied. */
  readonly matmul16: number;
  readonly matmul8: number;
  readonly matmul4: number;
  /** Packed weights are expanded to 16 bits before they are multiplied: fraction of the 16-bit peak. */
  readonly matmulPacked: number;
  /** Rows that a product costs beside its own: tiles and waves that are not full. */
  readonly fillRows: number;
  /** The experts' grouped products, on top of the fraction above. */
  readonly grouped: number;
  /** Rows that each expert costs beside its own. */
  readonly groupedFillRows: number;
  /** How sharp the roofline's ridge is: the exponent that joins memory traffic and arithmetic. */
  readonly sharpness: number;
  /** Share of further tokens that choose independently of the first: 1 is uniform routing, less is concentrated. */
  readonly routing: number;
  /** How unlike the loads of experts are (standard deviation to mean): the fullest rank of a group has that much more to do. */
  readonly imbalance: number;
  /** The same in training, where a loss or a bias keeps loads alike. */
  readonly trainImbalance: number;
  /** What a pipeline of many stages loses in serving, since its microbatches are not alike. */
  readonly pipelineLoss: number;
  /** Fraction of the dense peak that the attention kernel reaches in prefill. */
  readonly attention: number;
  /** Fraction of the peak memory bandwidth that reading the KV cache reaches. */
  readonly kvBandwidth: number;
  /** What one layer costs beside its bytes and FLOPs: its small kernels and the gaps between them, us. */
  readonly layerOverheadUs: number;
  /** The same of a layer with experts, in addition, us. */
  readonly expertOverheadUs: number;
  /** What one step costs beside its layers: scheduling, sampling, launching, us. */
  readonly stepOverheadUs: number;
  /** What each sequence adds to a step: scheduling, sampling, detokenizing, us. */
  readonly sequenceOverheadUs: number;
  /** Times what the links and NCCL's model say a collective takes. */
  readonly collectives: number;
  /** The same of expert-parallel exchanges. */
  readonly exchanges: number;
  /** Training: fractions of the dense peak. */
  readonly train16: number;
  readonly train8: number;
  /** The same in 16 bits for mixtures, which Megatron Core trains; others are trained by PyTorch's FSDP. */
  readonly trainMixture16: number;
  readonly trainGrouped: number;
  /** Training: times that permuting moves the routed copies of a token through memory, forward. */
  readonly trainRoutedPasses: number;
  /** Training: the same of adding experts' biases to their inputs and inner columns. */
  readonly trainBiasPasses: number;
  readonly trainAttention: number;
  /** Training in 8 bits: bytes that casting moves forward for each element that goes into a product or comes out of it. */
  readonly trainCastBytes: number;
  /** Training: share of tensor-parallel collectives that is not hidden. */
  readonly trainCollectives: number;
  /**
   * Training: share of gradient and weight exchanges of data parallelism that is not hidden. Buckets and prefetching overlap them
   * (PyTorch DDP, VLDB 2020; FSDP, arXiv 2304.11277), but they take memory bandwidth and multiprocessors from what they hide behind.
   */
  readonly trainShards: number;
  /** Training: share of expert-parallel exchanges that is not hidden. */
  readonly trainExchanges: number;
}
export type ConstantName = keyof Achievable;

const DEFAULTS: Omit<
  Achievable,
  "memoryBandwidth" | "attention" | "kvBandwidth" | "layerOverheadUs" | "stepOverheadUs" | "matmul16" | "trainMixture16"
> = {
  packedBandwidth: 0.9,
  unpackOperations: 0,
  matmul8: 0.65,
  matmul4: 0.55,
  matmulPacked: 0.5,
  fillRows: 32,
  grouped: 0.6,
  groupedFillRows: 64,
  routing: 0.85,
  imbalance: 1,
  trainImbalance: 0.1,
  pipelineLoss: 0.15,
  expertOverheadUs: 20,
  sequenceOverheadUs: 2,
  collectives: 1,
  exchanges: 1,
  train16: 0.6,
  train8: 0.5,
  trainGrouped: 0.92,
  trainRoutedPasses: 24,
  trainBiasPasses: 8,
  trainAttention: 0.35,
  trainCastBytes: 1.3,
  trainCollectives: 0.6,
  trainExchanges: 0.6,
  trainShards: 0.5,
  sharpness: 4,
};

const NAMES = Object.keys({
  ...DEFAULTS,
  memoryBandwidth: 0,
  attention: 0,
  kvBandwidth: 0,
  layerOverheadUs: 0,
  stepOverheadUs: 0,
  matmul16: 0,
  trainMixture16: 0,
}) as readonly ConstantName[];

/** NVIDIA's generations by compute capability; gaming and workstation parts apart from data-centre ones. */
function nvidiaGeneration(arch: string | undefined, name: string): string {
  const capability = Number(arch);
  if (!(capability > 0)) return "nvidia";
  if (capability >= 12.1) return "spark";
  if (capability >= 12) return "blackwell-rtx";
  if (capability >= 11) return "thor";
  if (capability >= 10) return "blackwell";
  if (capability >= 9) return /PCIe|NVL/.test(name) ? "hopper-pcie" : "hopper";
  if (capability >= 8.9) return "ada";
  if (capability === 8.7) return "orin";
  if (capability >= 8.6) return "ampere-rtx";
  if (capability >= 8) return "ampere";
  if (capability >= 7.5) return "turing";
  if (capability >= 7) return "volta";
  // P100 (6.0) has no dot products of bytes yet.
  return capability >= 6.1 ? "pascal" : "maxwell";
}

/** The generation that constants are given for. */
export function generationOf(device: Device): string {
  switch (device.family) {
    case "nvidia-gpu":
      return nvidiaGeneration(device.arch, device.name);
    case "amd-gpu":
      return device.arch === "gfx950"
        ? "cdna4"
        : device.arch?.startsWith("gfx94") === true
          ? "cdna3"
          : device.arch?.startsWith("gfx9") === true
            ? "cdna2"
            : "rdna";
    case "gaudi":
      return device.arch ?? "gaudi";
    case "apple-gpu":
      // From the M3 on, GPUs issue integer and float operations side by side.
      return /\bM[12]\b/.test(device.name) ? "apple" : "apple-m3";
    default:
      return device.family;
  }
}

/**
 * Whose constants an engine is given on a generation that nobody measured it on: the nearest measured one's, all of them or
 * only what it costs beside bytes and FLOPs, which is the engine's own. Without it MI355X had the overheads of plain PyTorch.
 */
const NEAREST: Readonly<Record<string, { readonly like: string; readonly names?: readonly ConstantName[] }>> =
  wordTable({
    "llama.cpp/apple-m3": { like: "llama.cpp/apple" },
    "llama.cpp/thor": { like: "llama.cpp/spark" },
    "llama.cpp/orin": { like: "llama.cpp/ampere-rtx" },
    // Parts as young as DGX Spark never ran llama.cpp without CUDA graphs.
    "llama.cpp/blackwell-rtx": { like: "llama.cpp/spark", names: ["layerOverheadUs"] },
    // The same chip with faster memory; later ones and AMD's have matrix units that its kernels fill no better.
    "llama.cpp/hopper": { like: "llama.cpp/hopper-pcie" },
    "llama.cpp/blackwell": { like: "llama.cpp/hopper-pcie" },
    "llama.cpp/cdna3": { like: "llama.cpp/hopper-pcie", names: ["matmul16", "matmulPacked"] },
    "llama.cpp/cdna4": { like: "llama.cpp/hopper-pcie", names: ["matmul16", "matmulPacked"] },
    "vllm/cdna4": { like: "vllm/cdna3" },
    "vllm/cdna2": { like: "vllm/cdna3", names: ["layerOverheadUs", "stepOverheadUs", "sequenceOverheadUs"] },
    ...Object.fromEntries(
      ["hopper", "hopper-pcie", "blackwell", "ada", "blackwell-rtx", "ampere-rtx", "turing", "volta"].map(
        (generation) => [`vllm/${generation}`, { like: "vllm/ampere", names: ["layerOverheadUs"] }],
      ),
    ),
  });

const LLAMA_CPP_FAMILIES: ReadonlySet<Family> = new Set(["apple-gpu", "vulkan", "windows-gpu", "cpu", "intel-gpu"]);

/**
 * The engine that people run a format with on such a device, where none is named: llama.cpp for GGUF, Apple, PCs, and f16
 * and MXFP4 on gaming and workstation cards; TensorRT-LLM for FP8, FP4 and f16 on NVIDIA; gpt-fast's PyTorch for int8
 * alone; vLLM for the rest. Small systems of unified memory (DGX Spark, Jetson, Strix Halo) run llama.cpp. Where that engine
 * does not run on the device, or not the format there, another that does.
 */
export function defaultEngine(device: Device, format: WeightFormat): Engine {
  const usual = usualEngine(device, format);
  // What bf16 is not to be had for, f16 of the same size is.
  const name = format.name === "bf16" ? "f16" : format.name;
  const serves = (engine: Engine) => runsEngine(engine, device) && servesFormat(engine, "weights", name, device);
  if (serves(usual)) return usual;
  const other = ENGINES.find((engine) => engine !== "pytorch" && serves(engine));
  return other ?? (runsEngine(usual, device) ? usual : "pytorch");
}

function usualEngine(device: Device, format: WeightFormat): Engine {
  if (format.gguf || LLAMA_CPP_FAMILIES.has(device.family) || format.name.startsWith("mlx")) return "llama.cpp";
  const isAccelerator = /Instinct|GH200|GB200|GB300/.test(device.name);
  if (device.unifiedMemory === true && !isAccelerator && /^(amd|nvidia)-gpu$/.test(device.family)) return "llama.cpp";
  if (device.family === "amd-gpu" && format.name === "int8") return "pytorch";
  if (device.family !== "nvidia-gpu") return "vllm";
  const isDesktop = /GeForce|TITAN|RTX A\d|RTX \d000 Ada/.test(device.name);
  if (format.name === "mxfp4" && isDesktop) return "llama.cpp";
  if (format.name === "f16") return isDesktop ? "llama.cpp" : "tensorrt-llm";
  if (format.name === "int8") return "pytorch";
  return format.compute === "f8e4m3" || format.fourBit ? "tensorrt-llm" : "vllm";
}

/**
 * Boards whose power limit keeps products from their data sheet's peak: the fraction that is left. T4: 24 of 65 TFLOP/s at its
 * 70 W (forums.developer.nvidia.com/t/264462, answered by NVIDIA).
 */
const POWER_CAPPED: readonly (readonly [RegExp, number])[] = [[/\bT4\b/, 24 / 65]];
const PRODUCTS = ["matmul16", "matmul8", "matmulPacked", "train16", "trainMixture16"] as const;

/** Constants of an engine on a device. `constants` stand before the shipped ones. */
export function achievableOn(device: Device, engine: Engine, constants: TimeConstants = {}): Achievable {
  const generation = generationOf(device);
  const family = ACHIEVABLE[device.family];
  const base = { ...DEFAULTS, ...family, matmul16: family.matmul, matmul8: family.matmul };
  const nearest = NEAREST[`${engine}/${generation}`];
  const keysOf = (name: ConstantName) => [
    `${engine}/${generation}/${name}`,
    `${generation}/${name}`,
    ...(nearest !== undefined && (nearest.names?.includes(name) ?? true) ? [`${nearest.like}/${name}`] : []),
    `${engine}/${name}`,
    name,
  ];
  const found = Object.fromEntries(
    NAMES.map((name) => {
      for (const key of keysOf(name)) {
        const value = constants[key] ?? FITTED[key];
        if (value !== undefined) return [name, value];
      }
      return [name, base[name as keyof typeof base]];
    }),
  ) as unknown as Achievable;
  // One trainer is as good as the other where nothing else is known.
  const whole = { ...found, trainMixture16: found.trainMixture16 ?? found.train16 };
  const [, cap] = POWER_CAPPED.find(([board]) => board.test(device.name)) ?? [];
  if (cap === undefined) return whole;
  return { ...whole, ...Object.fromEntries(PRODUCTS.map((name) => [name, Math.min(whole[name], cap)])) };
}

/** How much faster 4-bit floats multiply than 8-bit ones; 0 where the device has no units for them. */
export function fourBitFactor(device: Device): number {
  if (device.family === "nvidia-gpu") {
    const capability = Number(device.arch);
    return capability >= 10.3 && capability < 11 ? 3 : capability >= 10 ? 2 : 0;
  }
  return device.arch === "gfx950" ? 2 : 0;
}
