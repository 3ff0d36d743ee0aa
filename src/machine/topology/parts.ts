/**
 * Accelerators that chorale knows: memory, bandwidth and dense peaks, each with its source. Detection fills these in for
 * a device whose part is recognised; presets are built from them. A peak is the vendor's dense (not sparse) figure for
 * the fastest unit that takes the dtype; TF32 is not counted as f32. What a vendor does not publish is absent.
 */
import type { DType } from "../../core/index.ts";
import type { Device, Family } from "./inventory.ts";

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;

export interface Part {
  readonly key: string;
  readonly family: Family;
  readonly vendor: string;
  readonly name: string;
  /** As the driver reports it where that is known (H100: 81559 MiB), else the data sheet's. */
  readonly memoryBytes: number;
  readonly memoryBandwidthGBps: number;
  readonly peakTflops: Partial<Record<DType, number>>;
  readonly arch: string;
  readonly unifiedMemory?: true;
  readonly powerLimitWatts?: number;
  /** Recognises the vendor's device name. */
  readonly match: RegExp;
  readonly source: string;
}

const NVIDIA = { family: "nvidia-gpu", vendor: "NVIDIA" } as const;
const AMD = { family: "amd-gpu", vendor: "AMD" } as const;
const HOPPER = { f64: 67, f32: 67, f16: 989.4, bf16: 989.4, f8e4m3: 1978.9, f8e5m2: 1978.9, i8: 1978.9 };

