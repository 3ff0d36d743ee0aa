/**
 * Memory that other processes can be told of, in the place of buffers that they cannot: those of a pool of the program's own, and of
 * NCCL's allocator. What a call needs is copied there before it, and from there behind it, on the stream.
 */
import type { Allocation, PeerMemory, RankDevice } from "../../device/index.ts";

export class StandIns {
  readonly #at: RankDevice;
  readonly #peers: PeerMemory;
  /** Used by one call after another: each is copied out of before the stream comes to the next. */
  readonly #shared: { input?: Allocation; output?: Allocation } = {};
  /** Of captured calls: graphs run on them. */
  readonly #kept: Allocation[] = [];

  constructor(at: RankDevice, peers: PeerMemory) {
    this.#at = at;
    this.#peers = peers;
  }

  /** Where others find a buffer: its own address, where they can be told of that. @throws OutOfMemoryError */
  of(buffer: "input" | "output", address: number, sizeBytes: number, isCaptured: boolean): number {
    if (this.#peers.names(BigInt(address))) return address;
    const { pool } = this.#peers;
    const make = () => pool.allocate(sizeBytes, this.#at.main, "copies of a call");
    const held = this.#shared[buffer];
    let found: Allocation;
    if (isCaptured) {
      found = make();
      this.#kept.push(found);
    } else if (held !== undefined && held.sizeBytes >= sizeBytes) found = held;
    else {
      if (held !== undefined) this.#kept.push(held);
      found = make();
      this.#shared[buffer] = found;
    }
    return Number(found.address);
  }

  /** Gives all of it back, when no member makes a call any more. */
  close(): void {
    for (const one of [...this.#kept, this.#shared.input, this.#shared.output]) {
      if (one !== undefined) this.#peers.pool.free(one);
    }
    this.#kept.length = 0;
  }
}
