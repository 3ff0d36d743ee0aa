/**
 * A group in the control segment: what its members tell each other. Its layout is in control-layout.ts. A lane is a
 * counter and a ring of the last calls' fingerprints; the later rank of any two compares them.
 */
import { invariant } from "../../core/index.ts";
import { encodeFailure, type Failure } from "../comm/index.ts";
import { Bulletin } from "./bulletin.ts";
import {
  BLOB_BYTES,
  CLOSED,
  ENTRY_WORDS,
  FAILURE_BYTES,
  FIRST_OF_TURN,
  GROUP,
  HEAD_WORDS,
  type Layout,
  MAIL_SLOTS,
  MAIL_WORDS,
  SET,
  TURNS_AT,
} from "./control-layout.ts";
import { isAbove, isLaterMark, markOf, readCount, writeCount } from "./counts.ts";
import { FailurePlace } from "./failure-place.ts";
import { FlightNotes, PairNotes } from "./flight-notes.ts";
import type { HeldOffers } from "./grant.ts";
import { COLLECTIVE, COLLECTIVE_RING, LANE_RING, type Lane, ringOf } from "./lanes.ts";
import type { Lock } from "./lock.ts";
import { type GroupOutbox, NOTICE, wordsOf } from "./outbox.ts";
import { type FirstOfLane, Turns } from "./turns.ts";

/** Three words that must agree, and one that tells calls apart in a dump. */
export interface Fingerprint {
  readonly call: number;
  readonly count: number;
  readonly hash: number;
}

/** What a group uses of the segment that it stands in. */
interface SegmentParts {
  readonly layout: Layout;
  readonly words: Int32Array;
  /** The bytes of `words`. */
  readonly bytes: Uint8Array;
  readonly lock: Lock;
  /** The world's failure. */
  readonly world: FailurePlace;
}

/** One group in the segment, as one member uses it. Member numbers are ranks within the group. */
export class GroupControl {
  readonly #layout: Layout;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #lock: Lock;
  readonly #world: FailurePlace;
  readonly #failure: FailurePlace;
  readonly #at: number;
  readonly #lanesAt: number;
  readonly #turns: Turns;
  /** Where members on other hosts are told what this one does; absent where there are none. */
  readonly #across: GroupOutbox | undefined;
  /** See `Layout.memberWords`. */
  readonly #memberWords: number;
  #bulletin: Bulletin | undefined;
  readonly member: number;
  readonly size: number;

  /**
   * @param at first word of the group
   * @param across of a group that spans hosts, as a rank opens it
   */
  constructor(segment: SegmentParts, at: number, member: number, size: number, across?: GroupOutbox) {
    const { layout, words, bytes, lock, world } = segment;
    this.#layout = layout;
    this.#words = words;
    this.#bytes = bytes;
    this.#lock = lock;
    this.#world = world;
    this.#failure = new FailurePlace(words, bytes, lock, at + GROUP.failure);
    this.#at = at;
    this.#lanesAt = at + GROUP.lanes;
    this.#memberWords = layout.memberWords;
    this.member = member;
    this.size = size;
    this.#across = across;
    const place = {
      takenAt: TURNS_AT,
      mark: 1 + layout.indexOf(at),
      free: 0,
      offersAt: layout.offers(at),
      firstAt: (of: number, lane: Lane) => this.#lane(of, lane) + FIRST_OF_TURN,
      isOver: () => world.isSet,
    };
    this.#turns = new Turns(words, member, size, place, across);
  }

  /** Its number among the groups that are open, from 0; another group has it once all members have left. */
  get index(): number {
    return this.#layout.indexOf(this.#at);
  }

  /** Tells this group apart from every other that is open, for names of groups within it. */
  get key(): string {
    return `${this.#words[this.#at + GROUP.key]},${this.#words[this.#at + GROUP.key + 1]}`;
  }

  /** The failure of the group, or of its world. */
  get failure(): Failure | undefined {
    return this.#failure.failure ?? this.#world.failure;
  }

  get failed(): boolean {
    return this.#failure.isSet || this.#world.isSet;
  }

