/**
 * What a rank tells the ranks of other hosts: every change of its words in a group that spans hosts, as a *notice* in a ring of
 * its own in the control segment. The launcher of its host reads the ring and sends the notices on, in order; the launchers of
 * the other hosts make the same changes in their segments. A notice is a few stores; nothing here waits but for a full ring.
 *
 * Words of a ring: how far it is written, how far it is read, the notices. Words of a notice: its length, its kind, the
 * group's key (two), and what belongs to the kind.
 */
import { AbortedError, invariant } from "../../core/index.ts";
import type { Lane } from "./lanes.ts";
import { nap, pauseMs } from "./nap.ts";

/** Words for notices: a power of two. Some 6,000 calls; launchers look every millisecond or two. */
const RING = 2 ** 16;
const MASK = RING - 1;
/** Words of a rank's outbox. */
export const OUTBOX_WORDS = 2 + RING;

const WRITTEN = 0;
const READ = 1;
const FIRST = 2;
const HEAD = 4;
/** A launcher that reads nothing for so long has stopped for good, ms. */
const FULL_MS = 60_000;
const NAP_MS = 0.05;

/** What a notice says of its rank. */
export const NOTICE = {
  /** It has opened the group: the label (label.ts). */
  open: 1,
  /** It issues a call: lane, peer, number (2), fingerprint (3). */
  publish: 2,
  /** It will make no more calls. */
  close: 3,
  /** It is done with the group. */
  leave: 4,
  /** Its engine has freed the group. */
  reclaimed: 5,
  /** The group's blob. */
  blob: 6,
  /** The group has failed: the failure. */
  fail: 7,
  /** It offers itself to a turn: the offer, and the first send and receive per peer (lane, peer, mark). */
  offer: 8,
  /** It takes its offer back. */
  withdraw: 9,
  /** The group's name for messages. */
  title: 10,
} as const;

/** A group, in every host's segment. */
export type GroupKey = readonly [number, number];

const LANE_KINDS = ["collective", "send", "recv", "give", "take"] as const;
const laneCode = ({ kind }: Lane): number => LANE_KINDS.indexOf(kind);
const peerOf = (lane: Lane): number => (lane.kind === "collective" ? 0 : lane.peer);

/** The words of a lane: its kind and its peer. */
export const laneWords = (lane: Lane): readonly [number, number] => [laneCode(lane), peerOf(lane)];

/** The lane of two words. */
export function laneOf(code: number, peer: number): Lane {
  const kind = LANE_KINDS[code] ?? "collective";
  return kind === "collective" ? { kind } : { kind, peer };
}

/** A number of a call as two words, and back. */
const highOf = (seq: number): number => Math.floor(seq / 2 ** 32);
export const numberOf = (low: number, high: number): number => (low >>> 0) + high * 2 ** 32;

/** Bytes as words, their number before them. */
export function wordsOf(bytes: Uint8Array): Int32Array {
  const words = new Int32Array(1 + Math.ceil(bytes.length / 4));
  words[0] = bytes.length;
  new Uint8Array(words.buffer, 4).set(bytes);
  return words;
}

/** The bytes of such words. */
export function bytesOf(words: Int32Array): Uint8Array {
  const all = Uint8Array.from(new Uint8Array(words.buffer, words.byteOffset + 4, 4 * Math.max(0, words.length - 1)));
  return all.subarray(0, Math.max(0, words[0] ?? 0));
}

/** One notice, as it was read. */
interface Notice {
  readonly kind: number;
  readonly key: GroupKey;
  /** What belongs to the kind. */
  readonly words: Int32Array;
}

/** Reads a notice's words as another host sent them. */
export function noticeOf(words: Int32Array): Notice {
  return { kind: words[1] ?? 0, key: [words[2] ?? 0, words[3] ?? 0], words: words.slice(HEAD) };
}

/** A rank's end of its outbox. */
export class Outbox {
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #isOver: () => boolean;
  /** Has what is told passed on, and what others tell taken, where no launcher does. */
  readonly look: () => void;

