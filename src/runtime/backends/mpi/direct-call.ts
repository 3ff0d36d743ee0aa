/**
 * Collectives inside a host of tensors that lie in memory which its ranks share (runtime/memory): each rank says where its own are,
 * and when all have, each takes what it is to have straight from the others' inputs, with no copy on the way. Where a tensor of one
 * rank lies elsewhere, or its result overlaps what the others are to read, all ranks see that, and the call is made otherwise.
 */
import { AbortedError, sizeOf } from "../../../core/index.ts";
import type { MemoryCopy } from "../../../foreign/native/index.ts";
import { isReadableMeanwhile } from "../../memory/index.ts";
import type { Arrival } from "../../progress/index.ts";
import { CallMeeting } from "./call-meeting.ts";
import { MEETING, PIECE_BYTES, shareOf } from "./host-arena.ts";
import type { HostCall } from "./host-call.ts";
import type { Activity, CallTarget } from "./mpi-entry.ts";
import type { PlanPlace } from "./plan-call.ts";
import { SharedTiles, TILE_BYTES } from "./shared-tiles.ts";

/** Whether a call is made so where it can be: smaller ones are made faster by what meets less often. */
export const isLargeEnough = (sizeBytes: number): boolean => sizeBytes >= 64 * 1024;
/** About how many bytes one look at the call reads: it stays short, and a call of several small parts takes one look. */
const LOOK_BYTES = 1024 * 1024;
/** What a rank has room for in the arena. */
const SHARE_BYTES = PIECE_BYTES / 2;
/** From where on ranks copy for each other: taking tiles costs as much as copying them where they are small. */
const SHARED_BYTES = 1024 * 1024;
/** How long a rank that failed waits for one that copies: that one may have been stopped, or have died. */
const MOST_WRITE_MS = 1000;
/** Polls of the other ranks' progress in one look at the call. */
const SPINS = 16;

interface DirectOptions {
  /** Hears that the call is made so. */
  readonly directly?: () => void;
  /** Makes the call where it cannot be made so. */
  readonly otherwise: () => Activity;
}

export class DirectCall implements Activity {
  readonly #group: PlanPlace;
  readonly #call: HostCall;
  readonly #options: DirectOptions;
  readonly #partBytes: number;
  /** Whether the shares of an all-reduce are left in the arena: then nobody reads the results, and nobody waits for who does. */
  readonly #sharesApart: boolean;
  /** Whether ranks that are done take over what others have yet to copy. */
  readonly #isShared: boolean;
  readonly #meeting: CallMeeting;
  readonly #tiles: SharedTiles;
  /** Whether this rank has done its part, or given it up: its place to meet may be a later call's, which has its input there. */
  #isOver = false;
  /** In this look at the call. */
  #readBytes = 0;
  #target: CallTarget | undefined;
  #steps: Generator<void> | undefined;
  #instead: Activity | undefined;

  constructor(group: PlanPlace, call: HostCall, options: DirectOptions) {
    this.#group = group;
    this.#call = call;
    this.#options = options;
    this.#partBytes = call.count * sizeOf(call.dtype);
    this.#sharesApart = call.op === "all_reduce" && shareOf(this.#partBytes, call.size, 0)[1] <= SHARE_BYTES;
    const isMove = call.op === "all_gather" || call.op === "all_to_all";
    this.#isShared = isMove && this.#partBytes * call.size >= SHARED_BYTES;
    this.#meeting = new CallMeeting(group);
    this.#tiles = new SharedTiles(group.arena.words());
  }

  /** Later collectives must wait: they use the same memory. */
  get stepped(): boolean {
    return this.#instead?.stepped ?? true;
  }

