/**
 * NVIDIA GPUs: NVML where it answers, else nvidia-smi, else what the PCI bus shows. Builds devices, MIG instances and
 * NVLinks from the readings.
 */
import { dtypesOf, findPart, partFields } from "../../topology/index.ts";
import { tegraGpu } from "../device-tree.ts";
import { line, memory } from "../field-readers.ts";
import { numaNodes } from "../numa.ts";
import type { NvmlSnapshot } from "../nvml-snapshot.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, Probe, ProbeContext, ProbeResult, ProbeWarning } from "../probe.ts";
import { gpuNodes, hasOwnNode } from "../superchip-memory.ts";
import { keyOf, linksOf, scaled } from "./nvidia-links.ts";
import {
  isOnBaseboard,
  isSuperchip,
  type NvidiaReading,
  type NvidiaReadings,
  PRODUCT_WITHOUT_PEERS,
  pairKey,
  throttleReasons,
} from "./nvidia-reading.ts";
import { readNvidiaSmi } from "./nvidia-smi.ts";

const NVIDIA_VENDOR = 0x10de;
/** Superchips and modules whose GPU has no memory of its own. */
const UNIFIED = /\b(GB10|Orin|Thor|Xavier|Tegra|nvgpu)\b/i;
/** nvmlGpuTopologyLevel_t */
const LEVELS: Readonly<Record<number, string>> = { 0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS" };
/** nvmlGpuFabricState_t, in nvidia-smi's words; 0 is a GPU without a fabric. */
const FABRIC_STATES: Readonly<Record<number, string>> = { 1: "Not Started", 2: "In Progress", 3: "Completed" };
/** nvmlGpuP2PStatus_t, in words. */
const PEER_STATUS: Readonly<Record<number, string>> = {
  1: "the chipset does not support it",
  2: PRODUCT_WITHOUT_PEERS,
  3: "the I/O hub does not support it",
  4: "it is disabled by a registry key",
  5: "it is not supported",
};

export const nvidiaProbe: Probe = {
  name: "nvidia",
  families: ["nvidia-gpu"],
  platforms: ["linux", "win32"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const readings = await read(context, warnings);
    if (readings !== undefined && readings.gpus.length > 0) return build(context, readings, warnings);
    const tegra = await tegraDevice(context);
    if (tegra !== undefined) return { devices: [tegra], warnings };
    return { devices: [], warnings: [...warnings, ...(await driverless(context, warnings))] };
  },
};

/** The GPU of a Jetson without nvidia-smi (JetPack 5 and older have none): the device tree names it. */
async function tegraDevice(context: ProbeContext): Promise<DeviceDraft | undefined> {
  const gpu = await tegraGpu(context.files);
  if (gpu === undefined) return undefined;
  const { totalBytes, availableBytes } = await context.systemMemory();
  return {
    key: keyOf(0),
    family: "nvidia-gpu",
    vendor: "NVIDIA",
    name: gpu.name,
    index: 0,
    arch: gpu.arch,
    unifiedMemory: true,
    ...defined({
      memoryBytes: totalBytes,
      memoryFreeBytes: availableBytes,
      dtypes: dtypesOf("nvidia-gpu", gpu.arch),
    }),
    details: defined({ board: gpu.board }),
  };
}

async function read(context: ProbeContext, warnings: ProbeWarning[]): Promise<NvidiaReadings | undefined> {
  if (context.nvidiaSource !== "nvidia-smi") {
    const nvml = await context.nvml();
    if (!("available" in nvml)) {
      for (const problem of nvml.problems ?? []) warnings.push({ source: "nvml", message: line(problem) });
      if (nvml.devices.length > 0) return fromNvml(nvml);
      warnings.push({
        source: "nvml",
        message: "the NVIDIA driver is loaded but finds no device",
        hint: "Look at dmesg for Xid and NVRM lines; a GPU may have fallen off the bus.",
      });
      return undefined;
    }
    if (/nvmlInit_v2/.test(nvml.why)) warnings.push({ source: "nvml", message: line(nvml.why), hint: nvml.howToGetIt });
  }
  return context.nvidiaSource === "nvml" ? undefined : readNvidiaSmi(context, warnings);
}

/** NVML's snapshot as readings. */
function fromNvml(snapshot: NvmlSnapshot): NvidiaReadings {
  const matrix = new Map<string, string>();
  const peerDenied = new Map<string, string>();
  const addressToIndex = new Map(snapshot.devices.map((d) => [d.pciAddress, d.index]));
  const gpus = snapshot.devices.map((device): NvidiaReading => {
    const active = (device.links ?? []).filter((l) => l.active);
    const toGpu = new Map<string, number>();
    for (const link of active) {
      if (link.remote === "gpu" && link.remotePci !== undefined && addressToIndex.has(link.remotePci)) {
        toGpu.set(link.remotePci, (toGpu.get(link.remotePci) ?? 0) + 1);
      }
    }
    for (const [other, level] of Object.entries(device.levels ?? {})) {
      const relation = LEVELS[level];
      if (relation !== undefined) matrix.set(pairKey(device.index, Number(other)), relation);
    }
    for (const [other, status] of Object.entries(device.peerRead ?? {})) {
      if (status !== 0)
        peerDenied.set(pairKey(device.index, Number(other)), PEER_STATUS[status] ?? `NVML says ${status}`);
    }
    const speed = active.find((l) => l.speedMBps !== undefined)?.speedMBps;
    const version = active.find((l) => l.version !== undefined)?.version;
    const {
      powerMilliwatts,
      powerLimitMilliwatts,
      levels: _l,
      peerRead: _p,
      links: _k,
      serial: _s,
      minorNumber: _m,
      c2c,
      fabric,
      mig,
      processes,
      ...rest
    } = device;
    return {
      ...(rest as Partial<NvidiaReading>),
      index: device.index,
      ...defined({
        c2c: c2c && { count: c2c.count, ...defined({ linkGBps: c2c.speedMBps && c2c.speedMBps / 1000 }) },
        fabricState: FABRIC_STATES[fabric?.state ?? 0],
        // A GPU without a fabric has a status as well, which says that it has none.
        fabricStatus: fabric?.state === 3 && (fabric.status ?? 0) !== 0 ? `NVML status ${fabric.status}` : undefined,
        mig: mig as NvidiaReading["mig"],
        processes: processes as NvidiaReading["processes"],
        powerWatts: powerMilliwatts === undefined ? undefined : powerMilliwatts / 1000,
        powerLimitWatts: powerLimitMilliwatts === undefined ? undefined : powerLimitMilliwatts / 1000,
      }),
      ...(device.links !== undefined && {
        links: {
          active: active.length,
          inactive: device.links.length - active.length,
          toSwitch: active.filter((l) => l.remote === "switch").length,
          toGpu,
          ...defined({ linkGBps: speed === undefined ? undefined : speed / 1000, version }),
        },
      }),
    };
  });
  return {
    ...defined({ driverVersion: snapshot.driverVersion, cudaVersion: snapshot.cudaVersion }),
    gpus,
    matrix,
    peerDenied,
  };
}

async function build(context: ProbeContext, readings: NvidiaReadings, warnings: ProbeWarning[]): Promise<ProbeResult> {
  const devices: DeviceDraft[] = [];
  for (const gpu of readings.gpus) {
    devices.push(await deviceOf(context, gpu, readings));
    for (const mig of gpu.mig ?? []) devices.push(migOf(gpu, mig, readings));
  }
  for (const gpu of readings.gpus) {
    const { active = 0, inactive = 0 } = gpu.links ?? {};
    if (active > 0 && inactive > 0) {
      warnings.push({
        source: "nvidia",
        message: `GPU ${gpu.index}: ${inactive} of ${active + inactive} NVLinks are inactive`,
        hint: "nvidia-smi nvlink -s names them; reseat the bridge or reset the fabric if they should be up.",
      });
    }
    const fabric = brokenFabric(gpu);
    if (active === 0 && inactive > 0 && (fabric !== undefined || isOnBaseboard(gpu.name ?? ""))) {
      warnings.push({
        source: "nvidia",
        message: `GPU ${gpu.index}: none of its ${inactive} NVLinks is up${fabric === undefined ? "" : `; its fabric state is "${fabric}"`}`,
        hint: "Start the fabric manager of the driver's own version: systemctl start nvidia-fabricmanager.",
      });
    } else if (fabric !== undefined) {
      warnings.push({
        source: "nvidia",
        message: `GPU ${gpu.index}: its NVLink fabric is not ready; its state is "${fabric}"`,
        hint: "Start the fabric manager of the driver's own version: systemctl start nvidia-fabricmanager.",
      });
    }
    if (gpu.eccUncorrected !== undefined && gpu.eccUncorrected > 0) {
      warnings.push({
        source: "nvidia",
        message: `GPU ${gpu.index}: ${gpu.eccUncorrected} uncorrected ECC errors since the driver was loaded`,
      });
    }
  }
  for (const [pair, why] of readings.peerDenied ?? []) {
    const [a, b] = pair.split("-");
    warnings.push({
      source: "nvidia",
      message: `GPU ${a} and GPU ${b} cannot read each other's memory: ${why}`,
      hint:
        why === PRODUCT_WITHOUT_PEERS
          ? "The driver gives this product no peer access over PCIe; NCCL copies through host memory."
          : "chorale doctor looks for the cause (ACS, IOMMU).",
    });
  }
  return { devices, warnings, ...(await linksOf(context, readings, warnings)) };
}

/** The state of a fabric that is not complete. */
function brokenFabric({ fabricState, fabricStatus }: NvidiaReading): string | undefined {
  const isGood = (text: string | undefined, good: RegExp) => text === undefined || good.test(text);
  if (isGood(fabricState, /^(completed|not supported)$/i) && isGood(fabricStatus, /^(success|not supported)$/i))
    return undefined;
  return [fabricState, fabricStatus].filter((text) => text !== undefined).join(", ");
}

async function deviceOf(context: ProbeContext, gpu: NvidiaReading, readings: NvidiaReadings): Promise<DeviceDraft> {
  const name = gpu.name ?? "NVIDIA GPU";
  const part = findPart("nvidia-gpu", name);
  const arch = gpu.computeCapability ?? part?.arch;
  const memoryFields = await memoryOf(context, gpu, name);
  const unified = memoryFields.unifiedMemory === true;
  const hostLink = c2cOf(gpu);
  const reasons = throttleReasons(gpu.throttleReasons);
  const dtypes = dtypesOf("nvidia-gpu", arch);
  // The clock of the memory times two edges times the width of its bus: as the driver tells, before the data sheet.
  const measured =
    gpu.maxMemoryClockMHz !== undefined && gpu.memoryBusWidthBits !== undefined
      ? Math.round((gpu.maxMemoryClockMHz * 2 * gpu.memoryBusWidthBits) / 8000)
      : undefined;
  return {
    key: keyOf(gpu.index),
    family: "nvidia-gpu",
    vendor: "NVIDIA",
    name,
    index: gpu.index,
    ...memoryFields,
    ...(part !== undefined && partFields(part)),
    ...(part === undefined && measured !== undefined && measured > 0 && !unified && { memoryBandwidthGBps: measured }),
    ...defined({
      uuid: gpu.uuid,
      pciAddress: gpu.pciAddress,
      dtypes,
      arch,
      driverVersion: readings.driverVersion,
      runtimeVersion: readings.cudaVersion === undefined ? undefined : `CUDA ${readings.cudaVersion}`,
      temperatureC: gpu.temperatureC,
      powerWatts: atLeastZero(gpu.powerWatts),
      powerLimitWatts: atLeastZero(gpu.powerLimitWatts),
      utilizationPercent: percent(gpu.utilizationPercent),
    }),
    ...(hostLink !== undefined ? { hostLink } : !unified && pcieOf(gpu)),
    details: {
      ...defined({
        smClockMHz: gpu.smClockMHz,
        memoryClockMHz: gpu.memoryClockMHz,
        maxSmClockMHz: gpu.maxSmClockMHz,
        maxMemoryClockMHz: gpu.maxMemoryClockMHz,
      }),
      ...(gpu.eccEnabled !== undefined && {
        ecc: { enabled: gpu.eccEnabled, ...defined({ corrected: gpu.eccCorrected, uncorrected: gpu.eccUncorrected }) },
      }),
      ...(reasons.length > 0 && { throttleReasons: reasons }),
      ...(gpu.migEnabled !== undefined && { migEnabled: gpu.migEnabled }),
      ...(gpu.links !== undefined &&
        gpu.links.active + gpu.links.inactive > 0 && {
          nvlinks: { active: gpu.links.active, inactive: gpu.links.inactive },
        }),
      ...(gpu.fabricState !== undefined && {
        fabric: { state: gpu.fabricState, ...defined({ status: gpu.fabricStatus }) },
      }),
      ...(gpu.processes !== undefined &&
        gpu.processes.length > 0 && { processes: gpu.processes.map((p) => ({ ...p })) }),
    },
  };
}

/** The link of a superchip's GPU to its CPU: known by the product, its rate only where the driver tells. */
function c2cOf(gpu: NvidiaReading): DeviceDraft["hostLink"] {
  if (gpu.c2c === undefined && !isSuperchip(gpu.name)) return undefined;
  const { count, linkGBps } = gpu.c2c ?? {};
  return {
    kind: "nvlink-c2c",
    ...defined({ count, bandwidthGBps: count === undefined ? undefined : scaled(count, linkGBps) }),
  };
}

function atLeastZero(value: number | undefined): number | undefined {
  return value !== undefined && value >= 0 ? value : undefined;
}

export function percent(value: number | undefined): number | undefined {
  return value !== undefined && value >= 0 && value <= 100 ? value : undefined;
}

function pcieOf(gpu: NvidiaReading): Pick<DeviceDraft, "pcie"> {
  const pcie = defined({
    generation: gpu.pcieGeneration || undefined,
    width: gpu.pcieWidth || undefined,
    maxGeneration: gpu.pcieMaxGeneration || undefined,
    maxWidth: gpu.pcieMaxWidth || undefined,
  });
  return Object.keys(pcie).length > 0 ? { pcie } : {};
}

/**
 * Memory of a GPU. Where the driver gives no total, the GPU shares the host's memory (GB10, Jetson), or is a Grace Hopper
 * whose HBM is a NUMA node without CPUs; a discrete GPU without a total keeps none.
 */
async function memoryOf(context: ProbeContext, gpu: NvidiaReading, name: string): Promise<Partial<DeviceDraft>> {
  const own = defined({
    memoryBytes: memory(gpu.memoryTotalBytes),
    memoryUsedBytes: memory(gpu.memoryUsedBytes),
    memoryFreeBytes: memory(gpu.memoryFreeBytes),
  });
  const unified =
    UNIFIED.test(name) ||
    (own.memoryBytes === undefined && /^(12\.1|11\.0|8\.7|7\.2)$/.test(gpu.computeCapability ?? ""));
  if (own.memoryBytes !== undefined) return unified ? { ...own, unifiedMemory: true } : own;
  if (hasOwnNode(name)) {
    const node = gpuNodes(await numaNodes(context))[gpu.index];
    return node?.memoryBytes === undefined ? own : { ...own, memoryBytes: node.memoryBytes };
  }
  if (!unified) return own;
  const system = await context.systemMemory();
  return {
    ...own,
    ...defined({ memoryBytes: system.totalBytes, memoryFreeBytes: system.availableBytes }),
    unifiedMemory: true,
  };
}

function migOf(
  gpu: NvidiaReading,
  mig: NonNullable<NvidiaReading["mig"]>[number],
  readings: NvidiaReadings,
): DeviceDraft {
  const part = findPart("nvidia-gpu", gpu.name ?? "");
  const arch = gpu.computeCapability ?? part?.arch;
  // NVML names an instance after its GPU, nvidia-smi after its profile alone: keep the profile.
  const profile = /(?:MIG )?(\d+g\.\d+gb(?:\+\S+)?|\d+c\.\d+g\.\d+gb(?:\+\S+)?)/.exec(mig.name ?? "")?.[1];
  return {
    key: `nvidia:${gpu.index}/mig:${mig.index}`,
    parentKey: keyOf(gpu.index),
    family: "nvidia-gpu",
    vendor: "NVIDIA",
    name: `${gpu.name ?? "NVIDIA GPU"}${profile === undefined ? "" : ` MIG ${profile}`}`,
    index: mig.index,
    ...defined({
      uuid: mig.uuid,
      memoryBytes: memory(mig.memoryTotalBytes),
      memoryUsedBytes: memory(mig.memoryUsedBytes),
      memoryFreeBytes: memory(mig.memoryFreeBytes),
      dtypes: dtypesOf("nvidia-gpu", arch),
      arch,
      driverVersion: readings.driverVersion,
    }),
    details: profile === undefined ? {} : { migProfile: profile },
  };
}

/** GPUs on the bus that no source could read: their driver is missing, or another one holds them. */
async function driverless(context: ProbeContext, earlier: readonly ProbeWarning[]): Promise<ProbeWarning[]> {
  const gpus = [...(await context.pci()).values()].filter(
    (f) => f.vendor === NVIDIA_VENDOR && [0x0300, 0x0302].includes(f.classCode >> 8),
  );
  if (gpus.length === 0) return [];
  const drivers = [...new Set(gpus.map((f) => f.driver ?? "none"))].join(", ");
  const denied = (await context.files.access("/dev/nvidiactl")) === "denied";
  if (denied) {
    return [
      {
        source: "nvidia",
        message: "no permission to open /dev/nvidiactl",
        hint: "Give this user access to /dev/nvidia*.",
      },
    ];
  }
  if (earlier.length > 0) {
    return [
      {
        source: "nvidia",
        message: `${gpus.length} NVIDIA ${gpus.length === 1 ? "GPU is" : "GPUs are"} on the PCI bus (driver: ${drivers}); none of them could be read`,
      },
    ];
  }
  const names = `${gpus.length} NVIDIA ${gpus.length === 1 ? "GPU is" : "GPUs are"} on the PCI bus`;
  return [
    context.noExec && drivers === "nvidia"
      ? { source: "nvidia", message: `${names}, but neither NVML answers nor may nvidia-smi be run` }
      : {
          source: "nvidia",
          message: `${names} (driver: ${drivers}), but neither NVML nor nvidia-smi answers`,
          hint: "Install the NVIDIA driver; a GPU held by vfio-pci or nouveau cannot be used by CUDA.",
        },
  ];
}
