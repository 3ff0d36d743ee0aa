/**
 * Tensors in device memory. Their storage names the pool's piece, the device and the generation; an address is only
 * ever taken from a storage that this module made, so a forged or stale handle is refused, not followed.
 */
import {
  ClosedError,
  type DevicePtr,
  type DType,
  InvalidArgumentError,
  invariant,
  numElements,
  parseDType,
  type Storage,
  sizeOf,
  Tensor,
} from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { checkMade, MADE_HERE, type MadeHere } from "./construction-key.ts";
import type { CudaDevice } from "./device.ts";
import { type Allocation, checkPool, type MemoryPool } from "./memory-pool.ts";
import type { CudaStream } from "./stream.ts";

/** Says whether `deviceTensor` made a storage. */
let isGenuine: (storage: object) => storage is DeviceStorage;

/**
 * Device memory of one tensor and its views. Freed once, by `free`, or when nothing refers to it any more. `deviceTensor`
 * makes it; it is frozen, so that what was freed stays so.
 */
export class DeviceStorage implements Storage {
  readonly kind = "device";
  readonly buffer = undefined;
  readonly sizeBytes: number;
  readonly generation: number;
  readonly pool: MemoryPool;
  readonly allocation: Allocation;
  /** The address as a number: CUDA addresses have 57 bits at most in theory and 49 in practice; checked when made. */
  readonly baseAddress: number;
  #closed: string | undefined;

  /** For `deviceTensor`: anybody else is refused. */
  constructor(key: MadeHere, pool: MemoryPool, allocation: Allocation, sizeBytes: number, generation: number) {
    checkMade(key, "DeviceStorage", "deviceTensor(pool, stream, dtype, shape)");
    this.pool = pool;
    this.allocation = allocation;
    this.sizeBytes = sizeBytes;
    this.generation = generation;
    this.baseAddress = Number(allocation.address);
    invariant(Number.isSafeInteger(this.baseAddress), "a device address beyond 2^53");
    Object.freeze(this);
  }

  static {
    isGenuine = (storage): storage is DeviceStorage => #closed in storage;
  }

  /** Why it may not be used any more, once it was freed. */
  get closed(): string | undefined {
    return this.#closed;
  }

  get device(): CudaDevice {
    return this.pool.device;
  }

  /** Gives the memory back to its pool; later use of it is refused. Idempotent. */
  free(): void {
    if (this.#closed !== undefined) return;
    this.#closed = "was freed";
    finalizer.unregister(this);
    this.pool.free(this.allocation);
  }
}

/** A tensor nobody refers to gives its memory back: a net under `free`, counted as a leak would be if it were not. */
const finalizer = new FinalizationRegistry<{ readonly pool: MemoryPool; readonly allocation: Allocation }>(
  ({ pool, allocation }) => {
    if (pool.device.poison === undefined) pool.free(allocation);
  },
);

/**
 * Allocates a tensor on the pool's device, for use on `stream`. Its contents are undefined. In a world `world.tensor` does
 * it, with zeros.
 * @throws OutOfMemoryError, InvalidArgumentError, ClosedError
 * @example
 * import { CudaStream, deviceStorageOf, deviceTensor, MemoryPool, openDevice, requireCudaDriver } from "chorale/device";
 *
 * const device = openDevice(requireCudaDriver(), 0);
 * const stream = CudaStream.create(device);
 * const pool = new MemoryPool(device, { limitBytes: 64 * 2 ** 20 });
 * const x = deviceTensor(pool, stream, "bf16", [1024, 1024]);
 * console.log(x.sizeBytes, pool.stats().usedBytes); // 2097152 2097152
 * deviceStorageOf(x)?.free();
 * device.close(); // and what was made on it
 */
export function deviceTensor<D extends DType>(
  pool: MemoryPool,
  stream: CudaStream,
  dtype: D,
  shape: readonly number[],
  options: { readonly generation?: number; readonly label?: string } = {},
): Tensor<D> {
  checkPool(pool);
  const sizeBytes = numElements(shape) * sizeOf(parseDType(dtype));
  const allocation = pool.allocate(sizeBytes, stream, options.label ?? `${dtype}[${shape.join(", ")}]`);
  const storage = new DeviceStorage(MADE_HERE, pool, allocation, sizeBytes, options.generation ?? 0);
  finalizer.register(storage, { pool, allocation }, storage);
  return new Tensor(dtype, shape, storage);
}

/** The tensor's device storage, or `undefined` for tensors in host memory. @throws InvalidArgumentError for a forged one */
export function deviceStorageOf(tensor: Tensor): DeviceStorage | undefined {
  const { storage } = tensor;
  if (storage.kind !== "device") return undefined;
  if (!isGenuine(storage)) {
    throw new InvalidArgumentError(
      "tensor",
      described("a storage that chorale did not make"),
      "a tensor from world.tensor()",
    );
  }
  return storage;
}

/**
 * The address of the tensor's first element.
 * @throws ClosedError when the tensor was freed or is of an older generation than `generation`
 * @throws InvalidArgumentError when it is not on `device`
 */
export function devicePtr(tensor: Tensor, device: CudaDevice, generation?: number): DevicePtr {
  return BigInt(deviceAddress(tensor, device, generation)) as DevicePtr;
}

/** `devicePtr` as a number, which costs no allocation: for paths that run once a call. */
export function deviceAddress(tensor: Tensor, device: CudaDevice, generation?: number): number {
  const storage = deviceStorageOf(tensor);
  if (storage === undefined) {
    throw new InvalidArgumentError("tensor", tensor.storage.kind, "a tensor in device memory");
  }
  if (storage.closed !== undefined) throw new ClosedError("device tensor", storage.closed);
  if (storage.pool.closed || storage.device.closed) throw new ClosedError("device tensor", stale(storage, generation));
  if (storage.device !== device) {
    throw new InvalidArgumentError(
      "tensor",
      described(`a tensor on CUDA device ${storage.device.ordinal}`),
      storage.device.ordinal === device.ordinal
        ? "one of this world: that one is of a world or rank that uses the same device by itself"
        : `one on CUDA device ${device.ordinal}, which this rank uses`,
    );
  }
  if (generation !== undefined && storage.generation !== 0 && storage.generation !== generation) {
    throw new ClosedError(
      "device tensor",
      `belongs to generation ${storage.generation} of the world, which ended; this is generation ${generation}`,
    );
  }
  return storage.baseAddress + tensor.byteOffset;
}

/** As `deviceAddress`, but `undefined` where that throws: for paths that leave the words of a refusal to others. */
export function usableAddress(tensor: Tensor, device: CudaDevice, generation: number): number | undefined {
  const { storage } = tensor;
  if (storage.kind !== "device" || !isGenuine(storage)) return undefined;
  if (storage.closed !== undefined || storage.pool.closed || device.closed || storage.device !== device)
    return undefined;
  if (storage.generation !== 0 && storage.generation !== generation) return undefined;
  return storage.baseAddress + tensor.byteOffset;
}

function stale({ generation: of }: DeviceStorage, now: number | undefined): string {
  return of === 0 || now === undefined || of === now
    ? "belongs to a device or a world that was closed"
    : `belongs to generation ${of} of the world, which ended; this is generation ${now}`;
}
