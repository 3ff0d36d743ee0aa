/** Where callers' buffers lie in the shared memory: those of this world's tensors in place, all others in a copy. */
import { InvalidArgumentError, sizeOf } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { Operand } from "../../comm/index.ts";
import type { Heap } from "./heap.ts";
import { type Arena, SharedStorage } from "./storage.ts";

/** Whose memory the buffers lie in. */
export interface MemoryOwner {
  readonly arena: Arena;
  /** The shared memory, as far as `end` at least. */
  bufferFor(end: number): ArrayBufferLike;
}

interface Place {
  readonly address: number;
  /** The address is of a block of the heap that this rank must free. */
  readonly staged: boolean;
}

/** The address of a caller's buffer: its own in a world tensor, otherwise a staging block, filled if asked. */
export function placeOf(owner: MemoryOwner, heap: Heap, given: Operand, fill: boolean): Place {
  const storage = given.tensor?.storage;
  if (storage instanceof SharedStorage && storage.arena === owner.arena) {
    return { address: given.tensor?.byteOffset ?? 0, staged: false };
  }
  const bytes = given.count * sizeOf(given.dtype);
  const address = heap.allocate(bytes, false);
  if (fill) new Uint8Array(owner.bufferFor(address + bytes), address, bytes).set(bytesOf(given));
  return { address, staged: true };
}

/** Copies a staged result to the caller's buffer. */
export function copyOut(heap: Heap, address: number, given: Operand): void {
  const bytes = given.count * sizeOf(given.dtype);
  const words = heap.words(address + bytes);
  bytesOf(given).set(new Uint8Array(words.buffer, address, bytes));
}

function bytesOf(given: Operand): Uint8Array {
  const data = given.tensor?.data ?? given.array;
  if (data === undefined)
    throw new InvalidArgumentError("tensor", described("in device memory"), "a tensor in host memory");
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
