/**
 * The CPU: /proc/cpuinfo, /proc/meminfo and sysfs on Linux, sysctl on macOS, Node's own `os` elsewhere. Memory is what
 * this process may use: the cgroup's limit where it is below the machine's memory. Bandwidth comes from the firmware's
 * HMAT table (access0/initiators/read_bandwidth of a node) or not at all.
 */
import { wordTable } from "../../../core/index.ts";
import { type Device, dtypesOf } from "../../topology/index.ts";
import { type Limits, readLimits } from "../cgroup-limits.ts";
import { appleSoc } from "../device-tree.ts";
import { count, cpuList, line, memory } from "../field-readers.ts";
import { numaFacts, numaNodes } from "../numa.ts";
import { defined, inBatches } from "../pci.ts";
import type { DeviceDraft, Probe, ProbeContext } from "../probe.ts";

/** Flags worth telling: those that a kernel's author chooses code by. */
const ISA_FLAGS =
  "sse4_2 avx avx2 fma f16c avx_vnni avx512f avx512bw avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8 amx_fp16 neon asimd asimdhp asimddp bf16 i8mm sve sve2 sme sme2".split(
    " ",
  );

/** MIDR part numbers of cores in servers with accelerators (Arm Technical Reference Manuals; Linux cputype.h). */
const ARM_CORES: Readonly<Record<string, string>> = wordTable({
  "0x41/0xd0c": "Arm Neoverse-N1",
  "0x41/0xd40": "Arm Neoverse-V1",
  "0x41/0xd49": "Arm Neoverse-N2",
  "0x41/0xd4f": "Arm Neoverse-V2",
  "0x41/0xd85": "Arm Cortex-X925",
  "0x41/0xd87": "Arm Cortex-A725",
  "0x41/0xd42": "Arm Cortex-A78AE",
  "0xc0/0xac3": "Ampere-1",
});
/** MIDR's implementer of Apple's cores. */
const APPLE = "0x61";

export const cpuProbe: Probe = {
  name: "cpu",
  families: ["cpu"],
  run: async (context) => {
    const [info, limits, memoryOf] = await Promise.all([
      context.files.readText("/proc/cpuinfo"),
      readLimits(context.files),
      context.systemMemory(),
    ]);
    const cpus = parseCpuInfo(info ?? "");
    const [numa, caches] = await Promise.all([numaNodes(context), readCaches(context)]);
    const apple = cpus.model === undefined ? await appleCpu(context) : undefined;
    const asahi = cpus.isApple ? await appleSoc(context.files) : undefined;
    const name = asahi ?? cpus.model ?? apple?.name ?? context.host.cpuModel ?? "CPU";
    const threads = cpus.threads || apple?.threads || context.host.cpuCount;
    const cores = cpus.cores || apple?.cores;
    const limitBytes = limits.memoryBytes;
    const totalBytes = memoryOf.totalBytes ?? apple?.memoryBytes;
    const memoryBytes = minimum(totalBytes, limitBytes);
    const bandwidthGBps = numa.reduce((sum, node) => sum + (node.readBandwidthMBps ?? 0), 0) / 1000;
    const details: Device["details"] = {
      ...defined({
        sockets: cpus.sockets || (await packages(context)) || undefined,
        cores,
        threads,
        usableCores: usableCores(limits, cores, threads),
        isa: cpus.isa.length > 0 ? cpus.isa : undefined,
        caches: caches.length > 0 ? caches : undefined,
        numaNodes: numa.length > 0 ? numa.map(numaFacts) : undefined,
      }),
      ...(limitBytes !== undefined &&
        totalBytes !== undefined &&
        limitBytes < totalBytes && { hostMemoryBytes: totalBytes }),
      ...(limits.cpus !== undefined && { cpuLimit: limits.cpus }),
      ...(limits.cpuset !== undefined && { cpuset: limits.cpuset }),
    };
    const device: DeviceDraft = {
      key: "cpu:0",
      family: "cpu",
      vendor: vendorOf(name, cpus.vendorId),
      name,
      index: 0,
      ...defined({
        memoryBytes,
        memoryFreeBytes:
          memoryOf.availableBytes === undefined
            ? limits.freeBytes
            : minimum(minimum(memoryOf.availableBytes, limits.freeBytes), memoryBytes),
        memoryBandwidthGBps: bandwidthGBps > 0 ? bandwidthGBps : undefined,
      }),
      dtypes: dtypesOf("cpu", undefined) ?? [],
      details,
    };
    const warnings =
      memoryBytes === undefined ? [{ source: "cpu", message: "the amount of main memory is unknown" }] : [];
    return { devices: [device], warnings };
  },
};

/** Cores' worth of time that the cgroup leaves: by its set of CPUs and by its quota. Absent where it limits neither. */
function usableCores(
  { cpus, cpuset }: Limits,
  cores: number | undefined,
  threads: number | undefined,
): number | undefined {
  if (cores === undefined || threads === undefined || cores === 0) return undefined;
  const ofSet = cpuList(cpuset).length;
  const bySet = ofSet === 0 ? cores : Math.min(cores, Math.ceil((ofSet * cores) / threads));
  const usable = Math.min(bySet, cpus ?? cores);
  return usable < cores ? Number(usable.toFixed(2)) : undefined;
}

