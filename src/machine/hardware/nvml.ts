/**
 * NVML through FFI: one pass over all GPUs, every answer optional. Struct layouts and constants follow nvml.h of
 * NVIDIA's public nvml headers (CUDA 13). Calls run on pool threads, since a sick driver can block them for minutes; each
 * has a deadline, after which NVML is not asked again.
 */
import type { Unavailable } from "../../core/index.ts";
import { DRIVER_FOLDERS } from "../../foreign/cuda/index.ts";
import {
  cString,
  type LibrarySpec,
  type NativeLibrary,
  type NativeValue,
  openLibrary,
} from "../../foreign/native/index.ts";
import { pciAddress } from "./field-readers.ts";
import type { NvmlDevice, NvmlLink, NvmlMig, NvmlSnapshot } from "./nvml-snapshot.ts";
import { defined } from "./pci.ts";

export const NVML_LIBRARY: LibrarySpec = {
  name: "NVML",
  files: process.platform === "win32" ? ["nvml.dll"] : ["libnvidia-ml.so.1", "libnvidia-ml.so"],
  folders: DRIVER_FOLDERS,
  variable: "CHORALE_NVML",
  requires: ["nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"],
  howToGetIt: "It comes with the NVIDIA driver; in a container, start it with the NVIDIA container toolkit.",
};

/** Time that one call may take; CHORALE_NVML_TIMEOUT_MS sets another. Initialising GPUs without persistence mode takes a second each. */
const CALL_TIMEOUT_MS = 10_000;
/** Most devices, links and processes that are asked for: more than any machine has, and a bound on a lying library. */
const MAX_DEVICES = 128;
const MAX_LINKS = 36;
const MAX_PROCESSES = 256;
/** nvml.h: NVML_FI_DEV_NVLINK_GET_SPEED; the link is the scope. */
const FIELD_LINK_SPEED = 164;
/** nvml.h: NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, of older drivers: one figure for all links. */
const FIELD_LINK_SPEED_COMMON = 90;
/** nvml.h: NVML_FI_DEV_C2C_LINK_COUNT, _GET_STATUS (1 is active) and _GET_MAX_BW (MB/s); the link is the scope. */
const FIELD_C2C_COUNT = 170;
const FIELD_C2C_STATUS = 171;
const FIELD_C2C_SPEED = 172;
/** nvmlGpuFabricInfo_v2_t: version, 16 bytes of the cluster's UUID, status, clique, state, health mask. */
const SIZEOF_FABRIC_INFO_V2 = 36;
const SIZEOF_FIELD_VALUE = 40;
const SIZEOF_PCI_INFO = 68;
const SIZEOF_PROCESS_INFO = 24;
const SIZEOF_MEMORY_V2 = 40;

class Nvml {
  readonly #library: NativeLibrary;
  readonly problems = new Set<string>();
  #dead = false;
  readonly #timeoutMs: number;

  constructor(library: NativeLibrary, timeoutMs: number) {
    this.#library = library;
    this.#timeoutMs = timeoutMs;
  }

  /** Calls a function that returns nvmlReturn_t. @returns whether it succeeded */
  async call(symbol: string, types: readonly string[], ...values: NativeValue[]): Promise<boolean> {
    return (await this.status(symbol, types, ...values)) === 0;
  }

  /** The status; undefined when the library lacks the function or did not answer in time. */
  async status(symbol: string, types: readonly string[], ...values: NativeValue[]): Promise<number | undefined> {
    if (this.#dead || !this.#library.has(symbol)) return undefined;
    const call = this.#library.bindAsync(symbol, "int", types)(...values);
    let timer: NodeJS.Timeout | undefined;
    const deadline = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), this.#timeoutMs);
    });
    const status = await Promise.race([call, deadline]);
    clearTimeout(timer);
    if (status === undefined) {
      this.#dead = true;
      this.problems.add(`${symbol} did not return within ${this.#timeoutMs / 1000} s`);
      return undefined;
    }
    return Number(status);
  }

  async uint(symbol: string, types: readonly string[], ...values: NativeValue[]): Promise<number | undefined> {
    const out = Buffer.alloc(4);
    const ok = await this.call(symbol, [...types, "void *"], ...values, out);
    return ok ? out.readUInt32LE(0) : undefined;
  }

  async text(symbol: string, types: readonly string[], ...values: NativeValue[]): Promise<string | undefined> {
    const out = Buffer.alloc(96);
    const ok = await this.call(symbol, [...types, "void *", "uint32_t"], ...values, out, out.length);
    return ok ? cString(out) : undefined;
  }
}

