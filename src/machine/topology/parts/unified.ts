/** Small systems whose GPU shares the memory of its CPU: Jetson modules and AMD's Strix Halo. */
import { GIB, MIB, type Part } from "./part.ts";

const JETSON = { family: "nvidia-gpu", vendor: "NVIDIA", unifiedMemory: true } as const;
/** Dense rates of a module's tensor cores: half of the sparse 8-bit figure that is published, less its DLAs. */
const orin = (f32: number, i8: number) => ({ f32, f16: i8 / 2, bf16: i8 / 2, i8 });

export const UNIFIED_PARTS: readonly Part[] = [
  {
    ...JETSON,
    key: "jetson-orin-nano",
    name: "NVIDIA Jetson Orin Nano 8GB",
    memoryBytes: 7620 * MIB,
    memoryBandwidthGBps: 102,
    peakTflops: orin(2.1, 33.5),
    arch: "8.7",
    powerLimitWatts: 25,
    match: /Orin Nano/,
    source: "NVIDIA Jetson Orin Nano Super data sheet: 67 sparse TOPS; Linux reports 7.4 GiB",
  },
  {
    ...JETSON,
    key: "jetson-orin-nx",
    name: "NVIDIA Jetson Orin NX 16GB",
    memoryBytes: 15_650 * MIB,
    memoryBandwidthGBps: 102.4,
    peakTflops: orin(1.9, 30),
    arch: "8.7",
    powerLimitWatts: 25,
    match: /Orin NX/,
    source: "NVIDIA Jetson Orin NX data sheet: 60 sparse TOPS of its GPU; Linux reports 15.3 GiB",
  },
  {
    ...JETSON,
    key: "jetson-agx-orin",
    name: "NVIDIA Jetson AGX Orin 64GB",
    memoryBytes: 62_800 * MIB,
    memoryBandwidthGBps: 204.8,
    peakTflops: orin(5.3, 85),
    arch: "8.7",
    powerLimitWatts: 60,
    match: /AGX Orin/,
    source: "NVIDIA Jetson AGX Orin data sheet: 170 sparse TOPS of its GPU; Linux reports 61.3 GiB",
  },
  {
    ...JETSON,
    key: "jetson-agx-thor",
    name: "NVIDIA Jetson AGX Thor",
    memoryBytes: 125_700 * MIB,
    memoryBandwidthGBps: 273,
    peakTflops: { f32: 8, f16: 129, bf16: 129, f8e4m3: 258, f8e5m2: 258, i8: 258 },
    arch: "11.0",
    powerLimitWatts: 130,
    match: /AGX Thor|Jetson T5000/,
    source: "NVIDIA Jetson T5000 data sheet: 2070 sparse FP4 TFLOPS",
  },
  {
    family: "amd-gpu",
    vendor: "AMD",
    unifiedMemory: true,
    key: "strix-halo",
    name: "AMD Radeon 8060S (Ryzen AI Max+ 395)",
    memoryBytes: 96 * GIB,
    installedBytes: 128 * GIB,
    memoryBandwidthGBps: 256,
    peakTflops: { f32: 29.7, f16: 59.4, bf16: 59.4, i8: 59.4 },
    arch: "gfx1151",
    powerLimitWatts: 120,
    match: /Radeon 8060S|Strix Halo/,
    source: "AMD Ryzen AI Max+ 395 specifications: of its 128 GB up to 96 GB are the GPU's, LPDDR5X-8000 on 256 bits",
  },
];