  /** Ends the group. The first failure stays. */
  fail(failure: Failure): void {
    if (!this.#failure.set(failure)) return;
    this.#across?.tell(NOTICE.fail, wordsOf(encodeFailure(failure, FAILURE_BYTES)));
  }

  /** As `fail`. @returns whether this failure was the first */
  failFirst(failure: Failure): boolean {
    return this.#failure.set(failure);
  }

  /** Says that this member is done with the group. Call it once; the group must not be used afterwards. */
  leave(): void {
    const at = this.#at;
    this.#across?.tell(NOTICE.leave);
    // The last one frees the slot.
    this.#lock.run(() => {
      const left = (this.#words[at + GROUP.left] ?? 0) + 1;
      this.#words[at + GROUP.left] = left;
      if (left === this.size) this.#words.fill(0, at, this.#layout.endOf(at));
    });
  }

  /** Says that this member will make no more calls. */
  announceClose(): void {
    Atomics.store(this.#words, this.#lane(this.member, COLLECTIVE) + CLOSED, 1);
    Atomics.add(this.#words, this.#at + GROUP.closing, 1);
    this.#across?.tell(NOTICE.close);
  }

  /** Whether some member will make no more calls. */
  get someClosing(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.closing) > 0;
  }

  /** Whether `member` will make no more calls. */
  hasClosed(member: number): boolean {
    return Atomics.load(this.#words, this.#lane(member, COLLECTIVE) + CLOSED) === 1;
  }

  /** Whether every member will make no more calls. */
  get allClosing(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.closing) >= this.size;
  }

  /** Counts this member among those that have had their engine abort the group. @returns how many have */
  countAbort(): number {
    return Atomics.add(this.#words, this.#at + GROUP.aborted, 1) + 1;
  }

  /** Whether the group has failed and all members but the last have aborted it; it still runs on that one's device. */
  get lingering(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.lingering) !== 0;
  }
  set lingering(yes: boolean) {
    Atomics.store(this.#words, this.#at + GROUP.lingering, yes ? 1 : 0);
  }

  /** Says that this member settles no further call of a group that has failed. For groups of at most 32. */
  finish(): void {
    Atomics.or(this.#words, this.#at + GROUP.finished, 1 << this.member);
  }

  /** Whether `member` may still settle collectives that it has made. */
  isSettling(member: number): boolean {
    if ((Atomics.load(this.#words, this.#at + GROUP.finished) & (1 << member)) !== 0) return false;
    // Call 0 is its joining.
    const last = this.issued(member, COLLECTIVE) - 1;
    return last > 0 && !this.notesOf(member).collectives.hasEnded(last);
  }

  /** Says, before it is done, that kernels of calls are ended that members may be about to settle: what they leave is no result. */
  cutShort(): void {
    Atomics.store(this.#words, this.#at + GROUP.cutShort, 1);
  }

  /** To be asked once calls were seen to have ended: whether kernels may have been cut short by then. */
  get isCutShort(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.cutShort) !== 0;
  }

  /** Counts this member among those whose engine has freed the group, or has said that it may. */
  countReclaim(): void {
    Atomics.add(this.#words, this.#at + GROUP.reclaimed, 1);
    this.#across?.tell(NOTICE.reclaimed);
  }

  /** Whether every member has counted itself with `countReclaim`. */
  get allReclaimed(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.reclaimed) >= this.size;
  }

  /** What members tell each other, all as often. Of groups of one host. */
  get bulletin(): Bulletin {
    const places = () => Array.from({ length: this.size }, (_, of) => this.#layout.bulletin(this.#at, of));
    this.#bulletin ??= new Bulletin(this.#words, places(), this.member);
    return this.#bulletin;
  }

  /** See `Turns.turn`. */
  turn(seq: number, ranks: readonly number[]): boolean {
    return this.#turns.turn(seq, ranks);
  }

  /** See `Turns.mayReclaim`. */
  get mayReclaim(): boolean {
    return this.#turns.mayReclaim;
  }

  /** See `Turns.turnOfPairs`. */
  turnOfPairs(lanes: readonly FirstOfLane[], ranks: readonly number[]): boolean {
    return this.#turns.turnOfPairs(lanes, ranks);
  }

  /** See `Turns.granted`. */
  get granted(): boolean {
    return this.#turns.granted;
  }

  /** See `Turns.endTurn`. */
  endTurn(ranks: readonly number[]): void {
    this.#turns.endTurn(ranks);
  }

  /** See `Turns.hold`. */
  holdTurn(offer: number, members: readonly number[], ranks: readonly number[]): HeldOffers | undefined {
    return this.#turns.hold(offer, members, ranks);
  }

  /** See `Turns.withdraw`. */
  withdraw(): boolean {
    return this.#turns.withdraw();
  }

  /** Says that this member has joined, as call `seq`. @param blob what one member gives all the others */
  join(seq: number, print: Fingerprint, blob?: Uint8Array): void {
    if (blob !== undefined) this.setBlob(blob);
    this.publish(COLLECTIVE, seq, print);
  }

  /** Publishes the group's blob (one member does). */
  setBlob(bytes: Uint8Array): void {
    invariant(bytes.length <= BLOB_BYTES, "the blob is too large");
    const at = this.#at + GROUP.blob;
    this.#bytes.set(bytes, 4 * (at + 2));
    this.#words[at + 1] = bytes.length;
    Atomics.store(this.#words, at, SET);
    this.#across?.tell(NOTICE.blob, wordsOf(bytes));
  }

  /** The group's blob, once it is there. */
  get blob(): Uint8Array | undefined {
    const at = this.#at + GROUP.blob;
    if (Atomics.load(this.#words, at) !== SET) return undefined;
    return this.#bytes.slice(4 * (at + 2), 4 * (at + 2) + (this.#words[at + 1] ?? 0));
  }

  /**
   * Leaves message `number` (from 0, in order) for member `to`. The receiver reads it, uses what it names, and
   * acknowledges it; until then its slot is taken.
   * @param words at most MAIL_WORDS - 1
   * @returns false, with nothing changed, while MAIL_SLOTS messages are not acknowledged
   */
  post(to: number, number: number, words: ArrayLike<number>): boolean {
    if (!this.hasRoom(to, number)) return false;
    const at = this.#pair(this.member, to) + HEAD_WORDS + (number % MAIL_SLOTS) * MAIL_WORDS;
    this.#words.set(words, at + 1);
    Atomics.store(this.#words, at, markOf(number));
    return true;
  }

  /** Whether message `number` for `to` would find a slot. */
  hasRoom(to: number, number: number): boolean {
    return number - this.acknowledged(to) < MAIL_SLOTS;
  }

  /** How many of this member's messages `to` has acknowledged. */
  acknowledged(to: number): number {
    return readCount(this.#words, this.#pair(this.member, to));
  }

  /** Message `number` from member `from`, once it is there. */
  mail(from: number, number: number): Int32Array | undefined {
    const at = this.#pair(from, this.member) + HEAD_WORDS + (number % MAIL_SLOTS) * MAIL_WORDS;
    if (Atomics.load(this.#words, at) !== markOf(number)) return undefined;
    return this.#words.slice(at + 1, at + MAIL_WORDS);
  }

  /** Says that this member is done with message `number` of `from`; messages are acknowledged in order. */
  acknowledge(from: number, number: number): void {
    writeCount(this.#words, this.#pair(from, this.member), number + 1);
  }

  /** Says that this member issues call `seq` of a lane. */
  publish(lane: Lane, seq: number, print: Fingerprint): void {
    const at = this.#lane(this.member, lane);
    const entry = at + HEAD_WORDS + (seq % ringOf(lane)) * ENTRY_WORDS;
    const words = this.#words;
    // No member reads the call that was here: see `collectiveLimit`. A plain store, for a full barrier in between would have
    // those who look for this call take the line away before the last store.
    words[entry] = 0;
    words[entry + 1] = print.call;
    words[entry + 2] = print.count;
    words[entry + 3] = print.hash;
    Atomics.store(words, entry, markOf(seq));
    writeCount(words, at, seq + 1);
    this.#across?.publish(lane, seq, print.call, print.count, print.hash);
  }

  /**
   * The first collective that this member must not publish yet, for the slowest member has not compared the one that it
   * would overwrite. One less than the ring holds: a member that has published a call may read all others' of that number
   * until it publishes the next.
   */
  collectiveLimit(): number {
    let least = Number.POSITIVE_INFINITY;
    for (let member = 0; member < this.size; member++) {
      least = Math.min(least, readCount(this.#words, this.#lanesAt + member * this.#memberWords));
    }
    return least + COLLECTIVE_RING - 1;
  }

  /** How many calls `member` has issued on a lane. */
  issued(member: number, lane: Lane): number {
    return readCount(this.#words, this.#lane(member, lane));
  }

  /** Whether `member` has issued call `seq` of a lane, of which this member has come about as far. */
  hasIssued(member: number, lane: Lane, seq: number): boolean {
    return isAbove(this.#words, this.#lane(member, lane), seq);
  }

  /** Call `seq` of a lane of `member`; `undefined` before it was issued and after it was forgotten. */
  read(member: number, lane: Lane, seq: number): Fingerprint | undefined {
    const entry = this.#lane(member, lane) + HEAD_WORDS + (seq % ringOf(lane)) * ENTRY_WORDS;
    const words = this.#words;
    const mark = markOf(seq);
    if (Atomics.load(words, entry) !== mark) return undefined;
    const print = { call: words[entry + 1] ?? 0, count: words[entry + 2] ?? 0, hash: words[entry + 3] ?? 0 };
    return Atomics.load(words, entry) === mark ? print : undefined;
  }

  /**
   * Whether collective `seq` of `member` says the same as `print`, or nothing (yet, or any more): `read` without an
   * object, for the path of every call.
   */
  agrees(member: number, seq: number, print: Fingerprint): boolean {
    const words = this.#words;
    const entry = this.#lanesAt + member * this.#memberWords + HEAD_WORDS + (seq % COLLECTIVE_RING) * ENTRY_WORDS;
    const mark = markOf(seq);
    if (Atomics.load(words, entry) !== mark) return true;
    const same = words[entry + 1] === print.call && words[entry + 2] === print.count && words[entry + 3] === print.hash;
    return same || Atomics.load(words, entry) !== mark;
  }

  /**
   * Whether `member` has issued collective `seq`, and the same: looks at the place of that call alone, which its member writes
   * once a call, and not at the count of its calls. One that was forgotten counts as the same, as in `agrees`.
   * @returns undefined while it has not issued it
   */
  hasSame(member: number, seq: number, print: Fingerprint): boolean | undefined {
    const words = this.#words;
    const entry = this.#lanesAt + member * this.#memberWords + HEAD_WORDS + (seq % COLLECTIVE_RING) * ENTRY_WORDS;
    const mark = Atomics.load(words, entry);
    if (mark !== markOf(seq)) return isLaterMark(mark, seq) ? true : undefined;
    const same = words[entry + 1] === print.call && words[entry + 2] === print.count && words[entry + 3] === print.hash;
    return same || Atomics.load(words, entry) !== mark;
  }

  /** The last call of `member` on a lane, if any. */
  last(member: number, lane: Lane): { readonly seq: number; readonly print: Fingerprint } | undefined {
    const issued = this.issued(member, lane);
    if (issued === 0) return undefined;
    const print = this.read(member, lane, issued - 1);
    return print === undefined ? undefined : { seq: issued - 1, print };
  }

  /** What became of a member's last calls: of its collectives, and of its sends and receives. */
  notesOf(member: number): { readonly collectives: FlightNotes; readonly pairs: PairNotes } {
    const layout = this.#layout;
    return {
      collectives: new FlightNotes(this.#words, layout.notes(this.#at, member), LANE_RING),
      pairs: new PairNotes(this.#words, layout.pairNotes(this.#at, member), LANE_RING),
    };
  }

  #pair(from: number, to: number): number {
    return this.#layout.pair(this.#at, from, to);
  }

  #lane(member: number, lane: Lane): number {
    return this.#layout.lane(this.#at, member, lane);
  }
}