/** Asks NVML for everything; `Unavailable` when there is no library or no driver. Never throws. */
export async function collectNvml(
  spec: LibrarySpec = NVML_LIBRARY,
  callTimeoutMs = Number(process.env["CHORALE_NVML_TIMEOUT_MS"]) || CALL_TIMEOUT_MS,
): Promise<NvmlSnapshot | Unavailable> {
  const library = openLibrary(spec);
  if (!library.available) return library;
  const nvml = new Nvml(library, callTimeoutMs);
  const status = await nvml.status("nvmlInit_v2", []);
  if (status !== 0) {
    const why =
      status === undefined
        ? `nvmlInit_v2 did not return within ${callTimeoutMs / 1000} s`
        : `nvmlInit_v2 returned ${status} (${initProblem(status)})`;
    return {
      available: false,
      what: "NVML",
      why,
      howToGetIt: "Load the NVIDIA kernel driver, or reinstall driver and libraries together.",
    };
  }
  try {
    return await snapshot(nvml);
  } finally {
    await nvml.call("nvmlShutdown", []);
  }
}

/** The codes of nvmlReturn_t that initialisation gives. */
function initProblem(status: number): string {
  const words: Readonly<Record<number, string>> = {
    4: "no permission to talk to the driver",
    8: "external power cables are not attached",
    9: "the NVIDIA kernel driver is not loaded",
    12: "a shared library of the driver was not found",
    15: "a GPU has fallen off the bus",
    18: "driver and library are of different versions",
    999: "an unknown error",
  };
  return words[status] ?? "see nvmlReturn_t in nvml.h";
}

async function snapshot(nvml: Nvml): Promise<NvmlSnapshot> {
  const [driverVersion, nvmlVersion, cuda, total] = await Promise.all([
    nvml.text("nvmlSystemGetDriverVersion", []),
    nvml.text("nvmlSystemGetNVMLVersion", []),
    nvml.uint("nvmlSystemGetCudaDriverVersion_v2", []),
    nvml.uint("nvmlDeviceGetCount_v2", []),
  ]);
  const handles: { index: number; handle: bigint }[] = [];
  for (let index = 0; index < Math.min(total ?? 0, MAX_DEVICES); index++) {
    const out = Buffer.alloc(8);
    const status = await nvml.status("nvmlDeviceGetHandleByIndex_v2", ["uint32_t", "void *"], index, out);
    if (status === 0) handles.push({ index, handle: out.readBigUInt64LE(0) });
    else if (status !== undefined)
      nvml.problems.add(`GPU ${index} cannot be opened: ${status} (${initProblem(status)})`);
  }
  const devices: NvmlDevice[] = [];
  // Four pool threads serve all calls; two devices at a time keep them busy and leave room for files.
  for (let i = 0; i < handles.length; i += 2) {
    devices.push(...(await Promise.all(handles.slice(i, i + 2).map((entry) => readDevice(nvml, entry, handles)))));
  }
  const cudaVersion = cuda === undefined ? undefined : `${Math.floor(cuda / 1000)}.${Math.floor((cuda % 1000) / 10)}`;
  const problems = nvml.problems.size > 0 ? [...nvml.problems] : undefined;
  return { ...defined({ driverVersion, nvmlVersion, cudaVersion, problems }), devices };
}

