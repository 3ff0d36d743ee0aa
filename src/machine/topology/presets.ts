/**
 * Known systems as data. Device figures come from `parts.ts`; link rates are per direction, as the driver reports them
 * (NVLink 3/4/5: 25, 26.562 and 53.125 GB/s a link). The host CPU is the one of the reference system, or a common one
 * where the board is sold without. Each preset says its sources.
 */
import { InvalidArgumentError, wordTable } from "../../core/index.ts";
import { APPLE_PRESETS, applePreset } from "./apple-presets.ts";
import { CARD_PRESETS, cards } from "./card-presets.ts";
import { CLOUD_INSTANCES, cloudInstance } from "./cloud-instances.ts";
import { readPartCount } from "./hardware-names.ts";
import type { Inventory } from "./inventory.ts";
import { LINKED_PRESETS } from "./linked-presets.ts";
import type { Part } from "./parts.ts";
import {
  buildInventory,
  type CpuSpec,
  cpu,
  type Fabric,
  fullMesh,
  type HostSpec,
  type Preset,
  part,
  pcie,
  torus,
} from "./preset-builder.ts";
import { CPUS, type Entry, nvswitched } from "./preset-entry.ts";
import { tpuPreset } from "./tpu-presets.ts";
import { UNIFIED_PRESETS } from "./unified-presets.ts";

export type { Preset };

function hgx(key: string, host: CpuSpec, gen: number, fabric: Fabric, nic: string, source: string): Entry {
  const chip = part(key);
  return {
    summary: `8x ${chip.name}, NVSwitch`,
    sources: [chip.source, source],
    nic,
    host: { cpu: host, part: chip, numDevices: 8, hostLink: pcie(gen), devicesPerPcieSwitch: gen < 5 ? 2 : 1, fabric },
  };
}

function mesh8(key: string, host: CpuSpec, fabric: Fabric, nic: string, source: string): Entry {
  const chip = part(key);
  return {
    summary: `8x ${chip.name}, fully connected`,
    sources: [chip.source, source],
    nic,
    host: { cpu: host, part: chip, numDevices: 8, hostLink: pcie(5), devicesPerPcieSwitch: 1, fabric },
  };
}

/** A rack of 18 trays with four GPUs and two Grace CPUs each; every GPU reaches its Grace by NVLink-C2C. */
function nvl72(key: string, source: string): Entry {
  const chip = part(key);
  return {
    summary: `72x ${chip.name} in one NVLink domain, 18 hosts`,
    sources: [chip.source, source],
    nic: key === "gb300" ? "4xXDR" : "4xNDR",
    host: {
      cpu: cpu("2x NVIDIA Grace", 2, 72, 960, 1024),
      part: chip,
      numDevices: 4,
      hostLink: { kind: "nvlink-c2c", bandwidthGBps: 225 },
      devicesPerPcieSwitch: 0,
    },
    hosts: 18,
    fabric: nvswitched(72, 5, 18, 53.125, "18x NVLink Switch (9 trays)"),
  };
}

