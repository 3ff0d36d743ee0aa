/** What NCCL can do here, from the library's version and symbols and the device's architecture, never from a build flag. */
import { DTYPE_NAMES, DTYPES, type DType } from "../../../core/index.ts";
import { NCCL_OPTIONAL, type NcclLibrary, type NcclOptionalSymbol } from "../../../foreign/nccl/index.ts";
import { type Capabilities, WIRE_OPS } from "../../comm/index.ts";
import type { CudaDeviceInfo } from "../../device/index.ts";

const NAMED_OPS = ["sum", "prod", "min", "max", "avg", "preMulSum"] as const;

/** Every operation of the contract: what NCCL lacks is composed of what it has. */
const OPERATIONS = [...WIRE_OPS, "shrink", "batch"];

/** What capabilities are read from. */
export type NcclFacts = Pick<NcclLibrary, "path" | "version" | "versionCode" | "optional">;

/** fp8 came with 2.24; reductions of it need sm_90 or newer (nccl.h, user guide "types"). */
function supportsFp8(library: NcclFacts, device: CudaDeviceInfo): boolean {
  return library.versionCode >= 22400 && device.computeCapability[0] >= 9;
}

/**
 * What this NCCL can do beside the contract's operations, each from its symbols. All versions that chorale works with
 * (2.14 and newer) have non-blocking communicators, operators that scale before they sum, and calls in CUDA graphs.
 */
function abilities({ optional, versionCode }: NcclFacts): Readonly<Record<string, boolean>> {
  const has = (...symbols: readonly NcclOptionalSymbol[]) => symbols.every((symbol) => optional[symbol] !== undefined);
  return {
    nonBlocking: true,
    preMulSum: true,
    graphs: true,
    /** Groups are made from their parent's connections; otherwise with a unique id of their own. */
    nativeSplit: has("ncclCommSplit"),
    nativeShrink: has("ncclCommShrink"),
    nativeAllToAll: has("ncclAlltoAll"),
    nativeGatherScatter: has("ncclGather", "ncclScatter"),
    revoke: has("ncclCommRevoke"),
    grow: has("ncclCommGrow"),
    memAlloc: has("ncclMemAlloc", "ncclMemFree"),
    registration: has("ncclCommRegister", "ncclCommDeregister"),
    symmetricWindows: has("ncclCommWindowRegister", "ncclCommWindowDeregister"),
    /** Several communicators end together, so that none blocks behind another's kernels (NVIDIA/nccl#1013). */
    groupedAbort: versionCode >= 22200,
  };
}

/** Whether NCCL may reduce in the switch: that needs a Hopper or newer device and NVSwitch; NCCL decides at init. */
export function nvlsPossible({ versionCode }: Pick<NcclFacts, "versionCode">, device: CudaDeviceInfo): boolean {
  return versionCode >= 21800 && device.computeCapability[0] >= 9 && process.env["NCCL_NVLS_ENABLE"] !== "0";
}

/**
 * @param registers whether the pool's memory is registered with NCCL
 * @param serving the backend's name, to programs, and what its tables of choices call this device, where it has some
 */
export function ncclCapabilities(
  library: NcclFacts,
  device: CudaDeviceInfo,
  registers = false,
  {
    backend,
    topology,
    spansHosts = false,
  }: { readonly backend: string; readonly topology?: string; readonly spansHosts?: boolean } = { backend: "nccl" },
): Capabilities {
  const fp8 = supportsFp8(library, device);
  const dtypes = DTYPE_NAMES.filter((dtype) => fp8 || DTYPES[dtype].sizeBytes > 1 || !DTYPES[dtype].isFloat);
  const optional = Object.keys(NCCL_OPTIONAL) as NcclOptionalSymbol[];
  return {
    backend,
    engineVersion: library.version,
    dtypes,
    reduceOps: Object.fromEntries(dtypes.map((dtype: DType) => [dtype, NAMED_OPS])),
    operations: OPERATIONS,
    deviceTensors: true,
    hostTensors: true,
    features: {
      library: library.path,
      device: device.name,
      ...(topology === undefined ? {} : { topology }),
      computeCapability: device.computeCapability.join("."),
      fp8,
      ...abilities(library),
      nvlsPossible: nvlsPossible(library, device),
      /** Ranks may differ in whether they make an all-reduce in place (see registrations.ts). */
      mixedInPlace: !registers,
      /** Between hosts the memory of a sender cannot be reached: NCCL moves what is in a batch. */
      ...(spansHosts ? { sendOutsideBatch: false } : {}),
      /** NCCL's float min and max drop NaN, and its 16- and 8-bit sums round at every hop. */
      minMaxPropagatesNan: false,
      accumulatesInF32: false,
      ...Object.fromEntries(optional.map((symbol) => [symbol, library.optional[symbol] !== undefined])),
    },
  };
}