async function readDevice(
  nvml: Nvml,
  { index, handle }: { readonly index: number; readonly handle: bigint },
  all: readonly { readonly index: number; readonly handle: bigint }[],
): Promise<NvmlDevice> {
  const uint = (symbol: string, types: readonly string[] = [], ...values: NativeValue[]) =>
    nvml.uint(symbol, ["uint64_t", ...types], handle, ...values);
  const text = (symbol: string) => nvml.text(symbol, ["uint64_t"], handle);
  const pair = async (symbol: string) => {
    const [a, b] = [Buffer.alloc(4), Buffer.alloc(4)];
    const ok = await nvml.call(symbol, ["uint64_t", "void *", "void *"], handle, a, b);
    return ok ? ([a.readUInt32LE(0), b.readUInt32LE(0)] as const) : undefined;
  };
  const ulong = async (symbol: string, types: readonly string[] = [], ...values: NativeValue[]) => {
    const out = Buffer.alloc(8);
    const ok = await nvml.call(symbol, ["uint64_t", ...types, "void *"], handle, ...values, out);
    return ok ? out.readBigUInt64LE(0) : undefined;
  };
  const [capability, utilization, ecc, mig] = await Promise.all([
    pair("nvmlDeviceGetCudaComputeCapability"),
    nvidiaUtilization(nvml, handle),
    pair("nvmlDeviceGetEccMode"),
    pair("nvmlDeviceGetMigMode"),
  ]);
  const reasons =
    (await ulong("nvmlDeviceGetCurrentClocksEventReasons")) ??
    (await ulong("nvmlDeviceGetCurrentClocksThrottleReasons"));
  const [corrected, uncorrected] = [
    await ulong("nvmlDeviceGetTotalEccErrors", ["int", "int"], 0, 0),
    await ulong("nvmlDeviceGetTotalEccErrors", ["int", "int"], 1, 0),
  ];
  const levels: Record<string, number> = {};
  const peerRead: Record<string, number> = {};
  for (const other of all) {
    if (other.index === index) continue;
    const level = await uint("nvmlDeviceGetTopologyCommonAncestor", ["uint64_t"], other.handle);
    if (level !== undefined) levels[String(other.index)] = level;
    const status = await uint("nvmlDeviceGetP2PStatus", ["uint64_t", "int"], other.handle, 0);
    if (status !== undefined) peerRead[String(other.index)] = status;
  }
  const links = await readLinks(nvml, handle);
  return {
    index,
    ...(await memoryOf(nvml, handle)),
    ...defined({
      name: await text("nvmlDeviceGetName"),
      uuid: await text("nvmlDeviceGetUUID"),
      serial: await text("nvmlDeviceGetSerial"),
      minorNumber: await uint("nvmlDeviceGetMinorNumber"),
      pciAddress: await pciOf(nvml, handle),
      computeCapability: capability && `${capability[0]}.${capability[1]}`,
      memoryBusWidthBits: await uint("nvmlDeviceGetMemoryBusWidth"),
      temperatureC: await uint("nvmlDeviceGetTemperature", ["int"], 0),
      powerMilliwatts: await uint("nvmlDeviceGetPowerUsage"),
      powerLimitMilliwatts: await uint("nvmlDeviceGetPowerManagementLimit"),
      utilizationPercent: utilization,
      pcieGeneration: await uint("nvmlDeviceGetCurrPcieLinkGeneration"),
      pcieMaxGeneration: await uint("nvmlDeviceGetMaxPcieLinkGeneration"),
      pcieWidth: await uint("nvmlDeviceGetCurrPcieLinkWidth"),
      pcieMaxWidth: await uint("nvmlDeviceGetMaxPcieLinkWidth"),
      eccEnabled: ecc && ecc[0] === 1,
      eccCorrected: safe(corrected),
      eccUncorrected: safe(uncorrected),
      smClockMHz: await uint("nvmlDeviceGetClockInfo", ["int"], 1),
      memoryClockMHz: await uint("nvmlDeviceGetClockInfo", ["int"], 2),
      maxSmClockMHz: await uint("nvmlDeviceGetMaxClockInfo", ["int"], 1),
      maxMemoryClockMHz: await uint("nvmlDeviceGetMaxClockInfo", ["int"], 2),
      throttleReasons: reasons === undefined ? undefined : `0x${reasons.toString(16).padStart(16, "0")}`,
      migEnabled: mig && mig[0] === 1,
      mig: mig !== undefined && mig[0] === 1 ? await readMig(nvml, handle) : undefined,
      links: links.length > 0 ? links : undefined,
      c2c: await readC2c(nvml, handle),
      fabric: await readFabric(nvml, handle),
      processes: await readProcesses(nvml, handle),
      levels: Object.keys(levels).length > 0 ? levels : undefined,
      peerRead: Object.keys(peerRead).length > 0 ? peerRead : undefined,
    }),
  };
}

