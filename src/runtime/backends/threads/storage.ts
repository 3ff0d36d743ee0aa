/** Tensors' memory in a threads world: a block of its shared memory, usable until freed or until the world ends. */
import { type Storage, Tensor } from "../../../core/index.ts";

/** What the blocks of one world have in common, on one rank. */
export interface Arena {
  readonly generation: number;
  /** Set when the world ended on this rank. */
  closed: string | undefined;
}

export class SharedStorage implements Storage {
  readonly kind = "shared";
  readonly buffer: ArrayBufferLike;
  get firstByte(): number {
    return this.address;
  }
  /** Address of the first byte: tensors of this storage count their offsets from the start of the memory. */
  readonly address: number;
  /** End of the block, from the start of the memory. */
  readonly sizeBytes: number;
  readonly arena: Arena;
  /**
   * Set when the block was freed. Written twice at construction: V8 takes a field that was written once for a constant, and
   * throws away every compiled call when the first tensor is freed.
   */
  freed: string | undefined = "";
  /** What outlives this object, to free the block when nobody can reach it any more. */
  readonly record: { readonly address: number; freed: boolean };

  constructor(arena: Arena, buffer: ArrayBufferLike, address: number, bytes: number) {
    this.arena = arena;
    this.buffer = buffer;
    this.address = address;
    this.sizeBytes = address + bytes;
    this.record = { address, freed: false };
    this.freed = undefined;
  }
  get generation(): number {
    return this.arena.generation;
  }
  get closed(): string | undefined {
    return this.freed ?? this.arena.closed;
  }
}

/** What a caller gave, if it is a tensor of the arena's world that is not empty and not freed. */
export function ownTensor(arena: Arena, data: unknown): Tensor | undefined {
  if (!(data instanceof Tensor) || data.size === 0) return undefined;
  const { storage } = data;
  if (!(storage instanceof SharedStorage) || storage.arena !== arena) return undefined;
  return storage.freed === undefined && arena.closed === undefined ? data : undefined;
}
