/**
 * Memory in which one call of a group after another has something for a while: the next has it when the stream has come past the one
 * before, and members reach it only while a call of this rank stands there that waits for them. It grows with what is asked of it.
 */
import type { Allocation, CudaStream, MemoryPool } from "../../device/index.ts";
import type { CommQueue } from "./queue.ts";

interface ReusedMemoryParts {
  readonly pool: Pick<MemoryPool, "allocate" | "free">;
  /** The group's. */
  readonly stream: CudaStream;
  /** What it is for, to people. */
  readonly label: string;
  /** How far the group's calls are. */
  readonly calls: Pick<CommQueue, "numTaken" | "firstOpen">;
}

export class ReusedMemory {
  readonly #its: ReusedMemoryParts;
  #held: Allocation | undefined;
  /** Too small by now, but used by calls up to a number. */
  readonly #outgrown: { readonly one: Allocation; readonly usedUntil: number }[] = [];
  /** Of calls that were captured, which nobody has taken; the last one is the largest. */
  readonly #captured: Allocation[] = [];

  constructor(its: ReusedMemoryParts) {
    this.#its = its;
  }

  /**
   * Where a call has so many bytes.
   * @param isCaptured whether it goes into a graph, which has memory of its own: it may run at any time
   * @throws OutOfMemoryError
   */
  of(sizeBytes: number, isCaptured: boolean): number {
    const held = isCaptured ? this.#captured.at(-1) : this.#held;
    const one = held !== undefined && held.sizeBytes >= sizeBytes ? held : this.#larger(sizeBytes, held, isCaptured);
    return Number(one.address);
  }

  #larger(sizeBytes: number, held: Allocation | undefined, isCaptured: boolean): Allocation {
    const { pool, stream, label, calls } = this.#its;
    this.#freeOutgrown();
    // At least twice as large: sizes that grow little by little need few, and all that were outgrown are no larger together.
    const take = () => pool.allocate(Math.max(sizeBytes, 2 * (held?.sizeBytes ?? 0)), stream, label);
    // A driver gives no memory to a thread that captures, unless that says that it knows.
    const made = isCaptured ? stream.device.relaxed(take) : take();
    if (isCaptured) this.#captured.push(made);
    else {
      if (held !== undefined) this.#outgrown.push({ one: held, usedUntil: calls.numTaken });
      this.#held = made;
    }
    return made;
  }

  /** Gives back what calls have grown out of that have all ended well: no member comes there any more. */
  #freeOutgrown(): void {
    const { pool, calls } = this.#its;
    const { firstOpen } = calls;
    while ((this.#outgrown[0]?.usedUntil ?? Number.POSITIVE_INFINITY) < firstOpen) {
      const [first] = this.#outgrown.splice(0, 1);
      if (first !== undefined) pool.free(first.one);
    }
  }

  /** Gives out what calls have that were captured since this was last asked: their graph runs on it. */
  takeCaptured(): readonly Allocation[] {
    return this.#captured.splice(0);
  }

  /** Gives all of it back, when no member makes a call any more. */
  close(): void {
    const outgrown = this.#outgrown.splice(0).map(({ one }) => one);
    for (const one of [...outgrown, ...this.takeCaptured(), this.#held])
      if (one !== undefined) this.#its.pool.free(one);
    this.#held = undefined;
  }
}
