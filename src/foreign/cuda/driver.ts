/** The CUDA driver, loaded once per thread, and its errors. */
import { NativeError, type Unavailable, UnavailableError } from "../../core/index.ts";
import {
  addressOf,
  bindAll,
  bindOptional,
  declareStruct,
  keepLoaded,
  type LibrarySpec,
  type NativeLibrary,
  openLibrary,
  readString,
  type StatusFunction,
  viewMemory,
} from "../native/index.ts";
import { DRIVER_FOLDERS } from "./search-folders.ts";
import {
  CUDA_MAPPING_PROTOTYPES,
  CUDA_OPTIONAL_PROTOTYPES,
  CUDA_PROTOTYPES,
  CUDA_STATUS,
  type CudaMappingSymbol,
  type CudaSymbol,
} from "./symbols.ts";

/** The driver's functions and what every user of them needs. */
export class CudaDriver {
  readonly library: NativeLibrary;
  readonly api: Readonly<Record<CudaSymbol, StatusFunction>>;
  /** CUDA version that the driver supports, `[13, 0]`. */
  readonly version: readonly [major: number, minor: number];
  /** Visible devices (CUDA_VISIBLE_DEVICES is respected by the driver itself). */
  readonly numDevices: number;
  /** cuFuncGetParamInfo, where the driver has it. */
  readonly getParamInfo: StatusFunction | undefined;
  readonly getFunctionAttribute: StatusFunction | undefined;
  #openIpcHandle: StatusFunction | undefined;
  #mapping: Readonly<Record<CudaMappingSymbol, StatusFunction>> | undefined;

  constructor(library: NativeLibrary) {
    this.library = library;
    this.api = bindAll(library, CUDA_PROTOTYPES);
    this.getParamInfo = bindOptional(library, "cuFuncGetParamInfo", CUDA_OPTIONAL_PROTOTYPES.cuFuncGetParamInfo);
    this.getFunctionAttribute = bindOptional(
      library,
      "cuFuncGetAttribute",
      CUDA_OPTIONAL_PROTOTYPES.cuFuncGetAttribute,
    );
    this.check("cuInit", this.api.cuInit(0));
    const out = new Int32Array(1);
    this.check("cuDriverGetVersion", this.api.cuDriverGetVersion(out));
    this.version = [Math.floor((out[0] ?? 0) / 1000), Math.floor(((out[0] ?? 0) % 1000) / 10)];
    this.check("cuDeviceGetCount", this.api.cuDeviceGetCount(out));
    this.numDevices = out[0] ?? 0;
  }

  /** @throws NativeError when `status` is not success */
  check(symbol: CudaSymbol | CudaMappingSymbol, status: number): void {
    if (status !== CUDA_STATUS.success) throw this.error(symbol, status);
  }

  /** The error of a status that `symbol` returned, with the driver's own text. */
  error(symbol: string, status: number): NativeError {
    return new NativeError("CUDA driver", symbol, status, this.#errorText(status));
  }

  /** Where a typed array's elements lie. Valid as long as its buffer is neither collected nor transferred. */
  addressOf(array: ArrayBufferView): bigint {
    return addressOf(array);
  }

  /** The host memory at an address, without a copy. Nothing checks that it is mapped. */
  viewMemory(address: bigint, sizeBytes: number): ArrayBuffer {
    return viewMemory(address, sizeBytes);
  }

  /** cuIpcOpenMemHandle, which takes its 64-byte handle by value. */
  get openIpcHandle(): StatusFunction {
    if (this.#openIpcHandle === undefined) {
      declareStruct("ChoraleIpcMemHandle", { reserved: "uint8_t [64]" });
      this.#openIpcHandle = bindOptional(
        this.library,
        "cuIpcOpenMemHandle_v2",
        CUDA_OPTIONAL_PROTOTYPES.cuIpcOpenMemHandle_v2,
      );
    }
    if (this.#openIpcHandle === undefined) {
      throw new UnavailableError("CUDA IPC", "the driver lacks cuIpcOpenMemHandle_v2", "Update the NVIDIA driver.");
    }
    return this.#openIpcHandle;
  }

  /** Functions for memory by handles. @throws NativeError when the driver lacks one */
  get mapping(): Readonly<Record<CudaMappingSymbol, StatusFunction>> {
    this.#mapping ??= bindAll(this.library, CUDA_MAPPING_PROTOTYPES);
    return this.#mapping;
  }

  #errorText(status: number): string {
    const out = new BigUint64Array(1);
    const name = this.api.cuGetErrorName(status, out) === 0 ? readString(out[0] ?? 0n) : "unknown error";
    const text = this.api.cuGetErrorString(status, out) === 0 ? readString(out[0] ?? 0n) : "";
    return text === "" || text === name ? name : `${name}: ${text}`;
  }
}

let loaded: CudaDriver | Unavailable | undefined;

/** Where the driver is looked for. */
export const CUDA_LIBRARY: LibrarySpec = {
  name: "the NVIDIA driver (libcuda)",
  variable: "CHORALE_CUDA_LIBRARY",
  files: process.platform === "win32" ? ["nvcuda.dll"] : ["libcuda.so.1", "libcuda.so"],
  folders: DRIVER_FOLDERS,
  requires: ["cuInit"],
  howToGetIt:
    "Install the NVIDIA driver (in a container: run it with --gpus all), or name the library in CHORALE_CUDA_LIBRARY.",
};

/**
 * Loads the driver, or says why there is none. Tried once per thread.
 * @example
 * import { loadCudaDriver } from "chorale/device";
 *
 * const driver = loadCudaDriver();
 * console.log("available" in driver ? driver.why : `${driver.numDevices} devices, CUDA ${driver.version.join(".")}`);
 */
export function loadCudaDriver(): CudaDriver | Unavailable {
  if (loaded !== undefined) return loaded;
  const library = openLibrary(CUDA_LIBRARY);
  if (!library.available) {
    loaded = library;
    return loaded;
  }
  try {
    keepLoaded(library);
    loaded = new CudaDriver(library);
  } catch (error) {
    loaded = {
      available: false,
      what: "the NVIDIA driver (libcuda)",
      why: error instanceof Error ? error.message : String(error),
      howToGetIt: "Run `chorale doctor`: it compares the driver, the kernel module and the devices.",
      ...(error instanceof NativeError ? { cause: error } : {}),
    };
  }
  return loaded;
}

/** Loads the driver. @throws UnavailableError */
export function requireCudaDriver(): CudaDriver {
  const driver = loadCudaDriver();
  if ("available" in driver) throw new UnavailableError(driver.what, driver.why, driver.howToGetIt);
  return driver;
}
