/**
 * The control segment: shared memory in which the ranks of one host say what they have issued, so that a backend over a
 * foreign engine can tell a mismatch, a missing rank and a failure without asking the engine, at the cost of a few
 * stores a call. It carries no data of collectives. It is a SharedArrayBuffer among threads and a mapped file among
 * processes; nothing here waits with Atomics.wait, which mapped memory does not have.
 *
 * Where what stands is in layout.ts. A lane is a counter and a ring of the last calls' fingerprints; the later rank of any
 * two compares them.
 */
import { createHash } from "node:crypto";
import { invariant, OutOfMemoryError } from "../../../core/index.ts";
import { decodeFailure, encodeFailure, type Failure } from "../../comm/index.ts";
import { isAbove, markOf, readCount, writeCount } from "./counts.ts";
import { FlightNotes, PairNotes } from "./flight-notes.ts";
import { JointTurn } from "./joint.ts";
import { decodeLabel, encodeLabel } from "./label.ts";
import { COLLECTIVE_RING, LANE_RING, type Lane, ringOf } from "./lanes.ts";
import {
  BLOB_BYTES,
  ENTRY_WORDS,
  FAILURE_BYTES,
  FIRST_OF_TURN,
  GROUP,
  HEAD_WORDS,
  LABEL_BYTES,
  Layout,
  LOCK_AT,
  MAGIC_AT,
  MAIL_SLOTS,
  MAIL_WORDS,
  MAX_GROUPS,
  TURNS_AT,
  WORLD_FAILURE_AT,
} from "./layout.ts";
import { nap } from "./nap.ts";
import { Presence } from "./presence.ts";
import { type FirstOfLane, Turns } from "./turns.ts";

const MAGIC = 0x63686f72;

/** The lock is held for microseconds; who holds it longer is dead. */
const LOCK_STEAL_MS = 1000;
/** Looks at the lock before this rank lets others run. */
const LOCK_SPINS = 100;
const NAP_MS = 0.05;

/** State of a failure, or of a blob, that is there; zero before. */
const SET = 2;

/** Three words that must agree, and one that tells calls apart in a dump. */
export interface Fingerprint {
  readonly call: number;
  readonly count: number;
  readonly hash: number;
}

/** A key of a group: 64 bits of a hash, the first word never zero. */
function groupKey(text: string): readonly [number, number] {
  const hash = createHash("sha256").update(text).digest();
  return [hash.readInt32LE(0) | 1, hash.readInt32LE(4)];
}

/** The segment, as one rank uses it. */
export class ControlSegment {
  readonly presence: Presence;
  readonly #layout: Layout;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;