  /** @param isOver whether the world has failed: then nobody need be told anything more */
  constructor(words: Int32Array, at: number, isOver: () => boolean, look: () => void = () => {}) {
    this.#words = words;
    this.#at = at;
    this.#isOver = isOver;
    this.look = look;
  }

  /** How far it is written, which nobody else changes. */
  get #position(): number {
    return this.#words[this.#at + WRITTEN] ?? 0;
  }

  tell(kind: number, key: GroupKey, payload: ArrayLike<number>): void {
    if (!this.#hasRoom(HEAD + payload.length)) return;
    this.#head(HEAD + payload.length, kind, key);
    for (let i = 0; i < payload.length; i++) this.#put(HEAD + i, payload[i] ?? 0);
    this.#send(HEAD + payload.length);
  }

  /** `tell` of a call, without an array: for the path of every call. */
  publish(key: GroupKey, lane: Lane, seq: number, call: number, count: number, hash: number): void {
    const length = HEAD + 7;
    if (!this.#hasRoom(length)) return;
    this.#head(length, NOTICE.publish, key);
    this.#put(HEAD, laneCode(lane));
    this.#put(HEAD + 1, peerOf(lane));
    this.#put(HEAD + 2, seq | 0);
    this.#put(HEAD + 3, highOf(seq));
    this.#put(HEAD + 4, call);
    this.#put(HEAD + 5, count);
    this.#put(HEAD + 6, hash);
    this.#send(length);
  }

  #head(length: number, kind: number, key: GroupKey): void {
    this.#put(0, length);
    this.#put(1, kind);
    this.#put(2, key[0]);
    this.#put(3, key[1]);
  }

  #put(offset: number, value: number): void {
    this.#words[this.#at + FIRST + ((this.#position + offset) & MASK)] = value;
  }

  #send(length: number): void {
    Atomics.store(this.#words, this.#at + WRITTEN, (this.#position + length) | 0);
  }

  /** Waits for room. @returns false when the world is over @throws AbortedError when nobody reads */
  #hasRoom(length: number): boolean {
    if (this.#isFree(length)) return true;
    let [looked, waitedMs] = [performance.now(), 0];
    while (!this.#isFree(length)) {
      this.look();
      if (this.#isOver()) return false;
      const now = performance.now();
      waitedMs += pauseMs(now - looked);
      looked = now;
      if (waitedMs > FULL_MS)
        throw new AbortedError(`the launcher of this host has passed nothing on for ${FULL_MS / 1000} s`);
      nap(NAP_MS);
    }
    return true;
  }

  #isFree(length: number): boolean {
    return ((this.#position - Atomics.load(this.#words, this.#at + READ)) | 0) + length <= RING;
  }
}

/** Reads what a rank has told since the last time, in order: what its launcher does. */
export function readOutbox(words: Int32Array, at: number, take: (words: Int32Array) => void): void {
  const written = Atomics.load(words, at + WRITTEN);
  let position = Atomics.load(words, at + READ);
  while (position !== written) {
    const length = words[at + FIRST + (position & MASK)] ?? 0;
    invariant(length >= HEAD && length <= RING, "a notice has a head");
    const one = new Int32Array(length);
    for (let i = 0; i < length; i++) one[i] = words[at + FIRST + ((position + i) & MASK)] ?? 0;
    position = (position + length) | 0;
    Atomics.store(words, at + READ, position);
    take(one);
  }
}

/** One group in a rank's outbox. */
export class GroupOutbox {
  readonly #outbox: Outbox;
  readonly #key: GroupKey;

  constructor(outbox: Outbox, key: GroupKey) {
    this.#outbox = outbox;
    this.#key = key;
  }

  tell(kind: number, payload: ArrayLike<number> = []): void {
    this.#outbox.tell(kind, this.#key, payload);
  }

  /** See `Outbox.look`. */
  look(): void {
    this.#outbox.look();
  }

  publish(lane: Lane, seq: number, call: number, count: number, hash: number): void {
    this.#outbox.publish(this.#key, lane, seq, call, count, hash);
  }
}