function safe(value: bigint | undefined): number | undefined {
  return value !== undefined && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : undefined;
}

async function nvidiaUtilization(nvml: Nvml, handle: bigint): Promise<number | undefined> {
  const out = Buffer.alloc(8);
  const ok = await nvml.call("nvmlDeviceGetUtilizationRates", ["uint64_t", "void *"], handle, out);
  return ok ? out.readUInt32LE(0) : undefined;
}

async function pciOf(nvml: Nvml, handle: bigint): Promise<string | undefined> {
  const out = Buffer.alloc(SIZEOF_PCI_INFO);
  const ok = await nvml.call("nvmlDeviceGetPciInfo_v3", ["uint64_t", "void *"], handle, out);
  return ok ? pciAddress(cString(out, 36)) : undefined;
}

/** Version 2 keeps what the driver reserves apart from what is used, as nvidia-smi does; version 1 adds the two. */
async function memoryOf(nvml: Nvml, handle: bigint) {
  const v2 = Buffer.alloc(SIZEOF_MEMORY_V2);
  v2.writeUInt32LE(SIZEOF_MEMORY_V2 | (2 << 24), 0);
  if (await nvml.call("nvmlDeviceGetMemoryInfo_v2", ["uint64_t", "void *"], handle, v2)) {
    return defined({
      memoryTotalBytes: safe(v2.readBigUInt64LE(8)),
      memoryFreeBytes: safe(v2.readBigUInt64LE(24)),
      memoryUsedBytes: safe(v2.readBigUInt64LE(32)),
    });
  }
  const v1 = Buffer.alloc(24);
  if (!(await nvml.call("nvmlDeviceGetMemoryInfo", ["uint64_t", "void *"], handle, v1))) return {};
  return defined({
    memoryTotalBytes: safe(v1.readBigUInt64LE(0)),
    memoryFreeBytes: safe(v1.readBigUInt64LE(8)),
    memoryUsedBytes: safe(v1.readBigUInt64LE(16)),
  });
}

async function readLinks(nvml: Nvml, handle: bigint): Promise<NvmlLink[]> {
  const links: NvmlLink[] = [];
  for (let link = 0; link < MAX_LINKS; link++) {
    const state = await nvml.uint("nvmlDeviceGetNvLinkState", ["uint64_t", "uint32_t"], handle, link);
    // The first link that the GPU does not have ends the list.
    if (state === undefined) break;
    const active = state === 1;
    if (!active) {
      links.push({ link, active });
      continue;
    }
    const remote = await nvml.uint("nvmlDeviceGetNvLinkRemoteDeviceType", ["uint64_t", "uint32_t"], handle, link);
    const pci = Buffer.alloc(SIZEOF_PCI_INFO);
    const known = await nvml.call(
      "nvmlDeviceGetNvLinkRemotePciInfo_v2",
      ["uint64_t", "uint32_t", "void *"],
      handle,
      link,
      pci,
    );
    links.push({
      link,
      active,
      ...defined({
        version: await nvml.uint("nvmlDeviceGetNvLinkVersion", ["uint64_t", "uint32_t"], handle, link),
        speedMBps: await linkSpeed(nvml, handle, link),
        remote:
          remote === undefined ? undefined : (({ 0: "gpu", 1: "npu", 2: "switch" } as const)[remote] ?? "unknown"),
        remotePci: known ? pciAddress(cString(pci, 36)) : undefined,
      }),
    });
  }
  return links;
}

