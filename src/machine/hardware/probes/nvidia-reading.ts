/** What is known of one NVIDIA GPU, whichever source told: NVML and nvidia-smi both give this, and one place reads it. */

export interface NvidiaMig {
  readonly index: number;
  readonly name?: string;
  readonly uuid?: string;
  readonly memoryTotalBytes?: number;
  readonly memoryUsedBytes?: number;
  readonly memoryFreeBytes?: number;
}

export interface NvidiaReading {
  readonly index: number;
  readonly name?: string;
  readonly uuid?: string;
  readonly pciAddress?: string;
  readonly memoryTotalBytes?: number;
  readonly memoryUsedBytes?: number;
  readonly memoryFreeBytes?: number;
  readonly computeCapability?: string;
  readonly memoryBusWidthBits?: number;
  readonly temperatureC?: number;
  readonly powerWatts?: number;
  readonly powerLimitWatts?: number;
  readonly utilizationPercent?: number;
  readonly pcieGeneration?: number;
  readonly pcieMaxGeneration?: number;
  readonly pcieWidth?: number;
  readonly pcieMaxWidth?: number;
  readonly eccEnabled?: boolean;
  readonly eccCorrected?: number;
  readonly eccUncorrected?: number;
  readonly smClockMHz?: number;
  readonly memoryClockMHz?: number;
  readonly maxSmClockMHz?: number;
  readonly maxMemoryClockMHz?: number;
  readonly throttleReasons?: string;
  readonly migEnabled?: boolean;
  readonly mig?: readonly NvidiaMig[];
  readonly processes?: readonly { readonly pid: number; readonly name?: string; readonly usedBytes?: number }[];
  readonly links?: {
    readonly active: number;
    readonly inactive: number;
    /** Of one link, one direction. */
    readonly linkGBps?: number;
    readonly version?: number;
    /** Active links by what is at their other end, where the source says so. */
    readonly toSwitch?: number;
    readonly toGpu?: ReadonlyMap<string, number>;
  };
  /** Active NVLink-C2C links to the CPU of a superchip, and the rate of one in one direction. */
  readonly c2c?: { readonly count: number; readonly linkGBps?: number };
  /** How far the fabric manager came with the GPU's NVLinks: `Completed`, `In Progress`, `Not Started`. */
  readonly fabricState?: string;
  readonly fabricStatus?: string;
}

/** All GPUs and what is common to them. */
export interface NvidiaReadings {
  readonly driverVersion?: string;
  readonly cudaVersion?: string;
  readonly gpus: readonly NvidiaReading[];
  /** Cells of `nvidia-smi topo -m`, by GPU index: `NV18`, `PIX`, `SYS`. */
  readonly matrix: ReadonlyMap<string, string>;
  /** How a GPU reaches a NIC, as `topo -m` says. */
  readonly nics?: readonly { readonly gpu: number; readonly nic: string; readonly relation: string }[];
  /** Pairs whose peer access the driver refuses, by GPU index, and why. */
  readonly peerDenied?: ReadonlyMap<string, string>;
  /** PCI addresses of GPUs that the driver cannot reach. */
  readonly lost?: readonly string[];
}

/** GPUs that hang on their CPU by NVLink-C2C; their PCIe link carries configuration only. */
export function isSuperchip(name: string | undefined): boolean {
  return /\b(GB10|GH200|GB[23]00)\b/.test(name ?? "");
}

/** Modules on a baseboard with NVSwitches: all their NVLinks should be up. A card may lack its bridge. */
export function isOnBaseboard(name: string): boolean {
  return /SXM|80GB HBM3$|\b(H200|H20|H800|B200|B300|GB200|GB300)$/.test(name);
}

/** Why the driver refuses peer access to a product that it gives none, such as GeForce: nothing on the host would mend it. */
export const PRODUCT_WITHOUT_PEERS = "the GPU does not support it";

/** The key of a pair in `matrix` and `peerDenied`. */
export function pairKey(a: number, b: number): string {
  return a < b ? `${a}-${b}` : `${b}-${a}`;
}

/** NVML's and nvidia-smi's bit mask of reasons why the clock is lowered (nvml.h, nvmlClocksEventReason*). */
const THROTTLE_REASONS: readonly (readonly [number, string])[] = [
  [0x1, "gpu idle"],
  [0x2, "applications clocks setting"],
  [0x4, "software power cap"],
  [0x8, "hardware slowdown"],
  [0x10, "sync boost"],
  [0x20, "software thermal slowdown"],
  [0x40, "hardware thermal slowdown"],
  [0x80, "hardware power brake"],
  [0x100, "display clock setting"],
];

/** The reasons in words, from a hexadecimal mask. */
export function throttleReasons(mask: string | undefined): string[] {
  const bits = Number.parseInt(mask ?? "", 16);
  if (!Number.isFinite(bits)) return [];
  return THROTTLE_REASONS.filter(([bit]) => Math.floor(bits / bit) % 2 === 1).map(([, reason]) => reason);
}

/** GB/s of one NVLink in one direction and its generation, by compute capability: for when a tool gives only counts. */
export function nvlinkOf(
  capability: string | undefined,
): { readonly linkGBps: number; readonly generation: number } | undefined {
  const [major, minor] = (capability ?? "").split(".").map(Number);
  if (major === 6) return { linkGBps: 20, generation: 1 };
  if (major === 7) return { linkGBps: 25.781, generation: 2 };
  if (major === 8) return minor === 0 ? { linkGBps: 25, generation: 3 } : { linkGBps: 14.062, generation: 3 };
  if (major === 9) return { linkGBps: 26.562, generation: 4 };
  if (major === 10) return { linkGBps: 53.125, generation: 5 };
  return undefined;
}

/** The generation that a link's rate stands for. */
export function nvlinkGeneration(linkGBps: number): number | undefined {
  const rates = [
    [20, 1],
    [25.781, 2],
    [25, 3],
    [14.062, 3],
    [26.562, 4],
    [53.125, 5],
  ] as const;
  return rates.find(([rate]) => Math.abs(rate - linkGBps) < 0.02)?.[1];
}
