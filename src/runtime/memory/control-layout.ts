/**
 * The layout of the control segment, in 32-bit words: a header with the world's failure, what each rank's turn
 * is, who is here and the ranks' joint turns; then a table of groups. A group has a failure of its own, a small blob (NCCL's
 * unique id), and per member its *lanes* (lanes.ts), then the pairs' messages, the members' offers (turns.ts) and their
 * flight notes, and what each tells all others (bulletin.ts). In a world of several hosts each rank's outbox (outbox.ts) stands behind the groups.
 */
import { NOTE_WORDS, PAIR_NOTE_WORDS } from "./flight-notes.ts";
import { COLLECTIVE_RING, EXCHANGE_RING, LANE_RING, type Lane } from "./lanes.ts";
import { OUTBOX_WORDS } from "./outbox.ts";
import { PRESENCE_WORDS } from "./presence.ts";

/** Groups that may be open at once. */
export const MAX_GROUPS = 96;
/** Messages from one member to another that may be under way at once. */
export const MAIL_SLOTS = 8;
/** Words of one message: its number and what the sender wrote. */
export const MAIL_WORDS = 32;
/** Notices of a member that others may have yet to read (bulletin.ts). */
export const NOTICES = 8;
/** Words of one: its number and what the member wrote. */
export const NOTICE_WORDS = 52;

/** State of a failure, or of a blob, that is there; zero before. */
export const SET = 2;

/** Of the world's or a group's failure, as text. */
export const FAILURE_BYTES = 2048;
export const BLOB_BYTES = 256;
/** Name and members of a group, as JSON, for the flight recorder. */
export const LABEL_BYTES = 512;
/** State word, length word, text. */
const FAILURE_WORDS = 2 + FAILURE_BYTES / 4;
const BLOB_WORDS = 2 + BLOB_BYTES / 4;
const LABEL_WORDS = LABEL_BYTES / 4;

/** Words of the header. */
export const MAGIC_AT = 0;
export const LOCK_AT = 1;
export const WORLD_FAILURE_AT = 16;
/** One word per rank of the world (see turns.ts); presence follows. */
export const TURNS_AT = WORLD_FAILURE_AT + FAILURE_WORDS;

/** Words at the head of a group, from its first. A group that is free begins with zero. */
export const GROUP = {
  /** Two words. */
  key: 0,
  labelLength: 3,
  /** How many members are done with it, will make no more calls, have had it freed, have had it aborted. */
  left: 2,
  closing: 4,
  /** Not zero: it has failed and all members but the last have aborted it; it still runs on that one's device. */
  lingering: 5,
  reclaimed: 6,
  aborted: 7,
  /** A bit of each member that settles no further call, and whether kernels were cut short. */
  finished: 8,
  cutShort: 9,
  label: 10,
  failure: 10 + LABEL_WORDS,
  blob: 10 + LABEL_WORDS + FAILURE_WORDS,
  lanes: 10 + LABEL_WORDS + FAILURE_WORDS + BLOB_WORDS,
} as const;

/** Words of a call that a lane remembers. */
export const ENTRY_WORDS = 4;
/** Words before the ring of a lane, or before the slots of a pair's messages: a count (counts.ts), which has two words, and the word between them. */
export const HEAD_WORDS = 4;
/** In the head of a lane of sends or receives: see `TurnsPlace.firstAt`. */
export const FIRST_OF_TURN = 1;
/** In the head of a member's lane of collectives: 1 when it will make no more calls of the group. */
export const CLOSED = 3;
const LANE_WORDS = HEAD_WORDS + LANE_RING * ENTRY_WORDS;
const COLLECTIVE_WORDS = HEAD_WORDS + COLLECTIVE_RING * ENTRY_WORDS;
const EXCHANGE_WORDS = HEAD_WORDS + EXCHANGE_RING * ENTRY_WORDS;
const PAIR_WORDS = HEAD_WORDS + MAIL_SLOTS * MAIL_WORDS;
const BULLETIN_WORDS = HEAD_WORDS + NOTICES * NOTICE_WORDS;