  /** @param buffer of `controlBytes(worldSize)` zeros from `byteOffset`, or one that another rank has opened */
  constructor(buffer: ArrayBufferLike, worldSize: number, byteOffset = 0) {
    this.#layout = new Layout(worldSize);
    const { sizeBytes } = this.#layout;
    invariant(buffer.byteLength >= byteOffset + sizeBytes, "the control segment is too small");
    this.#words = new Int32Array(buffer as ArrayBuffer, byteOffset, sizeBytes / 4);
    this.#bytes = new Uint8Array(buffer as ArrayBuffer, byteOffset, sizeBytes);
    this.presence = new Presence(this.#words, this.#layout.presenceAt, worldSize);
    Atomics.compareExchange(this.#words, MAGIC_AT, 0, MAGIC);
    invariant(Atomics.load(this.#words, MAGIC_AT) === MAGIC, "the memory is no control segment");
  }

  /** The joint turns of this world, as `rank` takes them. */
  jointTurn(rank: number): JointTurn {
    const { jointAt: at } = this.#layout;
    return new JointTurn(this.#words, rank, {
      at,
      takenAt: TURNS_AT,
      mark: MAX_GROUPS + 1,
      isOver: () => this.failed,
    });
  }

  /** The world's failure, once there is one. */
  get failure(): Failure | undefined {
    return this.readFailureAt(WORLD_FAILURE_AT);
  }

  /** Ends the world. The first failure stays. @returns whether this one was the first */
  fail(failure: Failure): boolean {
    return this.writeFailureAt(WORLD_FAILURE_AT, failure);
  }

  /** Says cheaply whether the world has failed. */
  get failed(): boolean {
    return Atomics.load(this.#words, WORLD_FAILURE_AT) === SET;
  }

  /**
   * Runs `fn` when the world fails, also in a thread that has nothing to do; once. Among threads only: mapped memory
   * cannot be waited for. Does not keep the event loop alive.
   * @returns ends the watch
   */
  onFailure(fn: () => void): () => void {
    const words = this.#words;
    let ended = !(words.buffer instanceof SharedArrayBuffer);
    const watch = (): void => {
      if (ended) return;
      const state = Atomics.load(words, WORLD_FAILURE_AT);
      if (state === SET) {
        ended = true;
        fn();
        return;
      }
      const wait = Atomics.waitAsync(words, WORLD_FAILURE_AT, state);
      if (wait.async) void wait.value.then(watch);
      else setImmediate(watch);
    };
    watch();
    return () => {
      if (ended) return;
      ended = true;
      // Wakes this watch, so that it does not stay behind; those of others look again and wait on.
      Atomics.notify(words, WORLD_FAILURE_AT);
    };
  }

  /**
   * Opens the group of a name and members; every member opens it with the same text.
   * @param instance tells groups of one name apart over time: each opening of it has the next number
   * @param within what the name is a name in: the `key` of the group that this one comes from, or another word
   * @throws OutOfMemoryError when too many groups are open
   */
  group(name: string, ranks: readonly number[], instance: number, member: number, within = ""): GroupControl {
    const [low, high] = groupKey(`${within}>${name}|${ranks.join(",")}|${instance}`);
    const at = this.#locked(() => {
      const slots = this.#layout.groups;
      const words = this.#words;
      const known = slots.find((slot) => words[slot] === low && words[slot + 1] === high);
      if (known !== undefined) return known;
      const free = slots.find((slot) => words[slot] === 0);
      if (free === undefined) {
        throw new OutOfMemoryError("control segment", 1, 0, `${MAX_GROUPS} groups are open: close communicators.`);
      }
      const label = encodeLabel({ name, ranks }, LABEL_BYTES);
      invariant(label.length <= LABEL_BYTES, "the label is too large");
      this.#bytes.set(label, 4 * (free + GROUP.label));
      words[free + GROUP.labelLength] = label.length;
      words[free] = low;
      words[free + 1] = high;
      return free;
    });
    return this.#groupAt(at, member, ranks.length);
  }

  /** How many groups are open or not yet freed; at most `MAX_GROUPS`. */
  get numGroups(): number {
    return this.#layout.groups.filter((at) => this.#words[at] !== 0).length;
  }

  /** The groups that are open now, each as its member 0 sees it. */
  groups(): readonly { readonly name: string; readonly ranks: readonly number[]; readonly control: GroupControl }[] {
    // Under the lock: groups come and go.
    const labels = this.#locked(() =>
      this.#layout.groups.flatMap((at) => {
        const length = this.#words[at + GROUP.labelLength] ?? 0;
        if (this.#words[at] === 0 || length === 0) return [];
        const start = 4 * (at + GROUP.label);
        return { at, bytes: this.#bytes.slice(start, start + length) };
      }),
    );
    return labels.flatMap(({ at, bytes }) => {
      const label = decodeLabel(bytes);
      if (label === undefined) return [];
      return { ...label, control: this.#groupAt(at, 0, label.ranks.length) };
    });
  }

  /** For `GroupControl`: one member is done with the group at `at`; the last one frees the slot. */
  leave(at: number, size: number): void {
    this.#locked(() => {
      const left = (this.#words[at + GROUP.left] ?? 0) + 1;
      this.#words[at + GROUP.left] = left;
      if (left === size) this.#words.fill(0, at, this.#layout.endOf(at));
    });
  }

  #groupAt(at: number, member: number, size: number): GroupControl {
    return new GroupControl(this, this.#layout, this.#words, this.#bytes, at, member, size);
  }

  /** Runs `fn` alone among the ranks. A rank that died inside loses the lock after `LOCK_STEAL_MS`, to one of those who wait. */
  #locked<T>(fn: () => T): T {
    const words = this.#words;
    // Tells this holder from every other, so that nobody takes the lock from the wrong one, or gives it up for another.
    const mine = 1 + Math.floor(Math.random() * 0x7fff_fffe);
    let holder = 0;
    let since = 0;
    for (let tries = 1; ; tries++) {
      const found = Atomics.compareExchange(words, LOCK_AT, 0, mine);
      if (found === 0) break;
      const now = performance.now();
      if (found !== holder) {
        holder = found;
        since = now;
      } else if (now - since > LOCK_STEAL_MS && Atomics.compareExchange(words, LOCK_AT, found, mine) === found) break;
      if (tries > LOCK_SPINS) nap(NAP_MS);
    }
    try {
      return fn();
    } finally {
      Atomics.compareExchange(words, LOCK_AT, mine, 0);
    }
  }