const TABLE: Readonly<Record<string, Entry>> = wordTable({
  "hgx-a100-8": hgx(
    "a100-80",
    CPUS.rome,
    4,
    nvswitched(8, 3, 12, 25, "6x NVSwitch 2"),
    "8xHDR",
    "NVIDIA DGX A100 User Guide",
  ),
  "hgx-h100-8": hgx(
    "h100",
    CPUS.sapphireRapids,
    5,
    nvswitched(8, 4, 18, 26.562, "4x NVSwitch 3"),
    "8xNDR",
    "NVIDIA DGX H100/H200 User Guide",
  ),
  "hgx-h200-8": hgx(
    "h200",
    CPUS.sapphireRapids,
    5,
    nvswitched(8, 4, 18, 26.562, "4x NVSwitch 3"),
    "8xNDR",
    "NVIDIA DGX H100/H200 User Guide",
  ),
  "hgx-b200-8": hgx(
    "b200",
    CPUS.emeraldRapids,
    5,
    nvswitched(8, 5, 18, 53.125, "2x NVSwitch 4"),
    "8xNDR",
    "NVIDIA DGX B200 User Guide",
  ),
  "hgx-b300-8": hgx(
    "b300",
    CPUS.graniteRapids,
    6,
    nvswitched(8, 5, 18, 53.125, "2x NVSwitch 4"),
    "8xXDR",
    "NVIDIA DGX B300 User Guide",
  ),
  "gb200-nvl72": nvl72("gb200", "NVIDIA GB200 NVL72 data sheet"),
  "gb300-nvl72": nvl72("gb300", "NVIDIA GB300 NVL72 data sheet"),
  ...UNIFIED_PRESETS,
  gh200: {
    summary: "one Grace Hopper superchip, 96 GB of HBM3",
    sources: [part("gh200-96").source],
    nic: "1xNDR",
    host: {
      cpu: cpu("NVIDIA Grace", 1, 72, 480, 512),
      part: part("gh200-96"),
      numDevices: 1,
      hostLink: { kind: "nvlink-c2c", bandwidthGBps: 450 },
      devicesPerPcieSwitch: 0,
    },
  },
  "mi300x-8": mesh8(
    "mi300x",
    CPUS.genoa,
    { kind: "xgmi", generation: 4, links: fullMesh(8, 1, 64) },
    "8xNDR",
    "AMD Instinct MI300X platform data sheet: 128 GB/s a link, both directions",
  ),
  "mi325x-8": mesh8(
    "mi325x",
    CPUS.turin,
    { kind: "xgmi", generation: 4, links: fullMesh(8, 1, 64) },
    "8xNDR",
    "AMD Instinct MI325X platform data sheet: 128 GB/s a link, both directions",
  ),
  "mi355x-8": mesh8(
    "mi355x",
    CPUS.turin,
    { kind: "xgmi", generation: 4, links: fullMesh(8, 1, 76.8) },
    "8xNDR",
    "AMD Instinct MI355X platform data sheet: 153.6 GB/s a link, both directions",
  ),
  "gaudi2-8": mesh8(
    "gaudi2",
    CPUS.iceLake,
    { kind: "gaudi-roce", links: fullMesh(8, 3, 37.5) },
    "3x100GbE",
    "HLS-Gaudi2 server: 21 of 24 100 GbE ports join the cards, 3 a pair",
  ),
  "gaudi3-8": mesh8(
    "gaudi3",
    CPUS.sapphireRapids,
    { kind: "gaudi-roce", links: fullMesh(8, 3, 75) },
    "3x200GbE",
    "Gaudi 3 universal baseboard: 21 of 24 200 GbE ports join the cards, 3 a pair",
  ),
  "trn1.32xlarge": neuron(
    "trainium1",
    16,
    [4, 4],
    48,
    512,
    "8x100GbE",
    "AWS EC2 Trn1: NeuronLink-v2, 16 chips in a 4x4 torus, 384 GB/s a chip and direction",
  ),
  "trn2.48xlarge": neuron(
    "trainium2",
    16,
    [4, 4],
    128,
    2048,
    "16x200GbE",
    "AWS EC2 Trn2: NeuronLink-v3, 16 chips in a 4x4 torus, 1 TB/s a chip",
  ),
  "inf2.48xlarge": neuron(
    "inferentia2",
    12,
    [12],
    96,
    768,
    "1x100GbE",
    "AWS EC2 Inf2: NeuronLink-v2, 12 chips in a ring, 192 GB/s",
  ),
  ...LINKED_PRESETS,
  ...CARD_PRESETS,
});

/** Parts whose reference board joins eight (or fewer) by a fabric, and that board. */
const BOARDS: Readonly<Record<string, string>> = wordTable({
  "a100-80": "hgx-a100-8",
  h100: "hgx-h100-8",
  h200: "hgx-h200-8",
  b200: "hgx-b200-8",
  b300: "hgx-b300-8",
  "v100-16": "dgx1-v100",
  mi250x: "mi250x-8",
  mi250: "mi250-16",
  mi300x: "mi300x-8",
  mi325x: "mi325x-8",
  mi355x: "mi355x-8",
  gaudi2: "gaudi2-8",
  gaudi3: "gaudi3-8",
  gb10: "dgx-spark",
  ...Object.fromEntries(
    Object.keys(UNIFIED_PRESETS)
      .filter((name) => name !== "dgx-spark")
      .map((name) => [name, name]),
  ),
  trainium1: "trn1.32xlarge",
  trainium2: "trn2.48xlarge",
  inferentia2: "inf2.48xlarge",
  l40s: "l40s-8",
  a10g: "a10g-4",
  rtx4090: "rtx4090-2",
  rtx5090: "rtx5090-2",
});

