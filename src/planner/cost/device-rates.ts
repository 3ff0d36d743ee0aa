/** What one rank on a device can do: bytes and FLOPs a second, as far as the inventory knows, assumed where it does not. */
import type { DType } from "../../core/index.ts";
import type { Device } from "../../machine/topology/index.ts";
import type { WeightFormat } from "../memory/formats.ts";
import { APPLE_TFLOPS, ASSUMED_INTEGRATED_RATES, ASSUMED_RATES, CPU_TFLOPS_PER_CORE } from "./constants.ts";
import {
  type Achievable,
  achievableOn,
  defaultEngine,
  type Engine,
  fourBitFactor,
  type TimeConstants,
} from "./profiles.ts";

export interface Rates {
  /** Peak, bytes/s. */
  readonly bandwidth: number;
  /** Dense peak of the weights' compute dtype, FLOP/s. */
  readonly flops: number;
  /** Dense peak of 16-bit floats, which attention runs in, FLOP/s. */
  readonly attentionFlops: number;
  readonly product: ProductRate;
  readonly engine: Engine;
  readonly achievable: Achievable;
  /** What was assumed, in words. */
  readonly assumptions: readonly string[];
}

/** Which dtypes may stand in for one that the device's table does not have, best first. */
const FALLBACKS: Partial<Record<DType, readonly DType[]>> = {
  f8e4m3: ["f8e4m3", "bf16", "f16", "f32"],
  f8e5m2: ["f8e5m2", "bf16", "f16", "f32"],
  i8: ["i8", "bf16", "f16", "f32"],
  bf16: ["bf16", "f16", "f32"],
  f16: ["f16", "bf16", "f32"],
  f32: ["f32"],
};

function peak(device: Device, dtype: DType): number | undefined {
  for (const name of FALLBACKS[dtype] ?? [dtype]) {
    const value = device.peakTflops?.[name];
    if (value !== undefined) return value;
  }
  return device.family === "apple-gpu" ? APPLE_TFLOPS[device.name] : undefined;
}

/** How the products of a matrix run: its peak, and which fraction of it they reach. */
export interface ProductRate {
  readonly flops: number;
  readonly kind: "matmul16" | "matmul8" | "matmul4" | "matmulPacked";
  /** Its weights are expanded on the fly. */
  readonly packed: boolean;
}

/**
 * Products of weights in a format on a device: 4-bit floats where it has units for them, 16 bits for packed weights.
 * llama.cpp expands 4-bit floats too.
 */
function productRate(
  device: Device,
  format: WeightFormat,
  { assumedTflops, ranks, engine }: { assumedTflops: number; ranks: number; engine: Engine },
): ProductRate {
  const half = peak(device, "bf16") ?? assumedTflops;
  const eight = device.peakTflops?.f8e4m3;
  const of = (tflops: number, kind: ProductRate["kind"], packed = false) => ({
    flops: (tflops * 1e12) / ranks,
    kind,
    packed,
  });
  if (format.fourBit && eight !== undefined && engine !== "llama.cpp" && fourBitFactor(device) > 0) {
    return of(eight * fourBitFactor(device), "matmul4");
  }
  if (format.compute === "f8e4m3" && eight !== undefined) return of(eight, "matmul8");
  // llama.cpp multiplies packed weights in 8-bit integers and f16 weights with f16 sums (ggml-cuda asks cuBLAS for
  // CUBLAS_COMPUTE_16F from Volta on). GeForce cards halve neither rate, as they do that of f32 sums, which tables give.
  const integers = engine === "llama.cpp" ? (device.peakTflops?.i8 ?? 0) / 2 : 0;
  if (format.bits >= 16) {
    const wide = peak(device, format.compute) ?? half;
    const sumsInHalf = format.compute === "f16" && device.family === "nvidia-gpu" && Number(device.arch) >= 7;
    return of(sumsInHalf ? Math.max(wide, integers) : wide, "matmul16");
  }
  return of(Math.max(half, integers), "matmulPacked", true);
}

export interface RateOptions {
  readonly ranks?: number;
  readonly format?: WeightFormat;
  readonly engine?: Engine | undefined;
  readonly constants?: TimeConstants | undefined;
}

/**
 * Rates of one of `ranks` ranks that share a device. Speed never comes from a dtype that the hardware lacks: then the
 * weights are expanded and the next wider dtype's peak counts.
 */
export function ratesOf(device: Device, compute: DType, options: RateOptions = {}): Rates {
  const { ranks = 1, format } = options;
  const assumptions: string[] = [];
  const isIntegrated = device.unifiedMemory === true && ["intel-gpu", "amd-gpu", "vulkan"].includes(device.family);
  const assumed = isIntegrated ? ASSUMED_INTEGRATED_RATES : ASSUMED_RATES[device.family];
  let bandwidthGBps = device.memoryBandwidthGBps;
  if (bandwidthGBps === undefined) {
    bandwidthGBps = assumed.bandwidthGBps;
    assumptions.push(`${device.name}: memory bandwidth unknown, ${bandwidthGBps} GB/s assumed`);
  }
  let tflops = peak(device, compute);
  if (tflops === undefined) {
    // A container's quota and its set of CPUs bound what it can use of the host's cores.
    const cores = device.family === "cpu" ? (device.details?.["usableCores"] ?? device.details?.["cores"]) : undefined;
    tflops = typeof cores === "number" && cores > 0 ? cores * CPU_TFLOPS_PER_CORE : assumed.tflops;
    assumptions.push(`${device.name}: peak rate unknown, ${Number(tflops.toPrecision(3))} TFLOP/s assumed`);
  }
  const attention = peak(device, "bf16") ?? tflops;
  const engine = options.engine ?? (format === undefined ? "pytorch" : defaultEngine(device, format));
  const product: ProductRate =
    format === undefined
      ? { flops: (tflops * 1e12) / ranks, kind: "matmul16", packed: false }
      : productRate(device, format, { assumedTflops: tflops, ranks, engine });
  return {
    bandwidth: (bandwidthGBps * 1e9) / ranks,
    flops: product.kind === "matmul4" ? product.flops : (tflops * 1e12) / ranks,
    attentionFlops: (attention * 1e12) / ranks,
    product,
    engine,
    achievable: achievableOn(device, engine, options.constants),
    assumptions,
  };
}