  /** For `GroupControl`. */
  readFailureAt(at: number): Failure | undefined {
    if (Atomics.load(this.#words, at) !== SET) return undefined;
    const length = this.#words[at + 1] ?? 0;
    return decodeFailure(this.#bytes.subarray(4 * (at + 2), 4 * (at + 2) + length));
  }

  /** For `GroupControl`. */
  writeFailureAt(at: number, failure: Failure): boolean {
    if (Atomics.load(this.#words, at) === SET) return false;
    const text = encodeFailure(failure, FAILURE_BYTES);
    // Under the lock, for a rank may die while it writes down why: then somebody else's word must count.
    return this.#locked(() => {
      if (Atomics.load(this.#words, at) === SET) return false;
      this.#bytes.set(text, 4 * (at + 2));
      this.#words[at + 1] = text.length;
      Atomics.store(this.#words, at, SET);
      Atomics.notify(this.#words, at);
      return true;
    });
  }
}

/** One group in the segment, as one member uses it. Member numbers are ranks within the group. */
export class GroupControl {
  readonly #segment: ControlSegment;
  readonly #layout: Layout;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #at: number;
  readonly #failureAt: number;
  readonly #lanesAt: number;
  readonly #turns: Turns;
  /** See `Layout.memberWords`. */
  readonly #memberWords: number;
  readonly member: number;
  readonly size: number;

  constructor(
    segment: ControlSegment,
    layout: Layout,
    words: Int32Array,
    bytes: Uint8Array,
    at: number,
    member: number,
    size: number,
  ) {
    this.#segment = segment;
    this.#layout = layout;
    this.#words = words;
    this.#bytes = bytes;
    this.#at = at;
    this.#failureAt = at + GROUP.failure;
    this.#lanesAt = at + GROUP.lanes;
    this.#memberWords = layout.memberWords;
    this.member = member;
    this.size = size;
    this.#turns = new Turns(words, member, size, {
      takenAt: TURNS_AT,
      group: 1 + layout.indexOf(at),
      offersAt: layout.offers(at),
      firstAt: (of, lane) => this.#lane(of, lane) + FIRST_OF_TURN,
      isOver: () => segment.failed,
    });
  }

  /** Tells this group apart from every other that is open, for names of groups within it. */
  get key(): string {
    return `${this.#words[this.#at + GROUP.key]},${this.#words[this.#at + GROUP.key + 1]}`;
  }

  /** The failure of the group, or of its world. */
  get failure(): Failure | undefined {
    return this.#segment.readFailureAt(this.#failureAt) ?? this.#segment.failure;
  }

  get failed(): boolean {
    return Atomics.load(this.#words, this.#failureAt) === SET || this.#segment.failed;
  }

  /** Ends the group. The first failure stays. */
  fail(failure: Failure): void {
    this.#segment.writeFailureAt(this.#failureAt, failure);
  }

  /** Says that this member is done with the group. Call it once; the group must not be used afterwards. */
  leave(): void {
    this.#segment.leave(this.#at, this.size);
  }

  /** Says that this member will make no more calls. */
  announceClose(): void {
    Atomics.add(this.#words, this.#at + GROUP.closing, 1);
  }

  /** Whether every member will make no more calls. */
  get allClosing(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.closing) >= this.size;
  }

  /** Counts this member among those that have had their engine abort the group. @returns how many have */
  countAbort(): number {
    return Atomics.add(this.#words, this.#at + GROUP.aborted, 1) + 1;
  }

  /** Whether the group has failed and is aborted but for the last of its members, on whose device it still runs. */
  get lingering(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.lingering) !== 0;
  }
  set lingering(yes: boolean) {
    Atomics.store(this.#words, this.#at + GROUP.lingering, yes ? 1 : 0);
  }

  /** Counts this member among those whose engine has freed the group, or has said that it may. */
  countReclaim(): void {
    Atomics.add(this.#words, this.#at + GROUP.reclaimed, 1);
  }

  /** Whether every member has counted itself with `countReclaim`. */
  get allReclaimed(): boolean {
    return Atomics.load(this.#words, this.#at + GROUP.reclaimed) >= this.size;
  }

  /** See `Turns.turn`. */
  turn(seq: number, ranks: readonly number[]): boolean {
    return this.#turns.turn(seq, ranks);
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

  /** See `Turns.withdraw`. */
  withdraw(): boolean {
    return this.#turns.withdraw();
  }

  /** Publishes the group's blob (one member does). */
  setBlob(bytes: Uint8Array): void {
    invariant(bytes.length <= BLOB_BYTES, "the blob is too large");
    const at = this.#at + GROUP.blob;
    this.#bytes.set(bytes, 4 * (at + 2));
    this.#words[at + 1] = bytes.length;
    Atomics.store(this.#words, at, SET);
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
    Atomics.store(words, entry, 0);
    words[entry + 1] = print.call;
    words[entry + 2] = print.count;
    words[entry + 3] = print.hash;
    Atomics.store(words, entry, markOf(seq));
    writeCount(words, at, seq + 1);
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

  /** The last call of `member` on a lane, if any. */
  last(member: number, lane: Lane): { readonly seq: number; readonly print: Fingerprint } | undefined {
    const issued = this.issued(member, lane);
    if (issued === 0) return undefined;
    const print = this.read(member, lane, issued - 1);
    return print === undefined ? undefined : { seq: issued - 1, print };
  }

  /** What became of a member's last collectives. */
  flightNotes(member: number): FlightNotes {
    return new FlightNotes(this.#words, this.#layout.notes(this.#at, member), LANE_RING);
  }

  /** What became of a member's last sends and receives. */
  pairNotes(member: number): PairNotes {
    return new PairNotes(this.#words, this.#layout.pairNotes(this.#at, member), LANE_RING);
  }

  #pair(from: number, to: number): number {
    return this.#layout.pair(this.#at, from, to);
  }

  #lane(member: number, lane: Lane): number {
    return this.#layout.lane(this.#at, member, lane);
  }
}