async function fieldValue(nvml: Nvml, handle: bigint, id: number, scope: number): Promise<number | undefined> {
  const value = Buffer.alloc(SIZEOF_FIELD_VALUE);
  value.writeUInt32LE(id, 0);
  value.writeUInt32LE(scope, 4);
  const ok = await nvml.call("nvmlDeviceGetFieldValues", ["uint64_t", "int", "void *"], handle, 1, value);
  return ok && value.readInt32LE(28) === 0 ? value.readUInt32LE(32) : undefined;
}

async function linkSpeed(nvml: Nvml, handle: bigint, link: number): Promise<number | undefined> {
  const own = await fieldValue(nvml, handle, FIELD_LINK_SPEED, link);
  return own || (await fieldValue(nvml, handle, FIELD_LINK_SPEED_COMMON, 0)) || undefined;
}

async function readC2c(nvml: Nvml, handle: bigint): Promise<NvmlDevice["c2c"]> {
  const total = (await fieldValue(nvml, handle, FIELD_C2C_COUNT, 0)) ?? 0;
  let count = 0;
  let speedMBps: number | undefined;
  for (let link = 0; link < Math.min(total, MAX_LINKS); link++) {
    if ((await fieldValue(nvml, handle, FIELD_C2C_STATUS, link)) !== 1) continue;
    count++;
    speedMBps ??= (await fieldValue(nvml, handle, FIELD_C2C_SPEED, link)) || undefined;
  }
  return count === 0 ? undefined : { count, ...defined({ speedMBps }) };
}

async function readFabric(nvml: Nvml, handle: bigint): Promise<NvmlDevice["fabric"]> {
  const info = Buffer.alloc(SIZEOF_FABRIC_INFO_V2);
  info.writeUInt32LE(SIZEOF_FABRIC_INFO_V2 | (2 << 24), 0);
  if (!(await nvml.call("nvmlDeviceGetGpuFabricInfoV", ["uint64_t", "void *"], handle, info))) return undefined;
  return { state: info.readUInt8(28), status: info.readUInt32LE(20) };
}

async function readMig(nvml: Nvml, handle: bigint): Promise<NvmlMig[]> {
  const instances: NvmlMig[] = [];
  const most = (await nvml.uint("nvmlDeviceGetMaxMigDeviceCount", ["uint64_t"], handle)) ?? 0;
  for (let index = 0; index < Math.min(most, 16); index++) {
    const out = Buffer.alloc(8);
    const types = ["uint64_t", "uint32_t", "void *"];
    if (!(await nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", types, handle, index, out))) continue;
    const mig = out.readBigUInt64LE(0);
    instances.push({
      index,
      ...(await memoryOf(nvml, mig)),
      ...defined({
        name: await nvml.text("nvmlDeviceGetName", ["uint64_t"], mig),
        uuid: await nvml.text("nvmlDeviceGetUUID", ["uint64_t"], mig),
      }),
    });
  }
  return instances;
}

async function readProcesses(nvml: Nvml, handle: bigint): Promise<NvmlDevice["processes"]> {
  const count = Buffer.alloc(4);
  count.writeUInt32LE(MAX_PROCESSES);
  const infos = Buffer.alloc(MAX_PROCESSES * SIZEOF_PROCESS_INFO);
  const types = ["uint64_t", "void *", "void *"];
  if (!(await nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", types, handle, count, infos))) return undefined;
  return Array.from({ length: Math.min(count.readUInt32LE(0), MAX_PROCESSES) }, (_, i) => {
    const used = infos.readBigUInt64LE(i * SIZEOF_PROCESS_INFO + 8);
    // All ones says that the figure is not available.
    return { pid: infos.readUInt32LE(i * SIZEOF_PROCESS_INFO), ...defined({ usedBytes: safe(used) }) };
  });
}
