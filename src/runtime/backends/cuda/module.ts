/** Device code: compiled by NVRTC, loaded as a module, launched by name. */
import { ClosedError, InvalidArgumentError } from "../../../core/index.ts";
import type { NativeValue } from "../../../foreign/native/index.ts";
import type { CudaDevice } from "./device.ts";
import type { Nvrtc } from "./nvrtc.ts";
import { type CudaStream, streamHandle } from "./stream.ts";

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
  readonly #length: number;
  readonly pointers: BigUint64Array;

  constructor(device: CudaDevice, args: readonly KernelArgument[]) {
    const values = offHeap(Math.max(1, args.length));
    this.#values = new DataView(values.buffer);
    this.#length = args.length;
    const base = device.driver.addressOf(values);
    this.pointers = offHeap(Math.max(1, args.length));
    for (let i = 0; i < args.length; i++) this.pointers[i] = base + BigInt(8 * i);
    args.forEach((argument, i) => {
      this.set(i, argument);
    });
  }

  /** Changes an argument. @throws InvalidArgumentError for one that is not there, or a value that does not fit its type */
  set(index: number, argument: KernelArgument): void {
    if (!Number.isInteger(index) || index < 0 || index >= this.#length) {
      throw new InvalidArgumentError("index", index, `an argument's number, 0 to ${this.#length - 1}`);
    }
    const wanted = /64$/.test(argument.type) ? "bigint" : "number";
    if (typeof argument.value !== wanted) {
      throw new InvalidArgumentError(`args[${index}]`, argument.value, `a ${wanted}, for its type is ${argument.type}`);
    }
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

/** A kernel of a loaded module. `CudaModule.kernel` makes it. */
export class CudaKernel {
  readonly device: CudaDevice;
  readonly name: string;
  readonly #module: CudaModule;
  readonly #handle: bigint;

  /** Use `CudaModule.kernel`. */
  constructor(module: CudaModule, name: string, handle: bigint) {
    this.device = module.device;
    this.name = name;
    this.#module = module;
    this.#handle = handle;
  }

  /** @throws ClosedError when the module was closed, and the kernel with it */
  get #live(): bigint {
    if (this.#module.closed) throw new ClosedError(`kernel ${this.name}`, "belongs to a module that was closed");
    return this.#handle;
  }

  /** Lets the kernel use more dynamic shared memory than the default 48 KiB. */
  allowSharedBytes(bytes: number): void {
    this.device.call("cuFuncSetAttribute", this.name, this.#live, MAX_DYNAMIC_SHARED_SIZE, bytes);
  }

  /**
   * Runs the kernel on `stream`. The driver copies the arguments before this returns.
   * @throws ClosedError when the module or the stream was closed; InvalidArgumentError for a stream of another device
   */
  launch(stream: CudaStream, shape: LaunchShape, args: KernelArguments): void {
    if (!(args instanceof KernelArguments)) {
      throw new InvalidArgumentError("args", args, "KernelArguments, which hold what the driver reads");
    }
    const [gx, gy = 1, gz = 1] = shape.grid;
    const [bx, by = 1, bz = 1] = shape.block;
    const launch: readonly NativeValue[] = [gx, gy, gz, bx, by, bz, shape.sharedBytes ?? 0];
    const on = streamHandle(this.device, stream);
    this.device.call("cuLaunchKernel", this.name, this.#live, ...launch, on, args.pointers, null);
    stream.touched = true;
  }
}

/**
 * Device code that is loaded on one device.
 * @example
 * import type { Tensor } from "chorale";
 * import { CudaModule, devicePtr, KernelArguments, type RankDevice, requireNvrtc } from "chorale/cuda";
 *
 * // Doubles `x` on the rank's main stream: collectives that are called afterwards come behind it.
 * export function doubler({ device, main, generation }: RankDevice, x: Tensor<"f32">): () => void {
 *   const source = `extern "C" __global__ void twice(float* x, unsigned n) {
 *     const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
 *     if (i < n) x[i] *= 2;
 *   }`;
 *   const kernel = CudaModule.compile(device, requireNvrtc(), source).kernel("twice");
 *   const args = new KernelArguments(device, [
 *     { type: "u64", value: devicePtr(x, device, generation) },
 *     { type: "u32", value: x.size },
 *   ]);
 *   return () => kernel.launch(main, { grid: [Math.ceil(x.size / 256)], block: [256] }, args);
 * }
 */
export class CudaModule implements Disposable {
  readonly device: CudaDevice;
  #handle: bigint | undefined;

  private constructor(device: CudaDevice, handle: bigint) {
    this.device = device;
    this.#handle = handle;
    device.track(this);
  }

  get closed(): boolean {
    return this.#handle === undefined;
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
    return new CudaKernel(this, name, out[0] ?? 0n);
  }

  /** Unloads it, and its kernels with it. Idempotent. */
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
