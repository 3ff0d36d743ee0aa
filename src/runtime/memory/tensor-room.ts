/**
 * A rank's room for tensors in the memory that the ranks of a host share: others of them read there what a call is given, so that it
 * is not copied for them. Each tensor has a buffer of its own, and the memory is the next one's when
 * nobody can reach that buffer any more.
 */
import { emptyViews, viewMemory } from "../../foreign/native/index.ts";
import { FreeList } from "./free-list.ts";
import type { OpenArena } from "./growing-arena.ts";

/** Room is reserved by as much at a time. */
const GROWTH_BYTES = 4 * 2 ** 20;

/** What views lie in: it must not be collected before them. */
const owners = new WeakMap<ArrayBuffer, SharedArrayBuffer>();

interface RoomPlace {
  /** Mapped over by the arena. */
  readonly memory: SharedArrayBuffer;
  /** Where the memory begins in this process. */
  readonly address: number;
  readonly arena: OpenArena;
  /** This rank's part of it, bytes from its beginning. */
  readonly from: number;
  readonly to: number;
  /** Smaller tensors are elsewhere. */
  readonly leastBytes?: number;
}

/** Memory of one tensor, and where it lies in the arena. */
export interface RoomBlock {
  readonly buffer: ArrayBuffer;
  readonly at: number;
}

export class TensorRoom {
  readonly #place: RoomPlace;
  readonly #list: FreeList;
  /** Up to where the file has room. What lies behind it must not be touched. */
  #reservedTo: number;
  #isKept = false;
  readonly #collected: FinalizationRegistry<number>;

  constructor(place: RoomPlace) {
    const list = new FreeList(place.from, place.to);
    this.#place = place;
    this.#list = list;
    this.#reservedTo = place.from;
    this.#collected = new FinalizationRegistry((at) => list.give(at));
  }

  /** Memory of zeros for a tensor; `undefined` where there is no room for it. */
  allocate(sizeBytes: number): RoomBlock | undefined {
    if (this.#isKept || sizeBytes < (this.#place.leastBytes ?? 0)) return undefined;
    const at = this.#list.take(sizeBytes);
    if (at === undefined) return undefined;
    const wasUsed = Math.min(at + sizeBytes, this.#reservedTo);
    if (!this.#reserve(at + sizeBytes)) {
      this.#list.give(at);
      return undefined;
    }
    const { address, memory } = this.#place;
    if (wasUsed > at) new Uint8Array(memory, at, wasUsed - at).fill(0);
    const buffer = viewMemory(BigInt(address + at), sizeBytes);
    owners.set(buffer, memory);
    this.#collected.register(buffer, at, buffer);
    return { buffer, at };
  }

  /** Whether it holds a stretch, by its offset. */
  holds(at: number, sizeBytes: number): boolean {
    const { from, to } = this.#place;
    return !this.#isKept && at >= from && at + sizeBytes <= to;
  }

  /** Whether `keep` was called. */
  get isKept(): boolean {
    return this.#isKept;
  }

  /** Takes all that it has given out of the others' reach, as it is, and gives no more. Idempotent. */
  keep(): void {
    if (this.#isKept) return;
    const { arena, from } = this.#place;
    arena.keep(from, this.#reservedTo);
    this.#isKept = true;
  }

  /** Ends what `allocate` gave, and all views of it. */
  free({ buffer, at }: RoomBlock): void {
    // One that was moved elsewhere has another owner, who may still use the memory.
    if (!emptyViews(buffer)) return;
    this.#collected.unregister(buffer);
    this.#list.give(at);
  }

  /** Has the file have room up to a byte. @returns whether it has: where the folder is full, tensors are in memory of the rank's own */
  #reserve(toBytes: number): boolean {
    const { arena, to } = this.#place;
    if (toBytes > this.#reservedTo && !arena.hasRoom(toBytes - this.#reservedTo)) return false;
    try {
      while (this.#reservedTo < toBytes) {
        const end = Math.min(to, this.#reservedTo + GROWTH_BYTES);
        arena.reserve(this.#reservedTo, end);
        this.#reservedTo = end;
      }
      return true;
    } catch {
      // Others have taken the room meanwhile. What was reserved serves smaller tensors.
      return false;
    }
  }
}
