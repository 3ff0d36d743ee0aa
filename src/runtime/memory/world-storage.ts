/**
 * Memory of a world's tensors, usable until freed or until the world ends: where the ranks of the host share memory and there is
 * room, in that, so that others can read it in a call; otherwise the rank's own.
 */
import {
  ClosedError,
  type DType,
  InvalidArgumentError,
  numElements,
  OutOfMemoryError,
  type Storage,
  sizeOf,
  Tensor,
} from "../../core/index.ts";
import { described, tensorInUse } from "../../core/internal.ts";
import type { RoomBlock, TensorRoom } from "./tensor-room.ts";

/** What the tensors of one world have in common. */
export interface WorldTerm {
  readonly generation: number;
  /** Set when the world ended on this rank. */
  closed: string | undefined;
  /** Where other ranks of the host can read tensors, if they can. */
  readonly room?: TensorRoom | undefined;
}

class WorldStorage implements Storage {
  readonly kind: "private" | "shared";
  readonly buffer: ArrayBuffer;
  /** Of the room. */
  readonly block: RoomBlock | undefined;
  readonly sizeBytes: number;
  readonly term: WorldTerm;
  freed: string | undefined;

  constructor(term: WorldTerm, sizeBytes: number) {
    const block = sizeBytes === 0 ? undefined : term.room?.allocate(sizeBytes);
    this.kind = block === undefined ? "private" : "shared";
    this.term = term;
    this.block = block;
    this.buffer = block?.buffer ?? new ArrayBuffer(sizeBytes);
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
  try {
    // Where the system promises more memory than it has, there may be a buffer that is too long for a view.
    return new Tensor(dtype, shape, new WorldStorage(term, sizeBytes));
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new OutOfMemoryError("this process", sizeBytes, 0, `${cause.message}.`, { cause });
  }
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
  if (storage.block !== undefined) term.room?.free(storage.block);
}
