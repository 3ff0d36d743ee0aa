/** Device code: compiled by NVRTC, loaded as a module, launched by name. */
import { ClosedError } from "../../../core/index.ts";
import type { NativeValue } from "../../../foreign/native/index.ts";
import type { CudaDevice } from "./device.ts";
import type { Nvrtc } from "./nvrtc.ts";
import type { CudaStream } from "./stream.ts";

/** CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
const MAX_DYNAMIC_SHARED_SIZE = 8;

/** Grid and block sizes; shared memory in bytes. */
export interface LaunchShape {
  readonly grid: readonly [x: number, y?: number, z?: number];
  readonly block: readonly [x: number, y?: number, z?: number];
  readonly sharedBytes?: number;
}

/** One kernel argument: its C type decides how many bytes it takes. */
export type KernelArgument =
  | { readonly type: "u64" | "i64"; readonly value: bigint }
  | { readonly type: "u32" | "i32" | "f32"; readonly value: number };

/** Arguments laid out once, to be launched many times without allocating. */
export class KernelArguments {
  /** Each argument has eight bytes; the driver reads as many as the kernel's parameter has. */
  readonly #values: DataView;
  readonly pointers: BigUint64Array;

  constructor(device: CudaDevice, args: readonly KernelArgument[]) {
    const values = offHeap(Math.max(1, args.length));
    this.#values = new DataView(values.buffer);
    const base = device.driver.addressOf(values);
    this.pointers = offHeap(Math.max(1, args.length));
    for (let i = 0; i < args.length; i++) this.pointers[i] = base + BigInt(8 * i);
    args.forEach((argument, i) => {
      this.set(i, argument);
    });
  }

  set(index: number, argument: KernelArgument): void {
    const at = 8 * index;
    switch (argument.type) {
      case "u64":
        this.#values.setBigUint64(at, argument.value, true);
        break;
      case "i64":
        this.#values.setBigInt64(at, argument.value, true);
        break;
      case "u32":
        this.#values.setUint32(at, argument.value, true);
        break;
      case "i32":
        this.#values.setInt32(at, argument.value, true);
        break;
      case "f32":
        this.#values.setFloat32(at, argument.value, true);
        break;
    }
  }
}

/** Small typed arrays without a buffer of their own live on the moving heap: these never do. */
function offHeap(length: number): BigUint64Array {
  return new BigUint64Array(new ArrayBuffer(8 * length));
}

export class CudaKernel {
  readonly device: CudaDevice;
  readonly name: string;
  readonly #handle: bigint;

  constructor(device: CudaDevice, name: string, handle: bigint) {
    this.device = device;
    this.name = name;
    this.#handle = handle;
  }

  /** Lets the kernel use more dynamic shared memory than the default 48 KiB. */
  allowSharedBytes(bytes: number): void {
    this.device.call("cuFuncSetAttribute", this.name, this.#handle, MAX_DYNAMIC_SHARED_SIZE, bytes);
  }

  launch(stream: CudaStream, shape: LaunchShape, args: KernelArguments): void {
    stream.touched = true;
    const [gx, gy = 1, gz = 1] = shape.grid;
    const [bx, by = 1, bz = 1] = shape.block;
    const launch: readonly NativeValue[] = [gx, gy, gz, bx, by, bz, shape.sharedBytes ?? 0, stream.handle];
    this.device.call("cuLaunchKernel", this.name, this.#handle, ...launch, args.pointers, null);
  }
}

export class CudaModule implements Disposable {
  readonly device: CudaDevice;
  #handle: bigint | undefined;

  private constructor(device: CudaDevice, handle: bigint) {
    this.device = device;
    this.#handle = handle;
    device.track(this);
  }

  /** Loads a cubin, fatbin or PTX image. @throws NativeError when it does not fit the device */
  static load(device: CudaDevice, image: Uint8Array): CudaModule {
    return new CudaModule(
      device,
      device.make("module", (out) => device.call("cuModuleLoadData", "module load", out, image)),
    );
  }

  /** Compiles CUDA C++ for this device and loads it. @throws NativeError with the compiler's log */
  static compile(device: CudaDevice, nvrtc: Nvrtc, source: string, options: readonly string[] = []): CudaModule {
    return CudaModule.load(device, nvrtc.compile(source, device.info.computeCapability, options));
  }

  /**
   * @throws NativeError when the module has no such kernel (declare it `extern "C"`)
   * @throws ClosedError when the module was closed
   */
  kernel(name: string): CudaKernel {
    if (this.#handle === undefined) throw new ClosedError("module", "was closed");
    const out = new BigUint64Array(1);
    this.device.call("cuModuleGetFunction", name, out, this.#handle, name);
    return new CudaKernel(this.device, name, out[0] ?? 0n);
  }

  close(): void {
    const handle = this.#handle;
    if (handle === undefined) return;
    this.#handle = undefined;
    this.device.untrack(this, "module", handle);
    if (this.device.poison === undefined && !this.device.closed) this.device.call("cuModuleUnload", "module", handle);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
