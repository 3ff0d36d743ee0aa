/**
 * What travels between two ranks: frames, each a head of 64 bytes and at most MAX_FRAME_BYTES. The head names the
 * message that the frame is a part of, and carries the fingerprint of the call that it belongs to, so that ranks which
 * disagree notice it with the first byte. Where the world has checksums, two words follow it: see frame-checksum.ts.
 * Words are of the machine's own order, little-endian everywhere that Node runs.
 */
import { FormatError } from "../../../core/index.ts";

/** What a frame is. Only ever append, and raise FRAMES in meet.ts. */
export const KIND = {
  /** A part of a message. */
  data: 1,
  /** "Send me the message that this names": for messages above EAGER_BYTES. */
  grant: 2,
  /** "I have a message above EAGER_BYTES for you": of sends, whose receive may not be there yet. */
  offer: 3,
  /** Bytes of small messages that were taken; see `Link`. */
  credit: 4,
  /** What the sender's last collective is. */
  status: 5,
  /** The same, and the question for the receiver's. */
  ask: 6,
  /** The sender has closed the group: its next collective, and how many messages it sent to the receiver. */
  close: 7,
  /** JSON with a signature. */
  control: 8,
  /** Data for a place of the receiver, in a plan that both run: see plan-frames.ts, as for all that follow. */
  put: 9,
  /** The question for data of a place, and its answer. */
  get: 10,
  got: 11,
  /** Raises a counter of the plan. */
  raise: 12,
  /** Asks whether all that was put before is there, which the answer says. */
  fence: 13,
  fenced: 14,
  /** Something has changed in the memory of the host that both are on. */
  wake: 15,
} as const;
export type FrameKind = (typeof KIND)[keyof typeof KIND];

/** What a kind is called in errors. */
export const nameOfKind = (kind: FrameKind): string =>
  (Object.keys(KIND) as (keyof typeof KIND)[]).find((name) => KIND[name] === kind) ?? "frame";

export const HEAD_BYTES = 64;
const HEAD_WORDS = HEAD_BYTES / 4;
/** Most bytes of one frame: what one connection carries at a time of a large message. */
export const MAX_FRAME_BYTES = 1024 * 1024;
/** Messages up to this size are sent before the receiver asks for them. */
export const EAGER_BYTES = 32 * 1024;
/** Payloads up to this size are copied behind their head, and out of what was read: that takes less than another system call. */
export const COPIED_BYTES = 16 * 1024;
/** Largest control frame: a failure with the last call of every rank. */
export const MAX_CONTROL_BYTES = 64 * 1024;

/** Whether a message is part of a collective, or of a send and its receive. */
export const LANE = { collective: 0, pair: 1 } as const;

/** The three words of a call's fingerprint. */
export interface Print {
  readonly call: number;
  readonly count: number;
  readonly hash: number;
}

/** Names a message between two ranks. */
export interface MessageName {
  readonly group: GroupKey;
  readonly lane: number;
  /** Number of the collective, or of the message among those that the pair exchanged in this direction. */
  readonly seq: number;
  /** Which message of the collective; 0 of a pair's. */
  readonly slot: number;
}

/** 64 bits of a hash of what tells groups apart. */
export interface GroupKey {
  readonly low: number;
  readonly high: number;
}

export interface Head extends MessageName {
  readonly kind: FrameKind;
  /** Bytes that follow. */
  readonly bytes: number;
  /** Where they stand in the message, and how long that is. */
  readonly offset: number;
  readonly total: number;
  readonly print: Print;
  /** Elements that the pair exchanges in an all-to-all of varying sizes; number of messages in `close`, of a question. */
  readonly extra: number;
}

/** A head of nothing. */
export const NO_HEAD: Head = Object.freeze({
  kind: KIND.control,
  bytes: 0,
  group: { low: 0, high: 0 },
  lane: 0,
  seq: 0,
  slot: 0,
  offset: 0,
  total: 0,
  print: { call: 0, count: 0, hash: 0 },
  extra: 0,
});

const MARK = 0x43480000;
const KINDS = new Set<number>(Object.values(KIND));
/** Most bytes of a frame; none of the others. */
const MAX_BYTES: ReadonlyMap<number, number> = new Map([
  [KIND.data, MAX_FRAME_BYTES],
  [KIND.put, MAX_FRAME_BYTES],
  [KIND.got, MAX_FRAME_BYTES],
  [KIND.control, MAX_CONTROL_BYTES],
]);

/** Writes a head into `words`, from word `at` on. Its fields come one by one: an object for each frame costs more than the rest. */
export function writeHead(
  words: Int32Array,
  at: number,
  kind: FrameKind,
  { group, lane, seq, slot }: MessageName,
  print: Print,
  extra: number,
  offset: number,
  bytes: number,
  total: number,
): void {
  words[at] = MARK | kind;
  words[at + 1] = bytes;
  words[at + 2] = group.low;
  words[at + 3] = group.high;
  words[at + 4] = lane;
  words[at + 5] = seq;
  words[at + 6] = slot;
  words[at + 7] = offset;
  words[at + 8] = offset / 2 ** 32;
  words[at + 9] = total;
  words[at + 10] = total / 2 ** 32;
  words[at + 11] = print.call;
  words[at + 12] = print.count;
  words[at + 13] = print.hash;
  words[at + 14] = extra;
  words[at + 15] = extra / 2 ** 32;
}

const wide = (low: number | undefined, high: number | undefined) => ((low ?? 0) >>> 0) + ((high ?? 0) >>> 0) * 2 ** 32;

/** Reads a head. @param peer who sent it, for errors @throws FormatError for what is none */
export function readHead(words: Int32Array, peer: string): Head {
  const first = words[0] ?? 0;
  const kind = first & 0xffff;
  if (words.length < HEAD_WORDS || (first & 0xffff0000) !== MARK || !KINDS.has(kind)) {
    throw new FormatError(peer, "sent a frame that does not begin as one");
  }
  const head: Head = {
    kind: kind as FrameKind,
    bytes: (words[1] ?? 0) >>> 0,
    group: { low: words[2] ?? 0, high: words[3] ?? 0 },
    lane: words[4] ?? 0,
    seq: (words[5] ?? 0) >>> 0,
    slot: (words[6] ?? 0) >>> 0,
    offset: wide(words[7], words[8]),
    total: wide(words[9], words[10]),
    print: { call: words[11] ?? 0, count: words[12] ?? 0, hash: words[13] ?? 0 },
    extra: wide(words[14], words[15]),
  };
  const limit = MAX_BYTES.get(kind) ?? 0;
  if (head.bytes > limit) throw new FormatError(peer, `sent a frame of ${head.bytes} bytes; expected at most ${limit}`);
  if (head.lane !== LANE.collective && head.lane !== LANE.pair) {
    throw new FormatError(peer, `sent a frame of lane ${head.lane}; expected 0 or 1`);
  }
  if (kind === KIND.data && head.offset + head.bytes > head.total) {
    throw new FormatError(peer, `sent bytes ${head.offset} to ${head.offset + head.bytes} of ${head.total}`);
  }
  return head;
}

/** A group's key as the key of a map. */
export const keyOf = ({ low, high }: GroupKey): number => (low >>> 0) + (high & 0xfffff) * 2 ** 32;
