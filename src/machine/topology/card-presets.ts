/** Systems of PCIe cards. With more than one socket the cards fill the first one's slots first. */

import { wordTable } from "../../core/index.ts";
import type { CpuSpec } from "./preset-builder.ts";
import { cpu, part, pcie } from "./preset-builder.ts";
import { CPUS, type Entry } from "./preset-entry.ts";

/** A host of equal cards. */
export function cards(key: string, num: number, host: CpuSpec, generation: number, source: string, width = 16): Entry {
  const chip = part(key);
  return {
    summary: `${num}x ${chip.name}, PCIe only`,
    sources: [chip.source, source],
    nic: "1x100GbE",
    host: { cpu: host, part: chip, numDevices: num, hostLink: pcie(generation, width), devicesPerPcieSwitch: 0 },
  };
}

export const CARD_PRESETS: Readonly<Record<string, Entry>> = wordTable({
  l4: cards("l4", 1, cpu("Intel Xeon (8 vCPU)", 1, 4, 32, 100), 4, "Google Compute Engine g2-standard-8"),
  "l40s-8": cards("l40s", 8, CPUS.genoa, 4, "NVIDIA OVX reference configuration"),
  "a10g-4": cards("a10g", 4, cpu("AMD EPYC 7R32", 1, 48, 384, 204.8), 4, "AWS EC2 g5.24xlarge"),
  "rtx4090-2": cards(
    "rtx4090",
    2,
    cpu("AMD Ryzen 9 7950X", 1, 16, 64, 83.2),
    4,
    "two cards on a desktop board, x8 each",
    8,
  ),
  "rtx5090-2": cards(
    "rtx5090",
    2,
    cpu("AMD Ryzen 9 9950X", 1, 16, 64, 89.6),
    5,
    "two cards on a desktop board, x8 each",
    8,
  ),
  "rtx4090-4": cards("rtx4090", 4, cpu("AMD EPYC 7313P", 1, 16, 256, 204.8), 4, "four cards on one socket, x16 each"),
  "rtx4090-8": cards("rtx4090", 8, CPUS.milan, 4, "eight cards on two sockets, x16 each"),
  "a100-pcie-8": cards("a100-80-pcie", 8, CPUS.milan, 4, "NVIDIA-Certified server, eight PCIe 4 slots"),
  "h100-pcie-8": cards("h100-pcie", 8, CPUS.sapphireRapids, 5, "NVIDIA-Certified server, eight PCIe 5 slots"),
  "v100-pcie-8": cards("v100-pcie", 8, CPUS.skylake, 3, "server with eight PCIe 3 slots"),
});
