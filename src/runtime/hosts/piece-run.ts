/**
 * Runs one collective of ranks that share hosts, piece by piece: each rank brings a piece into its host's memory; when all of
 * the host have, the rank does its share of it, and talks to the other hosts; when what others read is there, each takes what
 * it is to have. Pieces follow each other, as many at a time as there are slots: members count what they have done, and a
 * slot is used again when all have taken the piece before.
 */
import type { Fingerprint } from "../memory/index.ts";
import { COUNT, NUM_SLOTS } from "./host-memory.ts";
import type { HostActivity, HostPlace } from "./host-place.ts";

/** What a collective does with its pieces, on one rank. */
export interface PieceWork {
  /** One or more; the same on all ranks. */
  readonly numPieces: number;
  /** A rank takes what others of its host have ready: it waits until all have. */
  readonly shares: boolean;
  /**
   * The others may read or write this rank's tensors: it ends when all have done with them, which is when they have shared
   * their pieces, or when they have taken them.
   */
  readonly lends?: "untilShared" | "untilTaken" | undefined;
  /**
   * All have brought the first of more pieces than there are slots. @returns whether nobody needs the slots of the others: all is
   * read and written where the programs have it. Then each rank goes through its pieces by itself, and they meet at the end
   */
  isApart?(slot: number): boolean;
  bring(piece: number, slot: number): void;
  /** All of the host have brought it. `done` is called once, perhaps before it returns. */
  work(piece: number, slot: number, done: () => void): void;
  take(piece: number, slot: number): void;
}

interface PieceCall {
  readonly print: Fingerprint;
  /** Says that a member's piece, by group rank, is of another call. */
  readonly disagree: (member: number, theirs: Fingerprint) => void;
  readonly done: () => void;
  /** It will not end: others were writing into what it lent when this rank took its tensors out of their reach. */
  readonly lost: () => void;
}

export class PieceRun implements HostActivity {
  readonly #place: HostPlace;
  readonly #work: PieceWork;
  readonly #call: PieceCall;
  /** Number of the first piece, of all that the group has had. */
  readonly #first: number;
  /** A bit for each slot whose piece is done with here. */
  #ready = 0;
  #isApart = false;
  #brought = 0;
  #begun = 0;
  #shared = 0;
  #taken = 0;
  #isAdvancing = false;
  #isOver = false;

  constructor(place: HostPlace, work: PieceWork, call: PieceCall) {
    this.#place = place;
    this.#work = work;
    this.#call = call;
    this.#first = place.numPieces;
    place.numPieces += work.numPieces;
  }

  start(): void {
    this.#place.activities.add(this);
    this.advance();
  }

  stop(): void {
    if (!this.#isOver && !this.#hasEnded() && this.#work.lends !== undefined) this.#place.memory.withdraw();
    this.#isOver = true;
    this.#place.activities.delete(this);
    this.sleeps(false);
  }

  sleeps(does: boolean): void {
    this.#place.memory.sleeps(does);
  }

  advance(): boolean {
    // What ends within a step goes on in the loop that took it.
    if (this.#isAdvancing || this.#isOver) return false;
    this.#isAdvancing = true;
    let moved = false;
    const wasApart = this.#isApart;
    while (!this.#isOver && this.#step()) moved = true;
    this.#isAdvancing = false;
    // Amidst pieces that each does by itself nobody waits for this rank.
    if (moved && !(wasApart && this.#shared < this.#work.numPieces)) this.#place.wake();
    if (this.#isOver) return moved;
    const isLost = this.#isLost;
    if (isLost || this.#hasEnded()) {
      this.stop();
      if (isLost) this.#call.lost();
      else this.#call.done();
    }
    return moved;
  }

  /** What others wrote may be where this rank does not see it any more. */
  get #isLost(): boolean {
    return this.#work.lends !== undefined && this.#place.memory.keepsTensors;
  }

  #hasEnded(): boolean {
    const { numPieces, lends } = this.#work;
    const { memory } = this.#place;
    // What was read of a member that has failed may be anything: the failure comes from that member.
    if (this.#taken < numPieces || memory.someWithdrew || this.#isLost) return false;
    return lends !== "untilTaken" || memory.haveTold(COUNT.taken, this.#first + numPieces);
  }

  #step(): boolean {
    const { memory } = this.#place;
    const { numPieces, shares } = this.#work;
    const first = this.#first;
    if (this.#taken < this.#shared && (!shares || memory.haveTold(COUNT.shared, first + this.#taken + 1))) {
      this.#work.take(this.#taken, this.#slotOf(this.#taken));
      this.#taken++;
      memory.tell(COUNT.taken, first + this.#taken);
      return true;
    }
    const mayBegin = () => this.#isApart || memory.haveTold(COUNT.brought, first + this.#begun + 1);
    if (this.#begun < this.#brought && mayBegin()) {
      const piece = this.#begun;
      const slot = this.#slotOf(piece);
      if (!this.#isApart && !this.#agrees(slot)) return false;
      if (piece === 0 && numPieces > NUM_SLOTS) this.#isApart = this.#work.isApart?.(slot) === true;
      this.#begun++;
      this.#ready &= ~(1 << slot);
      this.#work.work(piece, slot, () => {
        this.#ready |= 1 << slot;
        this.advance();
      });
      return true;
    }
    if (this.#shared < this.#begun && (this.#ready & (1 << this.#slotOf(this.#shared))) !== 0) {
      this.#shared++;
      memory.tell(COUNT.shared, first + this.#shared);
      return true;
    }
    if (this.#brought < numPieces && this.#hasFreeSlot()) {
      const slot = this.#slotOf(this.#brought);
      this.#work.bring(this.#brought, slot);
      memory.sign(slot, this.#call.print);
      this.#brought++;
      memory.tell(COUNT.brought, first + this.#brought);
      return true;
    }
    return false;
  }

  /** Whether the slot of the next piece is free again. The others may still need what the call before had there. */
  #hasFreeSlot(): boolean {
    const before = this.#brought - NUM_SLOTS;
    if (this.#isApart && before >= 0) return before < this.#shared;
    return this.#place.memory.haveTold(COUNT.taken, this.#first + before + 1);
  }

  #slotOf(piece: number): number {
    return (this.#first + piece) % NUM_SLOTS;
  }

  /** Compares what all of the host have in a slot with this rank's call. */
  #agrees(slot: number): boolean {
    const { memory, row } = this.#place;
    for (const [member, rank] of row.entries()) {
      const other = memory.otherThan(slot, member, this.#call.print);
      if (other === undefined) continue;
      this.#call.disagree(rank, other);
      return false;
    }
    return true;
  }
}
