/** Apple's chips: one GPU that shares the memory of its CPU. */

import { wordTable } from "../../core/index.ts";
import { GIB, type Part } from "./parts/part.ts";
import { APPLE_CHIPS } from "./parts.ts";
import { buildInventory, cpu, type HostSpec, type Preset } from "./preset-builder.ts";

/** The sizes of memory that each chip is sold with; a name without one means the last. */
const APPLE_MEMORY_GIB: Readonly<Record<string, readonly number[]>> = wordTable({
  m1: [8, 16],
  "m1-pro": [16, 32],
  "m1-max": [32, 64],
  "m1-ultra": [64, 128],
  m2: [8, 16, 24],
  "m2-pro": [16, 32],
  "m2-max": [32, 64, 96],
  "m2-ultra": [64, 128, 192],
  m3: [8, 16, 24],
  "m3-pro": [18, 36],
  "m3-max": [36, 48, 64, 96, 128],
  "m3-ultra": [96, 256, 512],
  m4: [16, 24, 32],
  "m4-pro": [24, 48, 64],
  "m4-max": [36, 48, 64, 128],
  m5: [16, 24, 32],
});

/** Their names. */
export const APPLE_PRESETS: readonly string[] = Object.keys(APPLE_MEMORY_GIB);

const APPLE_CORES: Readonly<Record<string, number>> = wordTable({
  m1: 8,
  "m1-pro": 10,
  "m1-max": 10,
  "m1-ultra": 20,
  m2: 8,
  "m2-pro": 12,
  "m2-max": 12,
  "m2-ultra": 24,
  m3: 8,
  "m3-pro": 12,
  "m3-max": 16,
  "m3-ultra": 32,
  m4: 10,
  "m4-pro": 14,
  "m4-max": 16,
  m5: 10,
});

/** Bandwidth of the largest variant where Apple sells one chip name with two (M3 Max 300/400, M4 Max 410/546). */
const APPLE_TOP: Readonly<Record<string, number>> = wordTable({ "m3-max": 400, "m4-max": 546 });

/** And of the smaller one, by the sizes of memory that only it is sold with. */
const APPLE_SMALLER: Readonly<Record<string, { readonly bandwidth: number; readonly sizes: readonly number[] }>> =
  wordTable({
    "m3-max": { bandwidth: 300, sizes: [36, 96] },
    "m4-max": { bandwidth: 410, sizes: [36] },
  });

/** Finds an Apple chip's preset by name, `m4-max` or `m3-ultra-512gb`; undefined when there is none. */
export function applePreset(text: string): Preset | undefined {
  const [, name = "", said] = /^(m\d(?:-[a-z]+)?)(?:-(\d{1,3})(?:gb|g)?)?$/.exec(text) ?? [];
  const sizes = Object.hasOwn(APPLE_MEMORY_GIB, name) ? APPLE_MEMORY_GIB[name] : undefined;
  const memoryGiB = said === undefined ? sizes?.at(-1) : sizes?.find((size) => size === Number(said));
  if (memoryGiB === undefined) return undefined;
  const chipName = `Apple ${name.replace(/^m/, "M").replace(/-(.)/, (_, c: string) => ` ${c.toUpperCase()}`)}`;
  const smaller = APPLE_SMALLER[name];
  const isSmaller = smaller?.sizes.includes(memoryGiB) === true;
  const bandwidth =
    (isSmaller ? smaller.bandwidth : APPLE_TOP[name]) ?? APPLE_CHIPS[chipName]?.memoryBandwidthGBps ?? 0;
  const source = "Apple technical specifications of the Macs that carry the chip";
  const chip: Part = {
    key: name,
    family: "apple-gpu",
    vendor: "Apple",
    name: chipName,
    memoryBytes: memoryGiB * GIB,
    memoryBandwidthGBps: bandwidth,
    peakTflops: {},
    arch: chipName,
    unifiedMemory: true,
    match: /^$/,
    source,
  };
  const host: HostSpec = {
    cpu: cpu(chipName, 1, APPLE_CORES[name] ?? 8, memoryGiB, bandwidth),
    part: chip,
    numDevices: 1,
    hostLink: { kind: "memory", bandwidthGBps: bandwidth },
    devicesPerPcieSwitch: 0,
  };
  return {
    name: text,
    summary: `${chipName}, ${memoryGiB} GB unified`,
    sources: [source],
    defaultNic: "1x10GbE",
    build: () => buildInventory(host, 1, text),
  };
}