  bring(arrival?: Arrival): void {
    const { arena, me } = this.#group;
    const { op, rank, send, recv } = this.#call;
    const lent = { op, rank, partBytes: this.#partBytes, input: send, output: recv };
    const isSafe = this.#sharesApart || isReadableMeanwhile(lent);
    const words = arena.words();
    const at = this.#meeting.take().meetings[me] ?? 0;
    words[at + MEETING.send] = isSafe ? arena.offsetOf(send) : 0;
    words[at + MEETING.recv] = isSafe ? arena.offsetOf(recv) : 0;
    if (this.#isShared) this.#tiles.reset(at);
    this.#meeting.tell(arrival);
  }

  hasMet(): boolean {
    return this.#meeting.hasMet();
  }

  begin(target: CallTarget): void {
    if (!this.#meeting.isBrought) this.bring();
    this.#target = target;
    this.#group.arena.running.add(this);
    this.#steps = this.#run(target);
    this.advance();
  }

  advance(): boolean {
    if (this.#steps?.next().done === true) {
      this.#steps = undefined;
      this.#isOver = true;
      this.#group.arena.running.delete(this);
      if (this.#target !== undefined) this.#instead?.begin(this.#target);
    }
    return this.#steps === undefined && (this.#instead?.advance() ?? true);
  }

  stop(): void {
    if (this.#meeting.isBrought && !this.#isOver) {
      this.#isOver = true;
      this.#meeting.withdraw();
      const at = this.#meeting.half.meetings[this.#group.me] ?? 0;
      if (this.#isShared && !this.#tiles.close(at, MOST_WRITE_MS)) this.#group.arena.room.keep();
    }
    this.#steps = undefined;
    this.#group.arena.running.delete(this);
    this.#instead?.stop?.();
  }

  *#run({ mpi }: CallTarget): Generator<void> {
    const { op } = this.#call;
    while (!this.#meeting.isFull) yield;
    const inputs = this.#offered(MEETING.send);
    const outputs = op === "all_reduce" && !this.#sharesApart ? this.#offered(MEETING.recv) : [];
    if (inputs.includes(0) || outputs.includes(0)) {
      this.#instead = this.#options.otherwise();
      return;
    }
    this.#options.directly?.();
    const { copy } = mpi.library;
    if (this.#sharesApart) yield* this.#reduceApart(inputs, copy);
    else if (op === "reduce_scatter") yield* this.#reducePart(inputs, copy);
    else if (op === "all_reduce") yield* this.#reduceAndShare(inputs, outputs, copy);
    else if (this.#isShared) yield* this.#takeTogether(inputs, copy);
    else yield* this.#take(inputs, copy);
    if (!this.#sharesApart) yield* this.#meet();
    // What was read of a member that has failed meanwhile may be anything. The failure comes from that member.
    while (this.#meeting.someWithdrew) yield;
    if (!this.#group.arena.room.isKept) return;
    // So may what others wrote where this rank does not see it any more. Whoever goes on with calls of other groups must not hear of it.
    this.#group.arena.running.delete(this);
    yield;
    throw new AbortedError(
      "this call's tensors were taken out of the other ranks' reach: another group of this rank failed while a rank that wrote to them was stopped",
    );
  }

  /** Which half of what takes turns is the call's. */
  get #half(): number {
    return this.#group.rounds.halves.indexOf(this.#meeting.half);
  }

  /** Where the members' tensors are; 0 where this rank cannot read them. */
  #offered(word: number): readonly number[] {
    const words = this.#group.arena.words();
    return this.#meeting.half.meetings.map((at) => (words[at + word] ?? 0) >>> 0);
  }

  /** Waits until all ranks have come as far. */
  *#meet(): Generator<void> {
    const group = this.#group;
    const { arena, place, ranks, me } = group;
    const numTold = ++group.numTold;
    arena.tell(place, ranks[me] ?? 0, numTold);
    for (let looks = 1; !arena.haveTold(place, ranks, numTold); looks++) if (looks % SPINS === 0) yield;
    arena.numMoved++;
  }

  /** Copies parts of all inputs to where they belong in the result: all-gather, and all-to-all. */
  *#take(inputs: readonly number[], copy: MemoryCopy): Generator<void> {
    const { arena, me } = this.#group;
    const { op, size, recv } = this.#call;
    const partBytes = this.#partBytes;
    const within = op === "all_to_all" ? me * partBytes : 0;
    for (let i = 0; i < size; i++) {
      // Its own part first, and then those of the ranks behind it: no two ranks read the same at a time.
      const member = (me + i) % size;
      const from = arena.address + (inputs[member] ?? 0) + within;
      yield* this.#copy(copy, recv.address + member * partBytes, from, partBytes);
    }
  }

  /**
   * The same in tiles that whoever is free copies. A rank's own are those of its result; in an all-gather, where all can write to all
   * results, those of its input, each part for all results in turn: then it is read from memory once.
   */
  *#takeTogether(inputs: readonly number[], copy: MemoryCopy): Generator<void> {
    const { arena, me } = this.#group;
    const { op, size, recv } = this.#call;
    const { meetings } = this.#meeting.half;
    const partBytes = this.#partBytes;
    const perPart = Math.ceil(partBytes / TILE_BYTES);
    const offered = this.#offered(MEETING.recv);
    const isGiven = op === "all_gather" && !offered.includes(0);
    // What the last all-to-all left in the caches is first in one that follows at once.
    const isBackwards = op === "all_to_all" && this.#half === 1;
    for (let i = 0; i < size; i++) {
      const member = (me + i) % size;
      // Where only that rank can write its result, it takes all of it.
      if (offered[member] === 0 && member !== me) continue;
      const tilesAt = meetings[member] ?? 0;
      for (let taken = this.#tiles.take(tilesAt); taken < size * perPart; taken = this.#tiles.take(tilesAt)) {
        const tile = isBackwards ? size * perPart - 1 - taken : taken;
        const giver = isGiven ? member : (member + Math.floor(tile / perPart)) % size;
        const taker = isGiven ? (member + tile) % size : member;
        const at = (isGiven ? Math.floor(tile / size) : tile % perPart) * TILE_BYTES;
        const bytes = Math.min(TILE_BYTES, partBytes - at);
        const output = taker === me ? recv.address : arena.address + (offered[taker] ?? 0);
        const to = output + giver * partBytes + at;
        const from = arena.address + (inputs[giver] ?? 0) + (op === "all_to_all" ? taker * partBytes : 0) + at;
        if (to !== from) this.#write(taker, copy, to, from, bytes);
        if (this.#isLong(bytes)) yield;
      }
    }
  }

  /** Writes to a rank's result, where that one has not failed meanwhile. */
  #write(taker: number, copy: MemoryCopy, to: number, from: number, bytes: number): void {
    const isOwn = taker === this.#group.me;
    const at = this.#meeting.half.meetings[taker] ?? 0;
    if (isOwn || this.#tiles.enter(at)) copy(to, from, bytes);
    if (!isOwn) this.#tiles.leave(at);
  }

  /** Reduces this rank's part of all inputs. */
  *#reducePart(inputs: readonly number[], copy: MemoryCopy): Generator<void> {
    const { arena, place, ranks, me } = this.#group;
    const { recv } = this.#call;
    const output = arena.offsetOf(recv);
    const share = arena.share(place, ranks[me] ?? 0, 0);
    const start = me * this.#partBytes;
    for (let at = 0; at < this.#partBytes; at += SHARE_BYTES) {
      const length = Math.min(SHARE_BYTES, this.#partBytes - at);
      this.#reduce(inputs, start + at, output === 0 ? share : output + at, length);
      if (output === 0) copy(recv.address + at, arena.address + share, length);
      if (this.#isLong(length * inputs.length)) yield;
    }
  }

  /** Reduces this rank's share of all inputs into the arena, and copies all shares from there once the inputs have been read. */
  *#reduceApart(inputs: readonly number[], copy: MemoryCopy): Generator<void> {
    const { arena, place, ranks, me } = this.#group;
    const { size, recv } = this.#call;
    const half = this.#half;
    const [start, end] = shareOf(this.#partBytes, size, me);
    if (end > start) this.#reduce(inputs, start, arena.share(place, ranks[me] ?? 0, half), end - start);
    yield* this.#meet();
    for (let i = 0; i < size; i++) {
      const member = (me + i) % size;
      const [from, to] = shareOf(this.#partBytes, size, member);
      const share = arena.address + arena.share(place, ranks[member] ?? 0, half);
      if (to > from) yield* this.#copy(copy, recv.address + from, share, to - from);
    }
  }

  /** Reduces this rank's share of all inputs, and copies the others' out of their results. */
  *#reduceAndShare(inputs: readonly number[], outputs: readonly number[], copy: MemoryCopy): Generator<void> {
    const { arena, me } = this.#group;
    const { size, recv } = this.#call;
    const [start, end] = shareOf(this.#partBytes, size, me);
    for (let at = start; at < end; at += SHARE_BYTES) {
      this.#reduce(inputs, at, (outputs[me] ?? 0) + at, Math.min(SHARE_BYTES, end - at));
      if (this.#isLong(SHARE_BYTES * size)) yield;
    }
    yield* this.#meet();
    for (let i = 1; i < size; i++) {
      const member = (me + i) % size;
      const [from, to] = shareOf(this.#partBytes, size, member);
      yield* this.#copy(copy, recv.address + from, arena.address + (outputs[member] ?? 0) + from, to - from);
    }
  }

  #reduce(inputs: readonly number[], at: number, output: number, length: number): void {
    const { dtype, redop = "sum" } = this.#call;
    const from = inputs.map((input) => input + at);
    this.#group.arena.reducer.run(dtype, redop, from, output, length);
  }

  *#copy(copy: MemoryCopy, to: number, from: number, length: number): Generator<void> {
    if (to === from) return;
    for (let at = 0; at < length; at += LOOK_BYTES) {
      const bytes = Math.min(LOOK_BYTES, length - at);
      copy(to + at, from + at, bytes);
      if (this.#isLong(bytes)) yield;
    }
  }

  /** Whether a look at the call ends now, as so many bytes were read. */
  #isLong(bytes: number): boolean {
    this.#readBytes += bytes;
    if (this.#readBytes < LOOK_BYTES) return false;
    this.#readBytes = 0;
    return true;
  }
}
