/** Device code: compiled by NVRTC, loaded as a module, launched by name. */
import { ClosedError, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { CUDA_STATUS, type Nvrtc } from "../../foreign/cuda/index.ts";
import { checkMade, MADE_HERE, type MadeHere } from "./construction-key.ts";
import { type CudaDevice, checkDevice } from "./device.ts";
import { moduleImage } from "./module-image.ts";
import { type CudaStream, streamNumber } from "./stream.ts";

/** CU_FUNC_ATTRIBUTE_NUM_REGS */
const NUM_REGISTERS = 4;
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
  | { readonly type: "u32" | "i32" | "f32" | "f64"; readonly value: number }
  /** A struct that is passed by value, in words of 8 bytes. It keeps its length. */
  | { readonly type: "words"; readonly value: BigUint64Array };

/** Bytes of each type, and its least and largest value where it is an integer: a value beyond them would wrap. */
const ARGUMENT_TYPES = {
  u64: { sizeBytes: 8, isBigint: true, range: [0n, 2n ** 64n - 1n] },
  i64: { sizeBytes: 8, isBigint: true, range: [-(2n ** 63n), 2n ** 63n - 1n] },
  u32: { sizeBytes: 4, isBigint: false, range: [0, 2 ** 32 - 1] },
  i32: { sizeBytes: 4, isBigint: false, range: [-(2 ** 31), 2 ** 31 - 1] },
  f32: { sizeBytes: 4, isBigint: false, range: undefined },
  f64: { sizeBytes: 8, isBigint: false, range: undefined },
} as const;

/** Where the pointers to arguments lie, for the driver. */
let placeOf: (args: KernelArguments) => number;

/**
 * A launch as the node of a graph (CUDA_KERNEL_NODE_PARAMS_v2): words that the driver reads.
 * @throws ClosedError, InvalidArgumentError as `CudaKernel.launch`
 */
export let launchWords: (kernel: CudaKernel, shape: LaunchShape, args: KernelArguments) => BigUint64Array;

/** Arguments laid out once, to be launched many times without allocating. */
export class KernelArguments {
  /** Each argument has eight bytes, a struct as many as it takes; the driver reads as many as the kernel's parameter has. */
  readonly #values: DataView;
  readonly #length: number;
  /** Where each argument lies among the values. */
  readonly #offsets: readonly number[];
  readonly pointers: BigUint64Array;
  readonly #address: number;
  /** Bytes of each argument. */
  readonly sizes: Uint16Array;

  static {
    placeOf = (args) => args.#address;
  }

  /** @throws InvalidArgumentError for an argument that does not fit its type */
  constructor(device: CudaDevice, args: readonly KernelArgument[]) {
    checkDevice(device);
    if (!Array.isArray(args)) throw new InvalidArgumentError("args", args, "an array of kernel arguments");
    this.sizes = new Uint16Array(args.length);
    const offsets: number[] = [];
    let words = 0;
    for (const argument of args) {
      offsets.push(8 * words);
      words += isStruct(argument) ? argument.value.length : 1;
    }
    this.#offsets = offsets;
    const values = offHeap(Math.max(1, words));
    this.#values = new DataView(values.buffer);
    this.#length = args.length;
    const base = device.driver.addressOf(values);
    this.pointers = offHeap(Math.max(1, args.length));
    for (let i = 0; i < args.length; i++) this.pointers[i] = base + BigInt(offsets[i]!);
    this.#address = Number(device.driver.addressOf(this.pointers));
    args.forEach((argument, i) => {
      if (isStruct(argument)) this.sizes[i] = argument.value.byteLength;
      this.set(i, argument);
    });
  }

  /**
   * The words of a struct, where the driver reads them at each launch: writing one changes the argument.
   * @throws InvalidArgumentError for an argument that is not there, or is no struct
   * @example
   * import { type CudaDevice, KernelArguments } from "chorale/device";
   *
   * // A kernel of one struct parameter: two numbers of 64 bits, the second of them counted up before each launch.
   * export function counted(device: CudaDevice, address: bigint): { args: KernelArguments; next: () => void } {
   *   const args = new KernelArguments(device, [{ type: "words", value: BigUint64Array.of(address, 0n) }]);
   *   const words = args.words(0);
   *   return { args, next: () => void (words[1] = (words[1] ?? 0n) + 1n) };
   * }
   */
  words(index: number): BigUint64Array {
    const at = this.#offsets[index];
    const bytes = this.sizes[index];
    if (at === undefined || bytes === undefined || bytes <= 8)
      throw new InvalidArgumentError("index", index, "a struct's number");
    return new BigUint64Array(this.#values.buffer as ArrayBuffer, at, bytes / 8);
  }

  /** Changes an argument. @throws InvalidArgumentError for one that is not there, or a value that does not fit its type */
  set(index: number, argument: KernelArgument): void {
    if (!Number.isInteger(index) || index < 0 || index >= this.#length) {
      throw new InvalidArgumentError("index", index, `an argument's number, 0 to ${this.#length - 1}`);
    }
    if (typeof argument !== "object" || argument === null) {
      throw new InvalidArgumentError(`args[${index}]`, argument, "an argument: its type and its value");
    }
    if (isStruct(argument)) {
      const { value } = argument;
      if (this.sizes[index] !== value.byteLength)
        throw new InvalidArgumentError(
          `args[${index}]`,
          described(`${value.length} words`),
          `${this.sizes[index]! / 8}, as before`,
        );
      const at = this.#offsets[index]!;
      for (let i = 0; i < value.length; i++) this.#values.setBigUint64(at + 8 * i, value[i]!, true);
      return;
    }
    const type = Object.hasOwn(ARGUMENT_TYPES, argument.type) ? ARGUMENT_TYPES[argument.type] : undefined;
    if (type === undefined) {
      throw new InvalidArgumentError(
        `args[${index}].type`,
        argument.type,
        `one of ${Object.keys(ARGUMENT_TYPES).join(", ")}`,
      );
    }
    const { value } = argument;
    const what = `args[${index}]`;
    if (type.isBigint ? typeof value !== "bigint" : typeof value !== "number") {
      const wanted = type.isBigint ? "bigint" : "number";
      throw new InvalidArgumentError(what, value, `a ${wanted}, for its type is ${argument.type}`);
    }
    if (type.range !== undefined) {
      const [least, most] = type.range;
      const isInteger = typeof value === "bigint" || Number.isInteger(value);
      if (!isInteger || value < least || value > most) {
        throw new InvalidArgumentError(what, value, `an integer of ${argument.type}, ${least} to ${most}`);
      }
    }
    this.sizes[index] = type.sizeBytes;
    const at = this.#offsets[index]!;
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
      case "f64":
        this.#values.setFloat64(at, argument.value, true);
        break;
    }
  }
}

type StructArgument = Extract<KernelArgument, { readonly type: "words" }>;

function isStruct(argument: unknown): argument is StructArgument {
  const given = argument as Partial<StructArgument> | null | undefined;
  return typeof given === "object" && given?.type === "words" && given.value instanceof BigUint64Array;
}

/** Small typed arrays without a buffer of their own live on the moving heap: these never do. */
function offHeap(length: number): BigUint64Array {
  return new BigUint64Array(new ArrayBuffer(8 * length));
}

/** More parameters than any kernel has: 32,764 bytes are the most since CUDA 12.1. */
const MAX_PARAMS = 32_764;

/** Asks the driver for the sizes of a kernel's parameters. @returns undefined when it cannot say */
function paramSizes(device: CudaDevice, kernel: bigint): readonly number[] | undefined {
  const ask = device.driver.getParamInfo;
  if (ask === undefined) return undefined;
  const out = new BigUint64Array(2);
  const sizes: number[] = [];
  while (sizes.length <= MAX_PARAMS) {
    const status = ask(kernel, sizes.length, out.subarray(0, 1), out.subarray(1, 2));
    // The first number that is not a valid size.
    if (status === CUDA_STATUS.invalidValue) return sizes;
    if (status !== CUDA_STATUS.success) return undefined;
    sizes.push(Number(out[1]));
  }
  return undefined;
}

/** A kernel of a loaded module. `CudaModule.kernel` makes it. */
export class CudaKernel {
  readonly device: CudaDevice;
  readonly name: string;
  readonly #module: CudaModule;
  readonly #handle: bigint;
  /** The handle as a number, which passes through FFI sooner. */
  readonly #number: number;
  /** Bytes of each parameter, where the driver can say (CUDA 12.4). */
  readonly #params: readonly number[] | undefined;

  static {
    launchWords = (kernel, { grid, block, sharedBytes = 0 }, args) => {
      kernel.#checkArguments(args);
      kernel.#checkLive();
      const words = offHeap(9);
      words.set([kernel.#handle, 0n, 0n, 0n, 0n, BigInt(placeOf(args))]);
      const sizes = [grid[0], grid[1] ?? 1, grid[2] ?? 1, block[0], block[1] ?? 1, block[2] ?? 1, sharedBytes];
      new Uint32Array(words.buffer).set(sizes, 2);
      return words;
    };
  }

  /** For `CudaModule.kernel`: anybody else is refused. */
  constructor(key: MadeHere, module: CudaModule, name: string, handle: bigint) {
    checkMade(key, "CudaKernel", "module.kernel(name)");
    this.device = module.device;
    this.name = name;
    this.#module = module;
    this.#handle = handle;
    this.#number = Number(handle);
    this.#params = paramSizes(module.device, handle);
  }

  /** @throws ClosedError when the module was closed, and the kernel with it */
  #checkLive(): void {
    if (this.#module.closed) throw new ClosedError(`kernel ${this.name}`, "belongs to a module that was closed");
  }

  /** The driver reads one argument per parameter, beyond the end of what was given if need be. */
  #checkArguments({ sizes }: KernelArguments): void {
    const params = this.#params;
    if (params === undefined) return;
    if (sizes.length !== params.length) {
      throw new InvalidArgumentError(
        "args",
        described(`${sizes.length} arguments`),
        `${params.length}, as kernel ${this.name} has parameters`,
      );
    }
    for (let i = 0; i < params.length; i++) {
      if (sizes[i] === params[i]) continue;
      const wanted = `one of ${params[i]} bytes, as parameter ${i} of kernel ${this.name} has`;
      throw new InvalidArgumentError(`args[${i}]`, described(`an argument of ${sizes[i]} bytes`), wanted);
    }
  }

  /** Registers that a thread takes; `undefined` where the driver cannot say. */
  get numRegisters(): number | undefined {
    this.#checkLive();
    const out = new Int32Array(1);
    const status = this.device.driver.getFunctionAttribute?.(out, NUM_REGISTERS, this.#handle);
    return status === CUDA_STATUS.success ? out[0] : undefined;
  }

  /** Lets the kernel use more dynamic shared memory than the default 48 KiB. */
  allowSharedBytes(bytes: number): void {
    this.#checkLive();
    this.device.call("cuFuncSetAttribute", this.name, this.#handle, MAX_DYNAMIC_SHARED_SIZE, bytes);
  }

  /**
   * Runs the kernel on `stream`. The driver copies the arguments before this returns.
   * @throws ClosedError when the module or the stream was closed; InvalidArgumentError for a stream of another device, and (from CUDA
   *   12.4) for arguments that are not as many and as large as the kernel's parameters
   */
  launch(stream: CudaStream, shape: LaunchShape, args: KernelArguments): void {
    if (!(args instanceof KernelArguments)) {
      throw new InvalidArgumentError("args", args, "KernelArguments, which hold what the driver reads");
    }
    this.#checkArguments(args);
    // Small calls launch once each. Taking arrays apart would go through their iterators.
    const { grid, block, sharedBytes = 0 } = shape;
    const { device } = this;
    const on = streamNumber(device, stream);
    this.#checkLive();
    device.activate();
    // What `device.call` does, without gathering the arguments and spreading them again.
    const launch = device.driver.api.cuLaunchKernel;
    const status = launch(
      this.#number,
      grid[0],
      grid[1] ?? 1,
      grid[2] ?? 1,
      block[0],
      block[1] ?? 1,
      block[2] ?? 1,
      sharedBytes,
      on,
      placeOf(args),
      0,
    );
    if (status !== CUDA_STATUS.success) device.fail("cuLaunchKernel", status, this.name);
    stream.touched = true;
  }
}

/**
 * Device code that is loaded on one device.
 * @example
 * import type { Tensor } from "chorale";
 * import { CudaModule, devicePtr, KernelArguments, type RankDevice, requireNvrtc } from "chorale/device";
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

  private constructor(key: MadeHere, device: CudaDevice, handle: bigint) {
    checkMade(key, "CudaModule", "CudaModule.load(device, image)");
    this.device = device;
    this.#handle = handle;
    device.track(this);
  }

  get closed(): boolean {
    return this.#handle === undefined;
  }

  /**
   * Loads a cubin, a fatbin, or PTX (text, or its bytes, with or without a NUL at the end).
   * @throws InvalidArgumentError for another kind of image, or an incomplete one; NativeError when it does not fit the device
   */
  static load(device: CudaDevice, image: string | Uint8Array): CudaModule {
    checkDevice(device);
    const checked = moduleImage(image);
    return new CudaModule(
      MADE_HERE,
      device,
      device.make("module", (out) => device.call("cuModuleLoadData", "module load", out, checked)),
    );
  }

  /** Compiles CUDA C++ for this device and loads it. @throws NativeError with the compiler's log */
  static compile(device: CudaDevice, nvrtc: Nvrtc, source: string, options: readonly string[] = []): CudaModule {
    return CudaModule.load(device, nvrtc.compile(source, device.info.computeCapability, options));
  }

  /**
   * @throws InvalidArgumentError for an invalid name; NativeError when the module has no such kernel (declare it `extern "C"`)
   * @throws ClosedError when the module was closed
   */
  kernel(name: string): CudaKernel {
    if (this.#handle === undefined) throw new ClosedError("module", "was closed");
    if (typeof name !== "string") throw new InvalidArgumentError("name", name, "a kernel's name");
    const out = new BigUint64Array(1);
    this.device.call("cuModuleGetFunction", name, out, this.#handle, name);
    return new CudaKernel(MADE_HERE, this, name, out[0] ?? 0n);
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
