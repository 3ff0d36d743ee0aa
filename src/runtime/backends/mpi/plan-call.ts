/**
 * One call that a plan serves inside a host, piece by piece: each rank copies its piece in and says so; when all have, the
 * plan runs; then each copies its result out. Two halves for the input take turns, since a rank that is ahead fills the one
 * for the next piece while others still read this one; further ahead it cannot be, for all meet at every piece.
 */
import { type DType, sizeOf } from "../../../core/index.ts";
import type { MemoryCopy } from "../../../foreign/native/index.ts";
import { type KernelOp, kernelOp, type PreparedPlan, type ServingPlan } from "../../executor/internal.ts";
import type { Span } from "../../memory/index.ts";
import { type HostArena, pieceBytes } from "./host-arena.ts";
import { apartFromResult, type HostCall } from "./host-call.ts";
import type { Activity, CallTarget } from "./mpi-entry.ts";
import type { OneRoundPlaces } from "./one-round-places.ts";

/** A group's place in the arena, as its calls use it. */
export interface PlanPlace {
  readonly arena: HostArena;
  readonly place: number;
  /** Of the world. */
  readonly ranks: readonly number[];
  /** This rank's number among them. */
  readonly me: number;
  /** Pieces that this rank has put into the arena for this group: they take turns in two halves. */
  numPieces: number;
  /** Steps that it has told the others of. */
  numTold: number;
  /** Address of two words for each rank, this rank's own: where the rank's input and its output are. */
  readonly buffers: number;
  /** Where calls of one round meet. */
  readonly rounds: OneRoundPlaces;
  /** The plan, prepared for a call that begins now; `undefined` when there is no room for another plan. */
  ready(serving: ServingPlan, dtype: DType, op: KernelOp): PreparedPlan | undefined;
}

/** Polls of one word for which a look at a plan lasts. */
const SPINS = 64;

export class PlanCall implements Activity {
  /** Later collectives must wait: their plans use the same memory. */
  readonly stepped = true;
  readonly #group: PlanPlace;
  readonly #call: HostCall;
  readonly #serving: ServingPlan;
  readonly #mpi: () => Activity;
  /** Where there was no room for the plan. */
  #instead: Activity | undefined;
  #plan: PreparedPlan | undefined;
  #send: Span;
  #copy: MemoryCopy = () => {};
  /** Parts that a rank gives, and that it gets. */
  readonly #numIn: number;
  readonly #numOut: number;
  /** Of the whole call, and of a piece of it. */
  readonly #partBytes: number;
  readonly #pieceBytes: number;
  #at = 0;
  #isRunning = false;
  #isDone = false;

  constructor(group: PlanPlace, call: HostCall, serving: ServingPlan, mpi: () => Activity) {
    const { op, size, count, dtype, send } = call;
    this.#group = group;
    this.#call = call;
    this.#serving = serving;
    this.#mpi = mpi;
    this.#numIn = op === "reduce_scatter" || op === "all_to_all" ? size : 1;
    this.#numOut = op === "all_gather" || op === "all_to_all" ? size : 1;
    this.#partBytes = count * sizeOf(dtype);
    this.#pieceBytes = pieceBytes(this.#partBytes, Math.max(this.#numIn, this.#numOut));
    this.#send = send;
  }

  begin(target: CallTarget): void {
    const group = this.#group;
    const { dtype, redop, size } = this.#call;
    const op = kernelOp(redop);
    this.#plan = group.ready(this.#serving, dtype, op);
    if (this.#plan === undefined) {
      this.#instead = this.#mpi();
      this.#instead.begin(target);
      return;
    }
    const prepared = this.#plan;
    if (op === "avg") prepared.parameter(op, size);
    if (typeof redop === "object") prepared.parameter(op, redop.scalar);
    this.#send = apartFromResult(this.#call, target.mpi.addresses);
    this.#copy = target.mpi.library.copy;
    group.arena.running.add(this);
    this.#bring();
    this.advance();
  }

  advance(): boolean {
    if (this.#instead !== undefined) return this.#instead.advance();
    if (this.#isDone || this.#plan === undefined) return true;
    const prepared = this.#plan;
    if (!this.#isRunning) {
      if (!this.#haveAllCome()) return false;
      prepared.launch();
      this.#isRunning = true;
    }
    if (!prepared.run(SPINS)) return false;
    this.#isRunning = false;
    this.#take();
    this.#group.arena.numMoved++;
    this.#at += this.#length;
    this.#isDone = this.#at >= this.#partBytes;
    if (this.#isDone) this.stop();
    else this.#bring();
    return this.#isDone;
  }

  stop(): void {
    this.#instead?.stop?.();
    this.#group.arena.running.delete(this);
  }

  get #length(): number {
    return Math.min(this.#pieceBytes, this.#partBytes - this.#at);
  }

  /** Copies this rank's piece in, and says so. */
  #bring(): void {
    const { arena, place, ranks, me, buffers } = this.#group;
    const length = this.#length;
    const half = this.#group.numPieces & 1;
    const own = ranks[me] ?? 0;
    const input = arena.input(place, own, half);
    const from = this.#send.address + this.#at;
    for (let i = 0; i < this.#numIn; i++) {
      this.#copy(arena.address + input + i * length, from + i * this.#partBytes, length);
    }
    const words = arena.words();
    ranks.forEach((rank, i) => {
      words[buffers / 4 + 2 * i] = arena.input(place, rank, half);
      words[buffers / 4 + 2 * i + 1] = arena.output(place, rank);
    });
    this.#plan?.bind(length);
    this.#group.numPieces++;
    this.#group.numTold++;
    arena.tell(place, own, this.#group.numTold);
  }

  /** Whether all ranks have put this piece into the arena, or one behind it. */
  #haveAllCome(): boolean {
    const { arena, place, ranks, numTold } = this.#group;
    return arena.haveTold(place, ranks, numTold);
  }

  /** Copies this rank's part of the result out. */
  #take(): void {
    const { arena, place, ranks, me } = this.#group;
    const length = this.#length;
    const from = arena.address + arena.output(place, ranks[me] ?? 0);
    const to = this.#call.recv.address + this.#at;
    for (let i = 0; i < this.#numOut; i++) this.#copy(to + i * this.#partBytes, from + i * length, length);
  }
}
