/**
 * AMD's compute topology in sysfs, /sys/class/kfd/kfd/topology (kernel: amdkfd's kfd_topology.c and the CRAT
 * definitions): per node its architecture, memory, and the links to other nodes with their bandwidth. This is what ROCm's
 * own tools read.
 */

import { count, memory } from "../field-readers.ts";
import type { FileSystem } from "../machine.ts";
import { defined } from "../pci.ts";

/** Most nodes: 8 packages of 8 partitions each, and their CPUs. */
const MAX_NODES = 192;
/** CRAT_IOLINK_TYPE_XGMI */
const LINK_XGMI = 11;
/**
 * KFD_CRAT_XGMI_WEIGHT: the weight of one hop. The driver states a "link" between any two GPUs of a hive; one of weight
 * 30 is a way over a third GPU, no wire of its own.
 */
export const XGMI_HOP_WEIGHT = 15;

export interface KfdNode {
  readonly node: number;
  readonly gfx: string;
  readonly pciAddress: string;
  /** Which partition of the package, from the low bits of the location. */
  readonly partition: number;
  readonly memoryBytes?: number;
  readonly uniqueId?: string;
  readonly isApu: boolean;
  readonly links: readonly { readonly to: number; readonly count?: number; readonly bandwidthGBps?: number }[];
}

/** Reads the GPU nodes. */
export async function readKfd(files: FileSystem): Promise<KfdNode[]> {
  const folder = "/sys/class/kfd/kfd/topology/nodes";
  const names = (await files.list(folder)).filter((name) => /^\d{1,4}$/.test(name)).slice(0, MAX_NODES);
  const nodes = await Promise.all(names.map((name) => readNode(files, `${folder}/${name}`, Number(name))));
  return nodes.flatMap((node) => node ?? []);
}

/** The lines `name value` of a properties file. */
function properties(text: string | undefined): Map<string, number> {
  const found = new Map<string, number>();
  for (const row of (text ?? "").split("\n").slice(0, 256)) {
    const match = /^([a-z_0-9]{1,40}) (\d{1,20})$/.exec(row.trim());
    if (match !== null) found.set(match[1] ?? "", Number(match[2]));
  }
  return found;
}

async function readNode(files: FileSystem, folder: string, node: number): Promise<KfdNode | undefined> {
  const own = properties(await files.readText(`${folder}/properties`, 16_384));
  const version = own.get("gfx_target_version") ?? 0;
  if (version === 0 || (own.get("simd_count") ?? 0) === 0) return undefined;
  const location = own.get("location_id") ?? 0;
  const hexa = (value: number, width: number) => value.toString(16).padStart(width, "0");
  const unique = own.get("unique_id") ?? 0;
  const [banks, linkNames] = await Promise.all([files.list(`${folder}/mem_banks`), files.list(`${folder}/io_links`)]);
  const sizes = await Promise.all(
    banks
      .slice(0, 16)
      .map(async (bank) => properties(await files.readText(`${folder}/mem_banks/${bank}/properties`, 1024))),
  );
  // heap_type 1 and 2 are the device's own memory, visible to the host or not.
  const vram = sizes
    .filter((bank) => [1, 2].includes(bank.get("heap_type") ?? 0))
    .reduce((sum, bank) => sum + (bank.get("size_in_bytes") ?? 0), 0);
  const links = await Promise.all(
    linkNames
      .slice(0, MAX_NODES)
      .map(async (name) => properties(await files.readText(`${folder}/io_links/${name}/properties`, 1024))),
  );
  return {
    node,
    gfx: gfxName(version),
    pciAddress: `${hexa(own.get("domain") ?? 0, 4)}:${hexa((location >> 8) & 0xff, 2)}:${hexa((location >> 3) & 0x1f, 2)}.0`,
    partition: location & 7,
    isApu: (own.get("cpu_cores_count") ?? 0) > 0,
    ...defined({
      memoryBytes: memory(vram > 0 ? vram : undefined),
      uniqueId: unique > 0 && Number.isSafeInteger(unique) ? unique.toString(16) : undefined,
    }),
    links: directLinks(links).map((link) => {
      // MB/s of one link, and of all links of the pair together.
      const [one, all] = [link.get("min_bandwidth") ?? 0, link.get("max_bandwidth") ?? 0];
      return {
        to: link.get("node_to") ?? -1,
        ...defined({
          count: one > 0 && all >= one ? Math.round(all / one) : undefined,
          bandwidthGBps: all > 0 ? all / 1000 : undefined,
        }),
      };
    }),
  };
}

/**
 * The links that are wires. Beside those of more weight than a hop, ways over other GPUs are what the driver counts no
 * links for, and so states no bandwidth, while it states one for others of the same node.
 */
function directLinks(links: readonly ReadonlyMap<string, number>[]): ReadonlyMap<string, number>[] {
  const near = links.filter(
    (link) =>
      link.get("type") === LINK_XGMI &&
      link.get("node_to") !== undefined &&
      (link.get("weight") ?? XGMI_HOP_WEIGHT) <= XGMI_HOP_WEIGHT,
  );
  const wired = near.filter((link) => (link.get("max_bandwidth") ?? 0) > 0);
  return wired.length > 0 ? wired : near;
}

/** 90402 is gfx942, 90010 gfx90a, 110001 gfx1101: the stepping is hexadecimal. */
function gfxName(version: number): string {
  return `gfx${Math.floor(version / 10_000)}${Math.floor(version / 100) % 100}${(version % 100).toString(16)}`;
}

/** Sizes that the driver states: its own memory, and the main memory that it may map for the GPU (GTT). */
export interface DriverMemory {
  readonly vramBytes?: number;
  readonly vramUsedBytes?: number;
  readonly gttBytes?: number;
  readonly gttUsedBytes?: number;
}

/** Reads the driver's memory figures of one card. */
export async function readDriverMemory(files: FileSystem, folder: string): Promise<DriverMemory> {
  const [vramBytes, vramUsedBytes, gttBytes, gttUsedBytes] = await Promise.all(
    ["vram_total", "vram_used", "gtt_total", "gtt_used"].map(async (name) =>
      memory(count(await files.readText(`${folder}/mem_info_${name}`, 64))),
    ),
  );
  return defined({ vramBytes, vramUsedBytes, gttBytes, gttUsedBytes });
}
