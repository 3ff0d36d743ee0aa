/** Small systems of one chip: a GPU that shares the memory of its CPU. Apple's stand in apple-presets.ts. */
import { wordTable } from "../../core/index.ts";
import { type CpuSpec, cpu, part } from "./preset-builder.ts";
import type { Entry } from "./preset-entry.ts";

function oneChip(key: string, summary: string, host: CpuSpec, kind: "memory" | "nvlink-c2c", nic: string): Entry {
  const chip = part(key);
  const bandwidthGBps = chip.memoryBandwidthGBps;
  return {
    summary,
    sources: [chip.source],
    nic,
    host: { cpu: host, part: chip, numDevices: 1, hostLink: { kind, bandwidthGBps }, devicesPerPcieSwitch: 0 },
  };
}

const jetson = (key: string, name: string, cores: number, memoryGiB: number, GBps: number, nic: string) =>
  oneChip(
    key,
    `one ${name} module, memory shared with its CPU`,
    cpu(`NVIDIA ${name} (${cores} Arm cores)`, 1, cores, memoryGiB, GBps),
    "memory",
    nic,
  );

export const UNIFIED_PRESETS: Readonly<Record<string, Entry>> = wordTable({
  "dgx-spark": oneChip(
    "gb10",
    "one GB10 with 128 GB of memory shared with its CPU",
    cpu("NVIDIA GB10 (10x Cortex-X925, 10x Cortex-A725)", 1, 20, 128, 273),
    "nvlink-c2c",
    "1x200GbE",
  ),
  "strix-halo": oneChip(
    "strix-halo",
    "one Ryzen AI Max+ 395 with 128 GB of memory, 96 GB of it for its GPU",
    cpu("AMD Ryzen AI Max+ 395", 1, 16, 128, 256),
    "memory",
    "1x10GbE",
  ),
  "jetson-orin-nano": jetson("jetson-orin-nano", "Jetson Orin Nano 8GB", 6, 8, 102, "1x1GbE"),
  "jetson-orin-nx": jetson("jetson-orin-nx", "Jetson Orin NX 16GB", 8, 16, 102.4, "1x1GbE"),
  "jetson-agx-orin": jetson("jetson-agx-orin", "Jetson AGX Orin 64GB", 12, 64, 204.8, "1x10GbE"),
  "jetson-agx-thor": jetson("jetson-agx-thor", "Jetson AGX Thor", 14, 128, 273, "4x25GbE"),
});
