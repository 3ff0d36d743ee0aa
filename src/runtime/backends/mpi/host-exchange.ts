/**
 * Collectives inside a host by hand, over the arena (host-arena.ts), with as few copies as private memory allows: each rank
 * copies its piece in; a rank reduces its share of the piece from all ranks' copies; and each copies what it is to have out of
 * the others' parts straight to its result. The pieces of an all-reduce overlap: a rank brings the next one before it waits
 * for the shares of this one. Ranks tell how far they are by one word each, which only grows.
 *
 * Two halves of every buffer take turns. Who brings a piece into a half knows that all have read the piece before the last,
 * since all have told that they were done with it: within a call, and from one call to the next.
 */
import { sizeOf } from "../../../core/index.ts";
import type { MemoryCopy } from "../../../foreign/native/index.ts";
import type { Span } from "../../memory/index.ts";
import type { Arrival } from "../../progress/index.ts";
import { CallMeeting } from "./call-meeting.ts";
import { pieceBytes, shareOf } from "./host-arena.ts";
import { apartFromResult, type HostCall } from "./host-call.ts";
import type { Activity, BringPlace, CallTarget } from "./mpi-entry.ts";
import type { PlanPlace } from "./plan-call.ts";

export class ExchangeCall implements Activity {
  /** Later collectives must wait: they use the same memory. */
  readonly stepped = true;
  readonly #group: PlanPlace;
  readonly #call: HostCall;
  readonly #isAllReduce: boolean;
  /** Parts that a rank gives. */
  readonly #numIn: number;
  readonly #partBytes: number;
  readonly #pieceBytes: number;
  readonly #numPieces: number;
  readonly #meeting: CallMeeting;
  #send: Span;
  #copy: MemoryCopy = () => {};
  /** Of the group, before this call: pieces, and what this rank has told. */
  #firstPiece = 0;
  #firstTold = 0;
  #numTold = 0;
  /** How much all must have told before this rank goes on. */
  #awaited = 0;
  #piece = 0;
  #isReduced = false;

  constructor(group: PlanPlace, call: HostCall) {
    const { op, size, count, dtype, send } = call;
    this.#group = group;
    this.#call = call;
    this.#isAllReduce = op === "all_reduce";
    this.#numIn = op === "reduce_scatter" || op === "all_to_all" ? size : 1;
    this.#partBytes = count * sizeOf(dtype);
    this.#pieceBytes = pieceBytes(this.#partBytes, this.#numIn);
    this.#numPieces = Math.ceil(this.#partBytes / this.#pieceBytes);
    this.#meeting = new CallMeeting(group);
    this.#send = send;
  }

  bring(arrival: Arrival | undefined, { library, addresses }: BringPlace): void {
    const group = this.#group;
    this.#copy = library.copy;
    this.#send = apartFromResult(this.#call, addresses);
    this.#firstPiece = group.numPieces;
    this.#firstTold = group.numTold;
    this.#meeting.take(this.#numPieces, this.#numPieces * (this.#isAllReduce ? 2 : 1));
    this.#bring(0);
    this.#meeting.tell(arrival);
    this.#awaited = this.#numTold;
  }

  hasMet(): boolean {
    return this.#meeting.hasMet();
  }

  begin({ mpi }: CallTarget): void {
    if (!this.#meeting.isBrought) this.bring(undefined, mpi);
    this.#group.arena.running.add(this);
    this.advance();
  }

  stop(): void {
    this.#group.arena.running.delete(this);
  }

  /** Goes on by one step at most, so that a look at it is short. */
  advance(): boolean {
    if (this.#piece >= this.#numPieces) return true;
    if (!this.#haveAllTold()) return false;
    const piece = this.#piece;
    const isLast = piece + 1 === this.#numPieces;
    if (this.#isAllReduce && !this.#isReduced) {
      this.#reduce(piece);
      this.#tell();
      this.#awaited = this.#numTold;
      if (!isLast) this.#bring(piece + 1);
      this.#isReduced = true;
      return false;
    }
    this.#take(piece);
    this.#isReduced = false;
    this.#piece++;
    this.#group.arena.numMoved++;
    if (isLast) {
      this.stop();
      return true;
    }
    if (!this.#isAllReduce) this.#bring(piece + 1);
    this.#awaited = this.#numTold;
    return false;
  }

  #lengthOf(piece: number): number {
    return Math.min(this.#pieceBytes, this.#partBytes - piece * this.#pieceBytes);
  }

  #halfOf(piece: number): number {
    return (this.#firstPiece + piece) & 1;
  }

  /** Says that this rank has taken one more step. */
  #tell(): void {
    const { arena, place, ranks, me } = this.#group;
    this.#numTold++;
    arena.tell(place, ranks[me] ?? 0, this.#firstTold + this.#numTold);
  }

  #haveAllTold(): boolean {
    const { arena, place, ranks } = this.#group;
    return arena.haveTold(place, ranks, this.#firstTold + this.#awaited);
  }

  /** Copies this rank's piece in, and says so. */
  #bring(piece: number): void {
    const { arena, place, ranks, me } = this.#group;
    const length = this.#lengthOf(piece);
    const to = arena.address + arena.input(place, ranks[me] ?? 0, this.#halfOf(piece));
    const from = this.#send.address + piece * this.#pieceBytes;
    for (let i = 0; i < this.#numIn; i++) {
      if (i === me && this.#call.op === "all_to_all") continue;
      this.#copy(to + i * length, from + i * this.#partBytes, length);
    }
    this.#tell();
  }

  /** Reduces this rank's share of a piece of an all-reduce. */
  #reduce(piece: number): void {
    const { me } = this.#group;
    const [start, end] = shareOf(this.#lengthOf(piece), this.#call.size, me);
    this.#reduceRange(piece, start, end - start);
  }

  #reduceRange(piece: number, start: number, length: number): void {
    if (length <= 0) return;
    const { arena, place, ranks, me } = this.#group;
    const { dtype, redop = "sum" } = this.#call;
    const half = this.#halfOf(piece);
    const inputs = ranks.map((rank) => arena.input(place, rank, half) + start);
    arena.reducer.run(dtype, redop, inputs, arena.share(place, ranks[me] ?? 0, half), length);
  }

  /** Copies what this rank is to have of a piece to its result. */
  #take(piece: number): void {
    const { arena, place, ranks, me } = this.#group;
    const { op, size, recv } = this.#call;
    const half = this.#halfOf(piece);
    const length = this.#lengthOf(piece);
    const to = recv.address + piece * this.#pieceBytes;
    if (op === "reduce_scatter") {
      this.#reduceRange(piece, me * length, length);
      this.#copy(to, arena.address + arena.share(place, ranks[me] ?? 0, half), length);
      return;
    }
    for (let i = 0; i < size; i++) {
      // Its own part first, and then those of the ranks behind it: no two ranks read the same at a time.
      const member = (me + i) % size;
      const rank = ranks[member] ?? 0;
      if (op === "all_reduce") {
        const [start, end] = shareOf(length, size, member);
        if (end > start) this.#copy(to + start, arena.address + arena.share(place, rank, half), end - start);
        continue;
      }
      const target = to + member * this.#partBytes;
      if (member === me) {
        // Straight from the input, and before another's part is written where the two buffers are one.
        const own = this.#send.address + piece * this.#pieceBytes + (op === "all_to_all" ? me * this.#partBytes : 0);
        if (own !== target) this.#copy(target, own, length);
        continue;
      }
      const from = arena.input(place, rank, half) + (op === "all_to_all" ? me * length : 0);
      this.#copy(target, arena.address + from, length);
    }
  }
}
