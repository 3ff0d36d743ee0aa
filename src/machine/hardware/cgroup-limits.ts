/** Limits of the cgroup that this process is in, versions 1 and 2: what a container may really use. */

import { count, cpuList, line, memory } from "./field-readers.ts";
import type { FileSystem } from "./machine.ts";
import { defined } from "./pci.ts";

export interface Limits {
  readonly memoryBytes?: number;
  /** What is left of the tightest memory limit: page cache that can be dropped counts as free, as for the kubelet. */
  readonly freeBytes?: number;
  /** CPUs' worth of time, from the quota. */
  readonly cpus?: number;
  /** The CPUs it may run on, as the kernel writes them: `0-7`. */
  readonly cpuset?: string;
  readonly version?: 1 | 2;
}

/** cgroup v1 writes "no limit" as the largest multiple of the page size. */
const NO_LIMIT_V1 = 2 ** 60;

/** Reads the limits; every folder up to the root of the hierarchy counts, since a parent's limit binds its children. */
export async function readLimits(files: FileSystem): Promise<Limits> {
  const membership = (await files.readText("/proc/self/cgroup", 16_384)) ?? "";
  const unified = /^0::(\/.*)$/m.exec(membership)?.[1];
  const v2 = (await files.readText("/sys/fs/cgroup/cgroup.controllers", 1024)) !== undefined;
  return v2 ? readV2(files, unified ?? "/") : readV1(files, membership);
}

/** `/a/b` gives `/a/b`, `/a` and the empty path of the root; `..` (a cgroup outside the namespace) gives the root alone. */
function upwards(path: string): string[] {
  const parts = line(path)
    .split("/")
    .filter((part) => part !== "");
  if (parts.includes("..")) return [""];
  return parts
    .slice(0, 16)
    .map((_, i) => `/${parts.slice(0, parts.length - i).join("/")}`)
    .concat("");
}

async function readV2(files: FileSystem, path: string): Promise<Limits> {
  let memoryBytes: number | undefined;
  let freeBytes: number | undefined;
  let cpus: number | undefined;
  let cpuset: string | undefined;
  for (const folder of upwards(path)) {
    const read = (name: string) => files.readText(`/sys/fs/cgroup${folder}/${name}`, 4096);
    const [max, current, stat, quota, set] = await Promise.all(
      ["memory.max", "memory.current", "memory.stat", "cpu.max", "cpuset.cpus.effective"].map(read),
    );
    const bytes = memory(count(max));
    memoryBytes = smaller(memoryBytes, bytes);
    freeBytes = smaller(freeBytes, freeOf(bytes, current, stat, "inactive_file"));
    const match = /^(\d+) (\d+)/.exec(quota ?? "");
    if (match !== null && Number(match[2]) > 0) cpus = smaller(cpus, Number(match[1]) / Number(match[2]));
    if (cpuset === undefined && cpuList(set).length > 0) cpuset = line(set ?? "");
  }
  return { version: 2, ...defined({ memoryBytes, freeBytes, cpus, cpuset }) };
}

function freeOf(
  limit: number | undefined,
  current: string | undefined,
  stat: string | undefined,
  cache: string,
): number | undefined {
  const used = count(current);
  if (limit === undefined || used === undefined) return undefined;
  const droppable = count(new RegExp(`^${cache} (\\d+)$`, "m").exec(stat ?? "")?.[1]) ?? 0;
  return Math.max(0, limit - Math.max(0, used - droppable));
}

async function readV1(files: FileSystem, membership: string): Promise<Limits> {
  const pathOf = (controller: string) =>
    new RegExp(`^\\d+:(?:[^:\\n]*,)?${controller}(?:,[^:\\n]*)?:(/.*)$`, "m").exec(membership)?.[1];
  let memoryBytes: number | undefined;
  let freeBytes: number | undefined;
  for (const folder of upwards(pathOf("memory") ?? "/")) {
    const read = (name: string) => files.readText(`/sys/fs/cgroup/memory${folder}/${name}`, 4096);
    const [limit, usage, stat] = await Promise.all(
      ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"].map(read),
    );
    const bytes = count(limit);
    if (bytes === undefined || bytes >= NO_LIMIT_V1) continue;
    memoryBytes = smaller(memoryBytes, memory(bytes));
    freeBytes = smaller(freeBytes, freeOf(memory(bytes), usage, stat, "total_inactive_file"));
  }
  let cpus: number | undefined;
  for (const folder of upwards(pathOf("cpu") ?? "/")) {
    const [quota, period] = await Promise.all(
      ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map((name) =>
        files.readText(`/sys/fs/cgroup/cpu${folder}/${name}`, 64),
      ),
    );
    const [q, p] = [count(quota), count(period)];
    if (q !== undefined && p !== undefined && p > 0) cpus = smaller(cpus, q / p);
  }
  let cpuset: string | undefined;
  for (const folder of upwards(pathOf("cpuset") ?? "/")) {
    const set = await files.readText(`/sys/fs/cgroup/cpuset${folder}/cpuset.cpus`, 4096);
    if (cpuset === undefined && cpuList(set).length > 0) cpuset = line(set ?? "");
  }
  const found = defined({ memoryBytes, freeBytes, cpus, cpuset });
  return Object.keys(found).length > 0 ? { version: 1, ...found } : {};
}

function smaller(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b);
}