/** Sockets of an Arm machine, whose /proc/cpuinfo does not say: the packages that sysfs numbers. */
async function packages({ files }: ProbeContext): Promise<number> {
  const folder = "/sys/devices/system/cpu";
  const names = (await files.list(folder)).filter((name) => /^cpu\d{1,4}$/.test(name));
  const ids = await inBatches(names, (name) => files.readText(`${folder}/${name}/topology/physical_package_id`, 32));
  // Some firmwares number packages by an opaque value, and -1 says that there is no such number.
  return new Set(ids.flatMap((id) => count(id) ?? [])).size;
}

function minimum(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b);
}

interface CpuInfo {
  readonly model: string | undefined;
  readonly vendorId: string | undefined;
  readonly threads: number;
  readonly cores: number;
  readonly sockets: number;
  readonly isa: string[];
  readonly isApple: boolean;
}

/** Reads /proc/cpuinfo of x86-64 and arm64. */
function parseCpuInfo(text: string): CpuInfo {
  const sockets = new Set<string>();
  const cores = new Set<string>();
  const armCores = new Map<string, number>();
  let model: string | undefined;
  let vendorId: string | undefined;
  let threads = 0;
  let flags = "";
  for (const block of text.split(/\n\s*\n/)) {
    const fields = new Map(
      block.split("\n").map((entry) => {
        const colon = entry.indexOf(":");
        return [entry.slice(0, Math.max(colon, 0)).trim(), line(entry.slice(colon + 1))] as const;
      }),
    );
    if (!fields.has("processor")) continue;
    threads++;
    model ??= fields.get("model name") || undefined;
    vendorId ??= fields.get("vendor_id");
    flags ||= fields.get("flags") ?? fields.get("Features") ?? rawFlags(block);
    const socket = fields.get("physical id");
    if (socket !== undefined) {
      sockets.add(socket);
      cores.add(`${socket}/${fields.get("core id")}`);
    }
    const part = fields.get("CPU part");
    if (part !== undefined) {
      const id = `${fields.get("CPU implementer")}/${part}`;
      armCores.set(id, (armCores.get(id) ?? 0) + 1);
    }
  }
  if (model === undefined && armCores.size > 0) {
    model = [...armCores].map(([id, n]) => `${n}x ${ARM_CORES[id] ?? `Arm core ${id}`}`).join(", ");
  }
  const present = new Set((flags.length >= 250 ? rawFlags(text) : flags).split(" "));
  return {
    model,
    vendorId,
    threads,
    cores: cores.size > 0 ? cores.size : armCores.size > 0 ? threads : 0,
    sockets: sockets.size,
    isa: ISA_FLAGS.filter((flag) => present.has(flag)),
    isApple: [...armCores.keys()].some((id) => id.startsWith(`${APPLE}/`)),
  };
}

/** The flags line is longer than a name may be. */
function rawFlags(text: string): string {
  return /^(?:flags|Features)\s*:\s*(.*)$/m.exec(text)?.[1] ?? "";
}

function vendorOf(name: string, vendorId: string | undefined): string {
  if (vendorId === "GenuineIntel" || /Intel/.test(name)) return "Intel";
  if (vendorId === "AuthenticAMD" || /AMD/.test(name)) return "AMD";
  if (/Apple/.test(name)) return "Apple";
  if (/Neoverse-V2|Cortex-X925/.test(name)) return "Arm";
  return /Arm/.test(name) ? "Arm" : (vendorId ?? "unknown");
}

async function readCaches(context: ProbeContext): Promise<{ level: number; type: string; sizeBytes: number }[]> {
  const folder = "/sys/devices/system/cpu/cpu0/cache";
  const names = (await context.files.list(folder)).filter((name) => /^index\d$/.test(name));
  const caches = await Promise.all(
    names.map(async (name) => {
      const read = (file: string) => context.files.readText(`${folder}/${name}/${file}`, 64);
      const [level, type, size] = await Promise.all([read("level"), read("type"), read("size")]);
      const match = /^(\d{1,9})([KM]?)/.exec(size?.trim() ?? "");
      const value = count(level);
      if (value === undefined || match === null) return [];
      const sizeBytes = Number(match[1]) * (match[2] === "K" ? 1024 : match[2] === "M" ? 1024 ** 2 : 1);
      return [{ level: value, type: line(type ?? "").toLowerCase(), sizeBytes }];
    }),
  );
  return caches.flat();
}

async function appleCpu(context: ProbeContext) {
  if (context.platform !== "darwin") return undefined;
  const result = await context.commands.run({
    tool: "sysctl",
    args: ["-n", "machdep.cpu.brand_string", "hw.physicalcpu", "hw.logicalcpu", "hw.memsize"],
    accepts: (args) => args.includes("hw.memsize"),
  });
  const [name, cores, threads, bytes] = (result?.stdout ?? "").split("\n");
  if (name === undefined || line(name) === "") return undefined;
  return defined({ name: line(name), cores: count(cores), threads: count(threads), memoryBytes: memory(count(bytes)) });
}
