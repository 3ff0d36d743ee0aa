/** Tensors' memory in an MPI world: private memory of the rank, usable until freed or until the world ends. */
import {
  ClosedError,
  type DType,
  InvalidArgumentError,
  numElements,
  OutOfMemoryError,
  type Storage,
  sizeOf,
  Tensor,
} from "../../../core/index.ts";
import { described, tensorInUse } from "../../../core/internal.ts";

/** What the tensors of one world have in common. */
export interface WorldTerm {
  readonly generation: number;
  /** Set when the world ended on this rank. */
  closed: string | undefined;
}

class WorldStorage implements Storage {
  readonly kind = "private";
  readonly buffer: ArrayBuffer;
  readonly sizeBytes: number;
  readonly term: WorldTerm;
  freed: string | undefined;

  constructor(term: WorldTerm, sizeBytes: number) {
    this.term = term;
    this.buffer = new ArrayBuffer(sizeBytes);
    this.sizeBytes = sizeBytes;
  }
  get generation(): number {
    return this.term.generation;
  }
  get closed(): string | undefined {
    return this.freed ?? this.term.closed;
  }
}

/** Allocates a tensor of zeros. @throws OutOfMemoryError, InvalidArgumentError */
export function worldTensor<D extends DType>(term: WorldTerm, dtype: D, shape: readonly number[]): Tensor<D> {
  const sizeBytes = numElements(shape) * sizeOf(dtype);
  let storage: WorldStorage;
  try {
    storage = new WorldStorage(term, sizeBytes);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new OutOfMemoryError("this process", sizeBytes, 0, `${cause.message}.`, { cause });
  }
  return new Tensor(dtype, shape, storage);
}

/**
 * Ends a tensor's memory.
 * @param usedBy what pending work uses memory, as text
 * @throws InvalidArgumentError, ClosedError
 */
export function freeTensor(term: WorldTerm, tensor: unknown, usedBy: (buffer: ArrayBufferLike) => string | undefined) {
  const storage = tensor instanceof Tensor ? tensor.storage : undefined;
  if (!(storage instanceof WorldStorage) || storage.term !== term) {
    throw new InvalidArgumentError(
      "tensor",
      storage === undefined ? tensor : described(`in ${storage.kind} memory that it did not allocate`),
      "a tensor that this world allocated",
    );
  }
  if (storage.closed !== undefined) throw new ClosedError("tensor", storage.closed);
  const use = usedBy(storage.buffer);
  if (use !== undefined) throw tensorInUse(use);
  storage.freed = "was freed";
}