/** Boards like a known one, with another part on it. */
const LIKE: Readonly<Record<string, string>> = wordTable({
  "a100-40": "hgx-a100-8",
  a800: "hgx-a100-8",
  "v100-32": "dgx1-v100",
  h20: "hgx-h100-8",
  h800: "hgx-h100-8",
});

/** Parts with fewer NVLinks than their board's: both have 400 GB/s (NVIDIA A800 and H800 data sheets). */
const FABRICS: Readonly<Record<string, Fabric>> = wordTable({
  a800: nvswitched(8, 3, 8, 25, "6x NVSwitch 2"),
  h800: nvswitched(8, 4, 8, 26.562, "4x NVSwitch 3"),
});

function entryOf(chip: Part): Entry {
  const board = TABLE[BOARDS[chip.key] ?? LIKE[chip.key] ?? ""];
  if (board !== undefined) {
    const fabric = FABRICS[chip.key] ?? board.host.fabric;
    return { ...board, host: { ...board.host, part: chip, ...(fabric !== undefined && { fabric }) } };
  }
  if (chip.key === "gb200" || chip.key === "gb300") {
    const rack = nvl72(chip.key, `NVIDIA ${chip.key.toUpperCase()} NVL72 data sheet`);
    return { ...rack, hosts: 1, host: { ...rack.host, fabric: nvswitched(4, 5, 18, 53.125, "NVLink Switch") } };
  }
  const desktop = /GeForce|TITAN|RX \d|Arc |Radeon/.test(chip.name);
  const isOld = chip.family === "nvidia-gpu" && Number(chip.arch) < 8;
  const host = desktop ? cpu("AMD Ryzen 9 7950X", 1, 16, 64, 83.2) : CPUS.genoa;
  const generation = isOld ? 3 : !desktop && Number(chip.arch) >= 9 ? 5 : 4;
  return cards(chip.key, 8, host, generation, "a host of its PCIe generation");
}

/** A part by name, with a count: one device of it, up to eight in one machine. */
function partPreset(name: string): Preset | undefined {
  // China's parts come on the boards of those that they stand for.
  const found = readPartCount(name.replace(/^hgx-(?=(?:a800|h800|h20)-\d+$)/, ""));
  if (found === undefined) return undefined;
  const { part: chip, count } = found;
  const entry = entryOf(chip);
  const { fabric, numDevices } = entry.host;
  if (count > Math.max(numDevices, fabric === undefined ? 16 : numDevices)) return undefined;
  const links = fabric?.links.filter((link) => link.a < count && (link.b === "switch" || link.b < count));
  const host: HostSpec = {
    ...entry.host,
    numDevices: count,
    numSlots: Math.max(count, numDevices),
    ...(fabric !== undefined && { fabric: { ...fabric, links: links ?? [] } }),
  };
  return {
    name,
    summary: `${count}x ${chip.name}`,
    sources: entry.sources,
    defaultNic: entry.nic,
    build: () => buildInventory(host, 1, name, host.fabric),
  };
}

/** `16x h100`: as many machines as a count of devices fills; alike on all of them. Undefined when it names no part. */
export function partMachines(text: string): { readonly preset: string; readonly hosts: number } | undefined {
  const found = readPartCount(text);
  if (found === undefined) return undefined;
  const { part: chip, count } = found;
  const { numDevices, fabric } = entryOf(chip).host;
  const perHost = fabric === undefined ? Math.max(numDevices, 8) : numDevices;
  if (count <= (fabric === undefined ? 16 : numDevices)) return { preset: `${count}x${chip.key}`, hosts: 1 };
  for (let hosts = Math.ceil(count / perHost); hosts <= count; hosts++) {
    if (count % hosts === 0) return { preset: `${count / hosts}x${chip.key}`, hosts };
  }
  return undefined;
}

function neuron(
  key: string,
  num: number,
  shape: number[],
  cores: number,
  memoryGiB: number,
  nic: string,
  source: string,
): Entry {
  const chip = part(key);
  // One direction of one NeuronLink: what a chip has in one direction, spread over its neighbours.
  const perLinkGBps = { trainium1: 96, trainium2: 128, inferentia2: 96 }[key] ?? 48;
  const links = torus(
    shape,
    shape.map(() => true),
    perLinkGBps,
  );
  return {
    summary: `${num}x ${chip.name}, NeuronLink ${shape.join("x")} ${shape.length > 1 ? "torus" : "ring"}`,
    sources: [chip.source, source],
    nic,
    host: {
      cpu: cpu("2x Intel Xeon (AWS)", 2, cores / 2, memoryGiB, 409.6),
      part: chip,
      numDevices: num,
      hostLink: pcie(4),
      devicesPerPcieSwitch: 2,
      fabric: { kind: "neuronlink", links },
    },
  };
}

