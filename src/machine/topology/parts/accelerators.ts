/** Accelerators that are no GPUs: Gaudi, TPUs, Trainium and Inferentia. Narrower patterns stand first. */
import { GIB, type Part, partsOf } from "./part.ts";

type TpuRow = readonly [
  arch: string,
  memoryGiB: number,
  GBps: number,
  bf16: number,
  i8: number,
  match: RegExp,
  f8?: number,
];
const TPUS: readonly TpuRow[] = [
  ["v4", 32, 1228, 275, 275, /^TPU v4$/],
  ["v5e", 16, 819, 197, 393, /^TPU v5(e| lite)$/],
  ["v5p", 95, 2765, 459, 918, /^TPU v5p$/],
  ["v6e", 32, 1640, 918, 1836, /^TPU v6(e| lite)$/],
  // Ironwood multiplies 8-bit floats, not integers.
  ["v7x", 192, 7380, 2307, 0, /^TPU ?(v7x?|7x)$/, 4614],
];

export const ACCELERATOR_PARTS: readonly Part[] = [
  ...partsOf({ family: "gaudi", vendor: "Intel" }, [
    {
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
  ]),
  ...TPUS.map(([arch, memoryGiB, memoryBandwidthGBps, bf16, i8, match, f8 = 0]) => ({
    family: "tpu" as const,
    vendor: "Google",
    key: `tpu-${arch}`,
    name: `TPU ${arch}`,
    memoryBytes: memoryGiB * GIB,
    memoryBandwidthGBps,
    peakTflops: { bf16, ...(i8 > 0 && { i8 }), ...(f8 > 0 && { f8e4m3: f8, f8e5m2: f8 }) },
    arch,
    match,
    source: `Google Cloud TPU ${arch} documentation`,
  })),
  ...partsOf({ family: "neuron", vendor: "AWS" }, [
    {
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
      key: "inferentia2",
      name: "AWS Inferentia2",
      memoryBytes: 32 * GIB,
      memoryBandwidthGBps: 820,
      peakTflops: { f32: 47.5, f16: 190, bf16: 190, f8e4m3: 190 },
      arch: "inf2",
      match: /^AWS Inferentia2$/,
      source: "AWS Neuron documentation, Inferentia2 architecture",
    },
  ]),
];