/** Where things stand in the segment of a world of `worldSize` ranks. */
export class Layout {
  readonly worldSize: number;
  readonly #spansHosts: boolean;
  /** First of the words of presence.ts. */
  readonly presenceAt: number;
  /** First of the words of joint-turn.ts, one per rank. */
  readonly jointAt: number;
  /** First word of the first group. */
  readonly #headerWords: number;
  /** Words of all lanes of one member, of which the collectives' is the first. */
  readonly memberWords: number;
  /** From the first word of a group: the messages of its pairs, the offers and the notes of its members; its end. */
  readonly #pairs: number;
  readonly #offers: number;
  readonly #notes: number;
  readonly #pairNotes: number;
  readonly #bulletins: number;
  readonly #groupWords: number;

  constructor(worldSize: number, spansHosts = false) {
    this.worldSize = worldSize;
    this.#spansHosts = spansHosts;
    this.presenceAt = TURNS_AT + worldSize;
    this.jointAt = this.presenceAt + worldSize * PRESENCE_WORDS;
    this.#headerWords = this.jointAt + worldSize;
    this.memberWords = COLLECTIVE_WORDS + 2 * worldSize * (LANE_WORDS + EXCHANGE_WORDS);
    this.#pairs = GROUP.lanes + worldSize * this.memberWords;
    this.#offers = this.#pairs + worldSize * worldSize * PAIR_WORDS;
    this.#notes = this.#offers + worldSize;
    this.#pairNotes = this.#notes + worldSize * LANE_RING * NOTE_WORDS;
    this.#bulletins = this.#pairNotes + worldSize * LANE_RING * PAIR_NOTE_WORDS;
    this.#groupWords = this.#bulletins + worldSize * BULLETIN_WORDS;
  }

  get sizeBytes(): number {
    return 4 * this.outbox(this.#spansHosts ? this.worldSize : 0);
  }

  /** The outbox of a rank, of a world of several hosts. */
  outbox(rank: number): number {
    return this.#headerWords + MAX_GROUPS * this.#groupWords + rank * OUTBOX_WORDS;
  }

  /** Groups' places, each by its first word. */
  get groups(): readonly number[] {
    return Array.from({ length: MAX_GROUPS }, (_, i) => this.#headerWords + i * this.#groupWords);
  }

  /** Number of the group at `at`, from 0. */
  indexOf(at: number): number {
    return (at - this.#headerWords) / this.#groupWords;
  }

  endOf(at: number): number {
    return at + this.#groupWords;
  }

  /** A lane of a member of the group at `at`. */
  lane(at: number, member: number, lane: Lane): number {
    const base = at + GROUP.lanes + member * this.memberWords;
    if (lane.kind === "collective") return base;
    const pairs = base + COLLECTIVE_WORDS;
    const pair = lane.peer + (lane.kind === "send" || lane.kind === "give" ? 0 : this.worldSize);
    if (lane.kind === "send" || lane.kind === "recv") return pairs + pair * LANE_WORDS;
    return pairs + 2 * this.worldSize * LANE_WORDS + pair * EXCHANGE_WORDS;
  }

  /** The messages from one member to another. */
  pair(at: number, from: number, to: number): number {
    return at + this.#pairs + (from * this.worldSize + to) * PAIR_WORDS;
  }

  /** First of the members' offers. */
  offers(at: number): number {
    return at + this.#offers;
  }

  /** The flight notes of a member's collectives. */
  notes(at: number, member: number): number {
    return at + this.#notes + member * LANE_RING * NOTE_WORDS;
  }

  /** The flight notes of a member's sends and receives. */
  pairNotes(at: number, member: number): number {
    return at + this.#pairNotes + member * LANE_RING * PAIR_NOTE_WORDS;
  }

  /** What a member tells all others. */
  bulletin(at: number, member: number): number {
    return at + this.#bulletins + member * BULLETIN_WORDS;
  }
}

/** Size of the segment of a world, bytes. Pages that no group touches cost nothing. */
export function controlBytes(worldSize: number, spansHosts = false): number {
  return new Layout(worldSize, spansHosts).sizeBytes;
}
