/**
 * Accelerators that chorale knows: memory, bandwidth and dense peaks, each with its source. Detection fills these in for
 * a device whose part is recognised; presets are built from them. A peak is the vendor's dense (not sparse) figure for
 * the fastest unit that takes the dtype; TF32 is not counted as f32. What a vendor does not publish is absent.
 */
import type { DType } from "../../core/index.ts";
import type { Device, Family } from "./inventory.ts";
import { ACCELERATOR_PARTS } from "./parts/accelerators.ts";
import { AMD_PARTS } from "./parts/amd.ts";
import { INTEL_PARTS } from "./parts/intel.ts";
import { NVIDIA_PARTS } from "./parts/nvidia.ts";
import { NVIDIA_CARDS } from "./parts/nvidia-cards.ts";
import type { Part } from "./parts/part.ts";
import { UNIFIED_PARTS } from "./parts/unified.ts";

export type { Part };

/** Order matters: the first part whose pattern matches wins. */
export const PARTS: readonly Part[] = [
  ...UNIFIED_PARTS,
  ...NVIDIA_CARDS,
  ...NVIDIA_PARTS,
  ...AMD_PARTS,
  ...INTEL_PARTS,
  ...ACCELERATOR_PARTS,
];

/** Apple's chips: unified memory bandwidth and GPU f32 peak by chip name, of the largest GPU variant. */
export const APPLE_CHIPS: Readonly<
  Record<string, { readonly memoryBandwidthGBps: number; readonly f32Tflops?: number }>
> = {
  "Apple M1": { memoryBandwidthGBps: 68.3 },
  "Apple M1 Pro": { memoryBandwidthGBps: 200 },
  "Apple M1 Max": { memoryBandwidthGBps: 400 },
  "Apple M1 Ultra": { memoryBandwidthGBps: 800 },
  "Apple M2": { memoryBandwidthGBps: 100 },
  "Apple M2 Pro": { memoryBandwidthGBps: 200 },
  "Apple M2 Max": { memoryBandwidthGBps: 400 },
  "Apple M2 Ultra": { memoryBandwidthGBps: 800 },
  "Apple M3": { memoryBandwidthGBps: 100 },
  "Apple M3 Pro": { memoryBandwidthGBps: 150 },
  "Apple M3 Ultra": { memoryBandwidthGBps: 819 },
  "Apple M4": { memoryBandwidthGBps: 120 },
  "Apple M4 Pro": { memoryBandwidthGBps: 273 },
  "Apple M5": { memoryBandwidthGBps: 153.6 },
};

/** Finds the part that a vendor's device name stands for. */
export function findPart(family: Family, name: string): Part | undefined {
  return PARTS.find((part) => part.family === family && part.match.test(name));
}

/**
 * Finds a part by its key, such as `h100`.
 * @throws never; an unknown key gives undefined
 */
export function partByKey(key: string): Part | undefined {
  return PARTS.find((part) => part.key === key);
}

const INTEGERS = ["i8", "u8", "i32", "u32", "i64", "u64"] as const satisfies readonly DType[];

/** The dtypes that a compute architecture computes on natively, from the vendors' architecture documents. */
export function dtypesOf(family: Family, arch: string | undefined): DType[] | undefined {
  switch (family) {
    case "cpu":
      return ["f32", "f64", ...INTEGERS];
    case "nvidia-gpu": {
      const capability = Number(arch);
      if (arch === undefined || !Number.isFinite(capability)) return undefined;
      const dtypes: DType[] = ["f32", "f64"];
      if (capability >= 5.3) dtypes.push("f16");
      if (capability >= 8) dtypes.push("bf16");
      if (capability >= 8.9) dtypes.push("f8e4m3", "f8e5m2");
      return [...dtypes, ...INTEGERS];
    }
    case "amd-gpu": {
      if (arch === undefined) return undefined;
      const dtypes: DType[] = ["f32", "f64", "f16"];
      if (/^gfx(908|90a|94\d|95\d|11\d\d|12\d\d)/.test(arch)) dtypes.push("bf16");
      if (/^gfx(94\d|95\d|12\d\d)/.test(arch)) dtypes.push("f8e4m3", "f8e5m2");
      return [...dtypes, ...INTEGERS];
    }
    case "gaudi":
      return arch === "gaudi"
        ? ["f32", "bf16", "i8", "u8", "i32", "u32"]
        : ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "u8", "i32", "u32"];
    case "tpu":
      return ["f32", "bf16", "i8", "u8", "i32", "u32"];
    case "neuron":
      return arch === "inf1" ? ["f16", "bf16", "i8"] : ["f32", "f16", "bf16", "f8e4m3", "i8", "u8", "i32", "u32"];
    case "apple-gpu":
      return ["f32", "f16", "bf16", ...INTEGERS];
    default:
      return undefined;
  }
}

/** What a part adds to a device: only fields that the vendor publishes. */
export function partFields(part: Part): Pick<Device, "memoryBandwidthGBps" | "peakTflops"> {
  return {
    memoryBandwidthGBps: part.memoryBandwidthGBps,
    ...(Object.keys(part.peakTflops).length > 0 && { peakTflops: part.peakTflops }),
  };
}
