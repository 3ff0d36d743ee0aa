/** What NCCL can do here, from the library's version and symbols and the device's architecture, never from a build flag. */
import { DTYPE_NAMES, DTYPES, type DType } from "../../../core/index.ts";
import { type Capabilities, WIRE_OPS } from "../../comm/index.ts";
import type { CudaDeviceInfo } from "../cuda/device.ts";
import type { NcclLibrary } from "./library.ts";
import { NCCL_OPTIONAL, type NcclOptionalSymbol } from "./symbols.ts";

const NAMED_OPS = ["sum", "prod", "min", "max", "avg", "preMulSum"] as const;

/** Every operation of the contract: what NCCL lacks is composed of what it has. */
const OPERATIONS = [...WIRE_OPS, "shrink", "batch"];

/** fp8 came with 2.24; reductions of it need sm_90 or newer (nccl.h, user guide "types"). */
export function supportsFp8(library: NcclLibrary, device: CudaDeviceInfo): boolean {
  return library.versionCode >= 22400 && device.computeCapability[0] >= 9;
}

export function ncclCapabilities(library: NcclLibrary, device: CudaDeviceInfo): Capabilities {
  const fp8 = supportsFp8(library, device);
  const dtypes = DTYPE_NAMES.filter((dtype) => fp8 || DTYPES[dtype].sizeBytes > 1 || !DTYPES[dtype].isFloat);
  const optional = Object.keys(NCCL_OPTIONAL) as NcclOptionalSymbol[];
  return {
    backend: "nccl",
    engineVersion: library.version,
    dtypes,
    reduceOps: Object.fromEntries(dtypes.map((dtype: DType) => [dtype, NAMED_OPS])),
    operations: OPERATIONS,
    deviceTensors: true,
    hostTensors: true,
    features: {
      library: library.path,
      device: device.name,
      computeCapability: device.computeCapability.join("."),
      fp8,
      /** In-switch reduction needs a Hopper or newer device and NVSwitch; NCCL decides at init. */
      nvlsPossible:
        library.versionCode >= 21800 && device.computeCapability[0] >= 9 && process.env["NCCL_NVLS_ENABLE"] !== "0",
      /** NCCL's float min and max drop NaN, and its 16- and 8-bit sums round at every hop. */
      minMaxPropagatesNan: false,
      accumulatesInF32: false,
      ...Object.fromEntries(optional.map((symbol) => [symbol, library.optional[symbol] !== undefined])),
    },
  };
}
