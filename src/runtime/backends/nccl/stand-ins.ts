/**
 * Memory that other processes can be told of, in the place of buffers that they cannot: those of a pool of the program's own, and of
 * NCCL's allocator. What a call needs is copied there before it, and from there behind it, on the stream.
 */
import type { Allocation, CudaStream, PeerMemory } from "../../device/index.ts";

export class StandIns {
  readonly #peers: PeerMemory;
  /** The group's: peers use the memory only while calls of this rank stand there that wait for them. */
  readonly #stream: CudaStream;
  /** Used by one call after another: each is copied out of before the stream comes to the next. */
  readonly #shared: { input?: Allocation; output?: Allocation } = {};
  /** Too small by now, but calls of peers that run may use them. */
  readonly #outgrown: Allocation[] = [];
  /** Of captured calls, which nobody has taken. */
  readonly #captured: Allocation[] = [];

  constructor(peers: PeerMemory, stream: CudaStream) {
    this.#peers = peers;
    this.#stream = stream;
  }

  /** Where others find a buffer: its own address, where they can be told of that. @throws OutOfMemoryError */
  of(buffer: "input" | "output", address: number, sizeBytes: number, isCaptured: boolean): number {
    if (this.#peers.names(BigInt(address))) return address;
    const make = (bytes: number) => this.#peers.pool.allocate(bytes, this.#stream, "copies of a call");
    if (isCaptured) {
      const made = make(sizeBytes);
      this.#captured.push(made);
      return Number(made.address);
    }
    let held = this.#shared[buffer];
    if (held === undefined || held.sizeBytes < sizeBytes) {
      // At least twice as large: all that were outgrown together are no larger than the one in use.
      const made = make(Math.max(sizeBytes, 2 * (held?.sizeBytes ?? 0)));
      if (held !== undefined) this.#outgrown.push(held);
      held = made;
      this.#shared[buffer] = held;
    }
    return Number(held.address);
  }

  /** Gives out those of calls that were captured since this was last asked: their graph runs on them. */
  takeCaptured(): readonly Allocation[] {
    return this.#captured.splice(0);
  }

  /** Gives all of it back, when no member makes a call any more. */
  close(): void {
    for (const one of [...this.#outgrown.splice(0), ...this.takeCaptured(), this.#shared.input, this.#shared.output]) {
      if (one !== undefined) this.#peers.pool.free(one);
    }
  }
}