/** Order matters: the first part whose pattern matches wins, so narrower patterns stand first. */
export const PARTS: readonly Part[] = [
  {
    ...NVIDIA,
    key: "gb300",
    name: "NVIDIA GB300",
    memoryBytes: 284208 * MIB,
    memoryBandwidthGBps: 8000,
    peakTflops: { f64: 1.3, f32: 80, f16: 2500, bf16: 2500, f8e4m3: 5000, f8e5m2: 5000 },
    arch: "10.3",
    powerLimitWatts: 1400,
    match: /\bGB300\b/,
    source: "NVIDIA GB300 NVL72 data sheet (sparse figures halved)",
  },
  {
    ...NVIDIA,
    key: "gb200",
    name: "NVIDIA GB200",
    memoryBytes: 189471 * MIB,
    memoryBandwidthGBps: 8000,
    peakTflops: { f64: 40, f32: 80, f16: 2500, bf16: 2500, f8e4m3: 5000, f8e5m2: 5000, i8: 5000 },
    arch: "10.0",
    powerLimitWatts: 1200,
    match: /\bGB200\b/,
    source: "NVIDIA GB200 NVL72 data sheet (sparse figures halved)",
  },
  {
    ...NVIDIA,
    key: "b300",
    name: "NVIDIA B300 SXM6 AC",
    memoryBytes: 275040 * MIB,
    memoryBandwidthGBps: 8000,
    peakTflops: { f64: 1.25, f32: 75, f16: 2250, bf16: 2250, f8e4m3: 4500, f8e5m2: 4500 },
    arch: "10.3",
    powerLimitWatts: 1100,
    match: /\bB300\b/,
    source: "NVIDIA HGX B300 specifications, an eighth of the board (sparse figures halved)",
  },
  {
    ...NVIDIA,
    key: "b200",
    name: "NVIDIA B200",
    memoryBytes: 183359 * MIB,
    memoryBandwidthGBps: 8000,
    peakTflops: { f64: 37, f32: 75, f16: 2250, bf16: 2250, f8e4m3: 4500, f8e5m2: 4500, i8: 4500 },
    arch: "10.0",
    powerLimitWatts: 1000,
    match: /\bB200\b/,
    source: "NVIDIA HGX B200 specifications, an eighth of the board (sparse figures halved)",
  },
  {
    ...NVIDIA,
    key: "gh200-144",
    name: "NVIDIA GH200 144G HBM3e",
    memoryBytes: 147456 * MIB,
    memoryBandwidthGBps: 4900,
    peakTflops: HOPPER,
    arch: "9.0",
    match: /\bGH200 (144|141)/,
    source: "NVIDIA GH200 Grace Hopper Superchip data sheet",
  },
  {
    ...NVIDIA,
    key: "gh200-96",
    name: "NVIDIA GH200 480GB",
    memoryBytes: 97871 * MIB,
    memoryBandwidthGBps: 4000,
    peakTflops: HOPPER,
    arch: "9.0",
    match: /\bGH200\b/,
    source: "NVIDIA GH200 Grace Hopper Superchip data sheet",
  },
  {
    ...NVIDIA,
    key: "h200-nvl",
    name: "NVIDIA H200 NVL",
    memoryBytes: 143771 * MIB,
    memoryBandwidthGBps: 4800,
    peakTflops: { f64: 60, f32: 60, f16: 835.5, bf16: 835.5, f8e4m3: 1670.5, f8e5m2: 1670.5, i8: 1670.5 },
    arch: "9.0",
    powerLimitWatts: 600,
    match: /\bH200 NVL\b/,
    source: "NVIDIA H200 data sheet",
  },
  {
    ...NVIDIA,
    key: "h200",
    name: "NVIDIA H200",
    memoryBytes: 143771 * MIB,
    memoryBandwidthGBps: 4800,
    peakTflops: HOPPER,
    arch: "9.0",
    powerLimitWatts: 700,
    match: /\bH200\b/,
    source: "NVIDIA H200 data sheet; memory as nvidia-smi reports it",
  },
  {
    ...NVIDIA,
    key: "h100-pcie",
    name: "NVIDIA H100 PCIe",
    memoryBytes: 81559 * MIB,
    memoryBandwidthGBps: 2039,
    peakTflops: { f64: 51.2, f32: 51.2, f16: 756.4, bf16: 756.4, f8e4m3: 1512.9, f8e5m2: 1512.9, i8: 1512.9 },
    arch: "9.0",
    powerLimitWatts: 350,
    match: /\bH100 PCIe\b/,
    source: "NVIDIA H100 Tensor Core GPU Architecture white paper, table 2",
  },
  {
    ...NVIDIA,
    key: "h100-nvl",
    name: "NVIDIA H100 NVL",
    memoryBytes: 95830 * MIB,
    memoryBandwidthGBps: 3900,
    peakTflops: { f64: 60, f32: 60, f16: 835.5, bf16: 835.5, f8e4m3: 1670.5, f8e5m2: 1670.5, i8: 1670.5 },
    arch: "9.0",
    powerLimitWatts: 400,
    match: /\bH100 NVL\b/,
    source: "NVIDIA H100 data sheet",
  },
  {
    ...NVIDIA,
    key: "h100",
    name: "NVIDIA H100 80GB HBM3",
    memoryBytes: 81559 * MIB,
    memoryBandwidthGBps: 3350,
    peakTflops: HOPPER,
    arch: "9.0",
    powerLimitWatts: 700,
    match: /\bH100\b/,
    source: "NVIDIA H100 data sheet; memory as nvidia-smi reports it",
  },
  {
    ...NVIDIA,
    key: "a100-40",
    name: "NVIDIA A100-SXM4-40GB",
    memoryBytes: 40960 * MIB,
    memoryBandwidthGBps: 1555,
    peakTflops: { f64: 19.5, f32: 19.5, f16: 312, bf16: 312, i8: 624 },
    arch: "8.0",
    powerLimitWatts: 400,
    match: /\bA100\b.*40GB/,
    source: "NVIDIA A100 Tensor Core GPU Architecture white paper",
  },
  {
    ...NVIDIA,
    key: "a100-80-pcie",
    name: "NVIDIA A100 80GB PCIe",
    memoryBytes: 81920 * MIB,
    memoryBandwidthGBps: 1935,
    peakTflops: { f64: 19.5, f32: 19.5, f16: 312, bf16: 312, i8: 624 },
    arch: "8.0",
    powerLimitWatts: 300,
    match: /\bA100 80GB PCIe\b/,
    source: "NVIDIA A100 80GB data sheet",
  },
  {
    ...NVIDIA,
    key: "a100-80",
    name: "NVIDIA A100-SXM4-80GB",
    memoryBytes: 81920 * MIB,
    memoryBandwidthGBps: 2039,
    peakTflops: { f64: 19.5, f32: 19.5, f16: 312, bf16: 312, i8: 624 },
    arch: "8.0",
    powerLimitWatts: 400,
    match: /\bA100\b/,
    source: "NVIDIA A100 80GB data sheet",
  },
  {
    ...NVIDIA,
    key: "a30",
    name: "NVIDIA A30",
    memoryBytes: 24576 * MIB,
    memoryBandwidthGBps: 933,
    peakTflops: { f64: 10.3, f32: 10.3, f16: 165, bf16: 165, i8: 330 },
    arch: "8.0",
    powerLimitWatts: 165,
    match: /\bA30\b/,
    source: "NVIDIA A30 data sheet",
  },
  {
    ...NVIDIA,
    key: "a10g",
    name: "NVIDIA A10G",
    memoryBytes: 23028 * MIB,
    memoryBandwidthGBps: 600,
    peakTflops: { f32: 31.5, f16: 70, bf16: 70, i8: 140 },
    arch: "8.6",
    powerLimitWatts: 300,
    match: /\bA10G\b/,
    source: "NVIDIA A10G data sheet (AWS G5); memory as nvidia-smi reports it",
  },
  {
    ...NVIDIA,
    key: "a10",
    name: "NVIDIA A10",
    memoryBytes: 23028 * MIB,
    memoryBandwidthGBps: 600,
    peakTflops: { f32: 31.2, f16: 125, bf16: 125, i8: 250 },
    arch: "8.6",
    powerLimitWatts: 150,
    match: /\bA10\b/,
    source: "NVIDIA A10 data sheet",
  },
  {
    ...NVIDIA,
    key: "l40s",
    name: "NVIDIA L40S",
    memoryBytes: 46068 * MIB,
    memoryBandwidthGBps: 864,
    peakTflops: { f32: 91.6, f16: 362, bf16: 362, f8e4m3: 733, f8e5m2: 733, i8: 733 },
    arch: "8.9",
    powerLimitWatts: 350,
    match: /\bL40S\b/,
    source: "NVIDIA L40S data sheet; memory as nvidia-smi reports it",
  },
  {
    ...NVIDIA,
    key: "l40",
    name: "NVIDIA L40",
    memoryBytes: 46068 * MIB,
    memoryBandwidthGBps: 864,
    peakTflops: { f32: 90.5, f16: 181, bf16: 181, f8e4m3: 362, f8e5m2: 362, i8: 362 },
    arch: "8.9",
    powerLimitWatts: 300,
    match: /\bL40\b/,
    source: "NVIDIA L40 data sheet",
  },
  {
    ...NVIDIA,
    key: "l4",
    name: "NVIDIA L4",
    memoryBytes: 23034 * MIB,
    memoryBandwidthGBps: 300,
    peakTflops: { f32: 30.3, f16: 121, bf16: 121, f8e4m3: 242.5, f8e5m2: 242.5, i8: 242.5 },
    arch: "8.9",
    powerLimitWatts: 72,
    match: /\bL4\b/,
    source: "NVIDIA L4 data sheet; memory as nvidia-smi reports it",
  },
  {
    ...NVIDIA,
    key: "t4",
    name: "Tesla T4",
    memoryBytes: 15360 * MIB,
    memoryBandwidthGBps: 320,
    peakTflops: { f32: 8.1, f16: 65, i8: 130 },
    arch: "7.5",
    powerLimitWatts: 70,
    match: /\bT4\b/,
    source: "NVIDIA T4 data sheet",
  },
  {
    ...NVIDIA,
    key: "v100-32",
    name: "Tesla V100-SXM2-32GB",
    memoryBytes: 32768 * MIB,
    memoryBandwidthGBps: 900,
    peakTflops: { f64: 7.8, f32: 15.7, f16: 125 },
    arch: "7.0",
    powerLimitWatts: 300,
    match: /\bV100-SXM[23]?-32GB/,
    source: "NVIDIA V100 data sheet",
  },
  {
    ...NVIDIA,
    key: "v100-16",
    name: "Tesla V100-SXM2-16GB",
    memoryBytes: 16384 * MIB,
    memoryBandwidthGBps: 900,
    peakTflops: { f64: 7.8, f32: 15.7, f16: 125 },
    arch: "7.0",
    powerLimitWatts: 300,
    match: /\bV100-SXM[23]?-16GB/,
    source: "NVIDIA V100 data sheet",
  },
  {
    ...NVIDIA,
    key: "rtx5090",
    name: "NVIDIA GeForce RTX 5090",
    memoryBytes: 32607 * MIB,
    memoryBandwidthGBps: 1792,
    peakTflops: { f32: 104.8, f16: 209.5, bf16: 209.5, f8e4m3: 419, f8e5m2: 419, i8: 838 },
    arch: "12.0",
    powerLimitWatts: 575,
    match: /\bRTX 5090(?! (D|Laptop))\b/,
    source: "NVIDIA RTX Blackwell GPU Architecture white paper (f32 accumulation)",
  },
  {
    ...NVIDIA,
    key: "rtx4090",
    name: "NVIDIA GeForce RTX 4090",
    memoryBytes: 24564 * MIB,
    memoryBandwidthGBps: 1008,
    peakTflops: { f32: 82.6, f16: 165.2, bf16: 165.2, f8e4m3: 330.3, f8e5m2: 330.3, i8: 660.6 },
    arch: "8.9",
    powerLimitWatts: 450,
    match: /\bRTX 4090(?! (D|Laptop))\b/,
    source: "NVIDIA Ada GPU Architecture white paper (f32 accumulation)",
  },
  {
    ...NVIDIA,
    key: "rtx3090",
    name: "NVIDIA GeForce RTX 3090",
    memoryBytes: 24576 * MIB,
    memoryBandwidthGBps: 936,
    peakTflops: { f32: 35.6, f16: 71, bf16: 71, i8: 284 },
    arch: "8.6",
    powerLimitWatts: 350,
    match: /\bRTX 3090(?! Ti)\b/,
    source: "NVIDIA Ampere GA102 GPU Architecture white paper (f32 accumulation)",
  },
  {
    ...NVIDIA,
    key: "gb10",
    name: "NVIDIA GB10",
    memoryBytes: 128 * GIB,
    memoryBandwidthGBps: 273,
    peakTflops: { f16: 125, bf16: 125, f8e4m3: 250, f8e5m2: 250 },
    arch: "12.1",
    unifiedMemory: true,
    match: /\bGB10\b/,
    source: "NVIDIA DGX Spark data sheet: 1 PFLOP sparse FP4, hence 1/4 of it sparse or 1/8 dense in 16 bits",
  },
  {
    ...AMD,
    key: "mi355x",
    name: "AMD Instinct MI355X",
    memoryBytes: 288 * GIB,
    memoryBandwidthGBps: 8000,
    peakTflops: { f64: 78.6, f32: 157.3, f16: 2516.6, bf16: 2516.6, f8e4m3: 5033.2, f8e5m2: 5033.2, i8: 5033.2 },
    arch: "gfx950",
    powerLimitWatts: 1400,
    match: /MI355X/,
    source: "AMD Instinct MI355X data sheet",
  },
  {
    ...AMD,
    key: "mi325x",
    name: "AMD Instinct MI325X",
    memoryBytes: 256 * GIB,
    memoryBandwidthGBps: 6000,
    peakTflops: { f64: 163.4, f32: 163.4, f16: 1307.4, bf16: 1307.4, f8e4m3: 2614.9, f8e5m2: 2614.9, i8: 2614.9 },
    arch: "gfx942",
    powerLimitWatts: 1000,
    match: /MI325X/,
    source: "AMD Instinct MI325X data sheet",
  },
  {
    ...AMD,
    key: "mi300x",
    name: "AMD Instinct MI300X",
    memoryBytes: 192 * GIB,
    memoryBandwidthGBps: 5300,
    peakTflops: { f64: 163.4, f32: 163.4, f16: 1307.4, bf16: 1307.4, f8e4m3: 2614.9, f8e5m2: 2614.9, i8: 2614.9 },
    arch: "gfx942",
    powerLimitWatts: 750,
    match: /MI300X/,
    source: "AMD Instinct MI300X data sheet",
  },
  {
    ...AMD,
    key: "mi250x",
    name: "AMD Instinct MI250X (one die)",
    memoryBytes: 64 * GIB,
    memoryBandwidthGBps: 1638.4,
    peakTflops: { f64: 47.9, f32: 47.9, f16: 191.5, bf16: 191.5, i8: 191.5 },
    arch: "gfx90a",
    powerLimitWatts: 560,
    match: /MI250X/,
    source: "AMD Instinct MI250X data sheet, halved: each of its two dies is a device",
  },
  {
    ...AMD,
    key: "mi210",
    name: "AMD Instinct MI210",
    memoryBytes: 64 * GIB,
    memoryBandwidthGBps: 1638.4,
    peakTflops: { f64: 45.3, f32: 45.3, f16: 181, bf16: 181, i8: 181 },
    arch: "gfx90a",
    powerLimitWatts: 300,
    match: /MI210/,
    source: "AMD Instinct MI210 data sheet",
  },
  {
    family: "gaudi",
    vendor: "Intel",
    key: "gaudi3",
    name: "HL-325L",
    memoryBytes: 128 * GIB,
    memoryBandwidthGBps: 3700,
    peakTflops: { bf16: 1835, f8e4m3: 1835, f8e5m2: 1835 },
    arch: "gaudi3",
    powerLimitWatts: 900,
    match: /HL-3\d\d|Gaudi ?3/i,
    source: "Intel Gaudi 3 AI Accelerator white paper",
  },
  {
    family: "gaudi",
    vendor: "Intel",
    key: "gaudi2",
    name: "HL-225",
    memoryBytes: 96 * GIB,
    memoryBandwidthGBps: 2450,
    peakTflops: { bf16: 432, f8e4m3: 865, f8e5m2: 865 },
    arch: "gaudi2",
    powerLimitWatts: 600,
    match: /HL-22\d|HL-28\d|Gaudi ?2/i,
    source: "Intel Gaudi 2 white paper; bf16 and f8 as in Intel's Gaudi 3 comparison",
  },
  {
    family: "gaudi",
    vendor: "Intel",
    key: "gaudi1",
    name: "HL-205",
    memoryBytes: 32 * GIB,
    memoryBandwidthGBps: 1000,
    peakTflops: {},
    arch: "gaudi",
    powerLimitWatts: 350,
    match: /HL-20\d|Gaudi(?! ?[23])/i,
    source: "Habana Gaudi HL-205 data sheet",
  },
  {
    family: "tpu",
    vendor: "Google",
    key: "tpu-v4",
    name: "TPU v4",
    memoryBytes: 32 * GIB,
    memoryBandwidthGBps: 1228,
    peakTflops: { bf16: 275, i8: 275 },
    arch: "v4",
    match: /^TPU v4$/,
    source: "Google Cloud TPU v4 documentation",
  },
  {
    family: "tpu",
    vendor: "Google",
    key: "tpu-v5e",
    name: "TPU v5e",
    memoryBytes: 16 * GIB,
    memoryBandwidthGBps: 819,
    peakTflops: { bf16: 197, i8: 393 },
    arch: "v5e",
    match: /^TPU v5(e| lite)$/,
    source: "Google Cloud TPU v5e documentation",
  },
  {
    family: "tpu",
    vendor: "Google",
    key: "tpu-v5p",
    name: "TPU v5p",
    memoryBytes: 95 * GIB,
    memoryBandwidthGBps: 2765,
    peakTflops: { bf16: 459, i8: 918 },
    arch: "v5p",
    match: /^TPU v5p$/,
    source: "Google Cloud TPU v5p documentation",
  },
  {
    family: "tpu",
    vendor: "Google",
    key: "tpu-v6e",
    name: "TPU v6e",
    memoryBytes: 32 * GIB,
    memoryBandwidthGBps: 1640,
    peakTflops: { bf16: 918, i8: 1836 },
    arch: "v6e",
    match: /^TPU v6(e| lite)$/,
    source: "Google Cloud TPU v6e documentation",
  },
  {
    family: "neuron",
    vendor: "AWS",
    key: "trainium1",
    name: "AWS Trainium",
    memoryBytes: 32 * GIB,
    memoryBandwidthGBps: 820,
    peakTflops: { f32: 47.5, f16: 190, bf16: 190, f8e4m3: 190 },
    arch: "trn1",
    match: /^AWS Trainium1?$/,
    source: "AWS Neuron documentation, Trainium architecture",
  },
  {
    family: "neuron",
    vendor: "AWS",
    key: "trainium2",
    name: "AWS Trainium2",
    memoryBytes: 96 * GIB,
    memoryBandwidthGBps: 2900,
    peakTflops: { f32: 181, f16: 667, bf16: 667, f8e4m3: 1299 },
    arch: "trn2",
    match: /^AWS Trainium2$/,
    source: "AWS Neuron documentation, Trainium2 architecture",
  },
  {
    family: "neuron",
    vendor: "AWS",
    key: "inferentia2",
    name: "AWS Inferentia2",
    memoryBytes: 32 * GIB,
    memoryBandwidthGBps: 820,
    peakTflops: { f32: 47.5, f16: 190, bf16: 190, f8e4m3: 190 },
    arch: "inf2",
    match: /^AWS Inferentia2$/,
    source: "AWS Neuron documentation, Inferentia2 architecture",
  },
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
