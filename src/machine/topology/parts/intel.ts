/**
 * Intel's GPUs. Peaks of 16-bit floats are those of the matrix engines (XMX): half of the published 8-bit rate where Intel
 * gives only that. Narrower patterns stand first.
 */
import { GIB, type Part } from "./part.ts";

const xmx = (i8: number, f32?: number) => ({ ...(f32 !== undefined && { f32 }), f16: i8 / 2, bf16: i8 / 2, i8 });

type Row = readonly [
  key: string,
  name: string,
  memoryGiB: number,
  GBps: number,
  peakTflops: Part["peakTflops"],
  arch: string,
  watts: number,
  match: RegExp,
  source?: string,
];

const ROWS: readonly Row[] = [
  [
    "max1550",
    "Intel Data Center GPU Max 1550",
    128,
    3276.8,
    { f64: 52.4, ...xmx(1678, 52.4) },
    "pvc",
    600,
    /\bMax 1550\b/,
    "Intel Data Center GPU Max Series technical overview",
  ],
  ["max1100", "Intel Data Center GPU Max 1100", 48, 1228.8, {}, "pvc", 300, /\bMax 1100\b/],
  ["flex170", "Intel Data Center GPU Flex 170", 16, 576, {}, "dg2", 150, /\bFlex 170\b/],
  ["arc-b580", "Intel Arc B580", 12, 456, xmx(233), "bmg", 190, /\bArc(?:\(TM\))? B580\b/],
  ["arc-b570", "Intel Arc B570", 10, 380, xmx(203), "bmg", 150, /\bArc(?:\(TM\))? B570\b/],
  [
    "arc-pro-b60",
    "Intel Arc Pro B60",
    24,
    456,
    xmx(197),
    "bmg",
    200,
    /\bArc(?:\(TM\))? Pro B60\b/,
    "Intel Arc Pro B-Series product brief",
  ],
  [
    "arc-pro-b50",
    "Intel Arc Pro B50",
    16,
    224,
    xmx(170),
    "bmg",
    70,
    /\bArc(?:\(TM\))? Pro B50\b/,
    "Intel Arc Pro B-Series product brief",
  ],
  [
    "arc-a770",
    "Intel Arc A770",
    16,
    560,
    xmx(262),
    "dg2",
    225,
    /\bArc(?:\(TM\))? A770\b/,
    "Intel Arc A770 16 GB product specifications (ark.intel.com)",
  ],
  ["arc-a750", "Intel Arc A750", 8, 512, xmx(229), "dg2", 225, /\bArc(?:\(TM\))? A750\b/],
  ["arc-a380", "Intel Arc A380", 6, 186, {}, "dg2", 75, /\bArc(?:\(TM\))? A380\b/],
];

export const INTEL_PARTS: readonly Part[] = ROWS.map(
  ([key, name, memoryGiB, memoryBandwidthGBps, peakTflops, arch, powerLimitWatts, match, source]) => ({
    family: "intel-gpu",
    vendor: "Intel",
    key,
    name,
    memoryBytes: memoryGiB * GIB,
    memoryBandwidthGBps,
    peakTflops,
    arch,
    powerLimitWatts,
    match,
    source: source ?? `${name} product specifications (ark.intel.com)`,
  }),
);