const ALIASES: Readonly<Record<string, string>> = wordTable({
  "dgx-a100": "hgx-a100-8",
  "dgx-h100": "hgx-h100-8",
  "dgx-h200": "hgx-h200-8",
  "dgx-b200": "hgx-b200-8",
  "dgx-b300": "hgx-b300-8",
});

/** The names that `preset` knows; TPU slices stand for their families. */
export const PRESET_NAMES: readonly string[] = [
  ...Object.keys(TABLE),
  ...Object.keys(ALIASES),
  ...Object.keys(CLOUD_INSTANCES),
  "tpu-v4-8",
  "tpu-v5e-8",
  "tpu-v5p-8",
  "tpu-v6e-8",
  "tpu-v7x-4",
  ...APPLE_PRESETS,
];

/** Finds a preset by name; undefined when there is none. A family alone (`l40s`, or `l4-4`) takes any count of cards. */
export function findPreset(name: string): Preset | undefined {
  const instance = cloudInstance(name);
  if (instance !== undefined) {
    const board = findPreset(instance.preset);
    if (board === undefined) throw new InvalidArgumentError("preset", instance.preset, "a board that is known");
    const build = () => {
      const inventory = board.build();
      // What it is rented as decides its price.
      return { ...inventory, environment: { ...inventory.environment, instance: instance.name } };
    };
    return {
      ...board,
      name,
      summary: `${board.summary}, ${instance.nic}`,
      sources: [...board.sources, instance.source],
      defaultNic: instance.nic,
      build,
    };
  }
  const canonical = (Object.hasOwn(ALIASES, name) ? ALIASES[name] : undefined) ?? name;
  const entry = Object.hasOwn(TABLE, canonical) ? TABLE[canonical] : countedCards(canonical);
  if (entry === undefined) return tpuPreset(canonical) ?? applePreset(canonical) ?? partPreset(canonical);
  return {
    name,
    summary: entry.summary,
    sources: entry.sources,
    defaultNic: entry.nic,
    build: () => buildInventory(entry.host, entry.hosts ?? 1, name, entry.fabric ?? entry.host.fabric),
  };
}

/** `l40s-4`, `hgx-h100-4`: the same system with the first of its devices alone; cards go to 16, as sockets fill up. */
function countedCards(name: string): Entry | undefined {
  const match = /^(.*?)(?:-(\d{1,2}))?$/.exec(name);
  const num = Number(match?.[2] ?? 1);
  const sizes = Object.entries(TABLE)
    .filter(
      ([known, { fixed, hosts }]) => known.replace(/-\d{1,2}$/, "") === match?.[1] && !fixed && hosts === undefined,
    )
    .map(([, entry]) => entry)
    .sort((a, b) => a.host.numDevices - b.host.numDevices);
  const entry = sizes.find(({ host }) => host.numDevices >= num) ?? sizes.at(-1);
  if (entry === undefined || num < 1 || num > 16) return undefined;
  const { fabric } = entry.host;
  if (fabric !== undefined && num > entry.host.numDevices) return undefined;
  const links = fabric?.links.filter((l) => l.a < num && (l.b === "switch" || l.b < num));
  return {
    ...entry,
    summary: `${num} of ${entry.summary}`,
    host: {
      ...entry.host,
      numDevices: num,
      numSlots: Math.max(num, entry.host.numDevices),
      ...(fabric !== undefined && { fabric: { ...fabric, links: links ?? [] } }),
    },
  };
}

/**
 * Gives the inventory of a known system, such as `hgx-h100-8`, `gb200-nvl72`, `tpu-v5e-16` or `m4-max`.
 * @throws InvalidArgumentError naming the presets
 * @example
 * presetInventory("hgx-h100-8").devices.filter((d) => d.family !== "cpu").length // 8
 */
export function presetInventory(name: string): Inventory {
  const preset = findPreset(name);
  if (preset === undefined) throw new InvalidArgumentError("preset", name, `one of ${PRESET_NAMES.join(", ")}`);
  return preset.build();
}
