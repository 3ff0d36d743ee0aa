/**
 * The NUMA nodes of sysfs. A node without CPUs and without memory is a place that the firmware keeps free (a Grace Hopper
 * has eight of them for its GPU) and is left out; so is one whose folder leads out of a recorded root.
 */

import { count, cpuList, line, memory } from "./field-readers.ts";
import type { FileSystem } from "./machine.ts";
import { defined } from "./pci.ts";

export interface NumaNode {
  readonly id: number;
  readonly cpus: number;
  /** As the kernel writes it: `0-31,64-95`. Absent for memory without CPUs. */
  readonly cpuList?: string;
  readonly memoryBytes?: number;
  readonly freeBytes?: number;
  /** To each of the nodes of the list, in its order. */
  readonly distances?: readonly number[];
  readonly readBandwidthMBps?: number;
}

const FOLDER = "/sys/devices/system/node";

/** Reads the nodes that have CPUs or memory. */
export async function numaNodes({ files }: { readonly files: FileSystem }): Promise<NumaNode[]> {
  const names = (await files.list(FOLDER)).filter((name) => /^node\d{1,4}$/.test(name));
  const all = (await Promise.all(names.map((name) => readNode(files, name)))).flatMap((node) => node ?? []);
  const isThere = all.map((node) => node.cpus > 0 || (node.memoryBytes ?? 0) > 0);
  return all
    .map(({ distances, ...node }) => {
      const kept = distances?.length === all.length ? distances.filter((_, i) => isThere[i]) : distances;
      return { ...node, ...defined({ distances: kept }) };
    })
    .filter((_, i) => isThere[i]);
}

async function readNode(files: FileSystem, name: string): Promise<NumaNode | undefined> {
  if ((await files.realPath(`${FOLDER}/${name}`)) === undefined) return undefined;
  const read = (file: string, cap: number) => files.readText(`${FOLDER}/${name}/${file}`, cap);
  const [cpus, info, distance, bandwidth] = await Promise.all([
    read("cpulist", 4096),
    read("meminfo", 8192),
    read("distance", 4096),
    read("access0/initiators/read_bandwidth", 64),
  ]);
  const bytes = (field: string) => {
    const kib = count(new RegExp(`${field}:\\s*(\\d+) kB`).exec(info ?? "")?.[1]);
    return memory(kib === undefined ? undefined : kib * 1024);
  };
  const distances = (distance ?? "")
    .trim()
    .split(/\s+/)
    .flatMap((d) => count(d) ?? []);
  const numCpus = cpuList(cpus).length;
  return {
    id: Number(name.slice(4)),
    cpus: numCpus,
    ...defined({
      cpuList: numCpus > 0 ? line(cpus ?? "") : undefined,
      memoryBytes: bytes("MemTotal"),
      freeBytes: bytes("MemFree"),
      distances: distances.length > 0 ? distances : undefined,
      readBandwidthMBps: count(bandwidth) || undefined,
    }),
  };
}

/** A node's facts without those that change from call to call. */
export function numaFacts({ readBandwidthMBps: _rate, freeBytes: _free, distances, ...node }: NumaNode) {
  return { ...node, ...(distances !== undefined && { distances: [...distances] }) };
}
