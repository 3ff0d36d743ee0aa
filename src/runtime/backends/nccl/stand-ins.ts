/**
 * Memory that other processes can be told of, in the place of buffers that they cannot: those of a pool of the program's own, and of
 * NCCL's allocator. What a call needs is copied there before it, and from there behind it, on the stream.
 */
import type { Allocation, CudaStream, PeerMemory } from "../../device/index.ts";
import type { CommQueue } from "./queue.ts";
import { ReusedMemory } from "./reused-memory.ts";

export class StandIns {
  readonly #peers: PeerMemory;
  readonly #memory: { readonly input: ReusedMemory; readonly output: ReusedMemory };

  constructor(peers: PeerMemory, stream: CudaStream, calls: Pick<CommQueue, "numTaken" | "firstOpen">) {
    this.#peers = peers;
    const make = () => new ReusedMemory({ pool: peers.pool, stream, label: "copies of a call", calls });
    this.#memory = { input: make(), output: make() };
  }

  /** Where others find a buffer: its own address, where they can be told of that. @throws OutOfMemoryError */
  of(buffer: "input" | "output", address: number, sizeBytes: number, isCaptured: boolean): number {
    return this.#peers.names(BigInt(address)) ? address : this.#memory[buffer].of(sizeBytes, isCaptured);
  }

  /** Gives out those of calls that were captured since this was last asked: their graph runs on them. */
  takeCaptured(): readonly Allocation[] {
    const { input, output } = this.#memory;
    return [...input.takeCaptured(), ...output.takeCaptured()];
  }

  /** Gives all of it back, when no member makes a call any more. */
  close(): void {
    this.#memory.input.close();
    this.#memory.output.close();
  }
}
