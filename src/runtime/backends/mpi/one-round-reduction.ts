/**
 * A small all-reduce inside a host in one round: each rank copies its input into the arena and tells the others; when all
 * have, each reduces all inputs, in rank order, straight to its result. The shares of host-exchange.ts spare each rank
 * work on large inputs and cost a second meeting, which for small ones is most of the time.
 *
 * It takes a half of the input as a piece of an exchange does, by the same count, so the two may follow each other.
 */
import type { DType, ReduceOp } from "../../../core/index.ts";
import type { MemoryCopy } from "../../../foreign/native/index.ts";
import type { Activity, CallTarget } from "./mpi-entry.ts";
import type { PlanPlace } from "./plan-call.ts";

/** Most bytes of all ranks' inputs together: what a rank reads and reduces alone. */
const MOST_BYTES = 64 * 1024;

/** Whether all ranks make an all-reduce in one round. @param sizeBytes of one rank's input */
export const isOneRound = (sizeBytes: number, ranks: number): boolean => sizeBytes * ranks <= MOST_BYTES;

/** An all-reduce by addresses of its memory. */
export interface AddressedReduction {
  readonly dtype: DType;
  readonly redop: ReduceOp;
  readonly send: number;
  readonly recv: number;
  readonly sizeBytes: number;
}

export class OneRoundReduction implements Activity {
  /** Later collectives must wait: they use the same memory. */
  readonly stepped = true;
  readonly #group: PlanPlace;
  readonly #call: AddressedReduction;
  #copy: MemoryCopy | undefined;
  #half = 0;
  #awaited = 0;
  #isDone = false;

  constructor(group: PlanPlace, call: AddressedReduction) {
    this.#group = group;
    this.#call = call;
  }

  /**
   * Copies this rank's input in, and says so: before the call's turn too, when every earlier call of the group is done here.
   * A reduction that is done can be brought once more, for the next call of the same memory.
   */
  bring(copy: MemoryCopy): void {
    const group = this.#group;
    const { arena, place, ranks, me } = group;
    const own = ranks[me] ?? 0;
    this.#copy = copy;
    this.#isDone = false;
    this.#half = group.numPieces & 1;
    this.#awaited = group.numTold + 1;
    group.numPieces++;
    group.numTold++;
    copy(arena.address + arena.input(place, own, this.#half), this.#call.send, this.#call.sizeBytes);
    arena.tell(place, own, this.#awaited);
  }

  begin({ mpi }: CallTarget): void {
    // Compiled by all ranks in their first call, whoever comes first.
    this.#group.arena.compileReducer();
    if (this.#copy === undefined) this.bring(mpi.library.copy);
    this.#group.arena.running.add(this);
    this.advance();
  }

  advance(): boolean {
    if (this.#isDone) return true;
    const { arena, place, ranks, me } = this.#group;
    if (!arena.haveTold(place, ranks, this.#awaited)) return false;
    const { dtype, redop, recv, sizeBytes } = this.#call;
    const result = arena.share(place, ranks[me] ?? 0, this.#half);
    arena.reducer.run(dtype, redop, this.#group.inputs[this.#half] ?? [], result, sizeBytes);
    this.#copy?.(recv, arena.address + result, sizeBytes);
    arena.numMoved++;
    this.#isDone = true;
    this.stop();
    return true;
  }

  stop(): void {
    this.#group.arena.running.delete(this);
  }
}
