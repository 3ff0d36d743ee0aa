/**
 * What became of a member's last calls, in the control segment: there the launcher reads it also of a rank that is dead or
 * stuck. A call costs a dozen stores. The last LANE_RING collectives have a note, by their number; and the last LANE_RING
 * sends and receives, in a ring of their own and whatever their peers, with what each is.
 */

import { markOf } from "./counts.ts";

/** How far a call came: called by the program, given to the engine's stream, begun there (told only with timings), done. */
const FLIGHT_STAGES = ["issued", "started", "running", "done"] as const;
type FlightStage = (typeof FLIGHT_STAGES)[number];

/** Words of a note: number, stage, and four 64-bit floats. Words, for the segment need not be aligned to eight bytes. */
export const NOTE_WORDS = 10;
/** Words of a send's or receive's: four more, two of its fingerprint, and two for its number in its lane. */
export const PAIR_NOTE_WORDS = NOTE_WORDS + 4;
const FAILED = 8;
const ISSUED_MS = 2;
const ENDED_MS = 4;
const START_US = 6;
const DURATION_US = 8;

const float = new Float64Array(1);
const halves = new Int32Array(float.buffer);

export interface FlightNote {
  /** How far the call came. */
  readonly stage: FlightStage;
  readonly failed: boolean;
  /** Milliseconds since 1970; 0 while it has not ended. */
  readonly issuedMs: number;
  readonly endedMs: number;
  /** When the stream began the call, counted from the group's first, and how long it took there; 0 without timings. */
  readonly startUs: number;
  readonly durationUs: number;
}

/** What became of a send or receive. */
interface PairNote extends FlightNote {
  /** The first two words of its fingerprint, and its number in its lane. */
  readonly call: number;
  readonly count: number;
  readonly seq: number;
}

/** The notes of one member: it writes them, anybody reads them. */
export class FlightNotes {
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #ring: number;
  readonly #stride: number;

  /** @param at first of `ring * stride` words, of which a note has the first `NOTE_WORDS` */
  constructor(words: Int32Array, at: number, ring: number, stride = NOTE_WORDS) {
    this.#words = words;
    this.#at = at;
    this.#ring = ring;
    this.#stride = stride;
  }

  issue(seq: number, timeMs: number): void {
    const words = this.#words;
    const at = this.#at + (seq % this.#ring) * this.#stride;
    // A plain store, as in `GroupControl.publish`.
    words[at] = 0;
    words[at + 1] = 0;
    this.#put(at + ISSUED_MS, timeMs);
    for (let i = ENDED_MS; i < NOTE_WORDS; i++) words[at + i] = 0;
    Atomics.store(words, at, markOf(seq));
  }

  /** Says that a call came further. */
  reach(seq: number, stage: "started" | "running"): void {
    const at = this.#find(seq);
    if (at !== undefined) this.#words[at + 1] = stage === "started" ? 1 : 2;
  }

  /** Ends a call. One that fails keeps the stage that it had reached. */
  end(seq: number, ok: boolean, timeMs: number): void {
    const at = this.#find(seq);
    if (at === undefined) return;
    this.#put(at + ENDED_MS, timeMs);
    this.#words[at + 1] = ok ? 3 : (this.#words[at + 1] ?? 0) | FAILED;
  }

  /** Whether a call has ended, well or not; not of one that was forgotten. */
  hasEnded(seq: number): boolean {
    const at = this.#find(seq);
    if (at === undefined) return false;
    const state = this.#words[at + 1] ?? 0;
    return (state & 3) === 3 || (state & FAILED) !== 0;
  }

  /** Says when a call ran on the stream, microseconds. */
  time(seq: number, startUs: number, durationUs: number): void {
    const at = this.#find(seq);
    if (at === undefined) return;
    this.#put(at + START_US, startUs);
    this.#put(at + DURATION_US, durationUs);
  }

  /** The note of call `seq`; `undefined` before it was issued and after it was forgotten. */
  read(seq: number): FlightNote | undefined {
    const at = this.#find(seq);
    if (at === undefined) return undefined;
    const state = this.#words[at + 1] ?? 0;
    const note = {
      stage: FLIGHT_STAGES[state & 3] ?? "issued",
      failed: (state & FAILED) !== 0,
      issuedMs: this.#get(at + ISSUED_MS),
      endedMs: this.#get(at + ENDED_MS),
      startUs: this.#get(at + START_US),
      durationUs: this.#get(at + DURATION_US),
    };
    return this.#find(seq) === undefined ? undefined : note;
  }

  #find(seq: number): number | undefined {
    const at = this.#at + (seq % this.#ring) * this.#stride;
    return Atomics.load(this.#words, at) === markOf(seq) ? at : undefined;
  }

  #put(at: number, value: number): void {
    float[0] = value;
    this.#words[at] = halves[0] ?? 0;
    this.#words[at + 1] = halves[1] ?? 0;
  }

  #get(at: number): number {
    halves[0] = this.#words[at] ?? 0;
    halves[1] = this.#words[at + 1] ?? 0;
    return float[0] ?? 0;
  }
}

/** The notes of one member's sends and receives, numbered in the order of issue over all its peers. */
export class PairNotes {
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #ring: number;
  /** What a note has in common with a collective's. */
  readonly #notes: FlightNotes;

  /** @param at first of `ring * PAIR_NOTE_WORDS` words */
  constructor(words: Int32Array, at: number, ring: number) {
    this.#words = words;
    this.#at = at;
    this.#ring = ring;
    this.#notes = new FlightNotes(words, at, ring, PAIR_NOTE_WORDS);
  }

  /** @param seq its number in its lane */
  issue(number: number, timeMs: number, { call, count }: Pick<PairNote, "call" | "count">, seq: number): void {
    const words = this.#words;
    const at = this.#at + (number % this.#ring) * PAIR_NOTE_WORDS;
    Atomics.store(words, at, 0);
    words[at + NOTE_WORDS] = call;
    words[at + NOTE_WORDS + 1] = count;
    words[at + NOTE_WORDS + 2] = seq;
    words[at + NOTE_WORDS + 3] = seq / 2 ** 32;
    this.#notes.issue(number, timeMs);
  }

  /** See `FlightNotes.reach`. */
  reach(number: number, stage: "started" | "running"): void {
    this.#notes.reach(number, stage);
  }

  /** See `FlightNotes.end`. */
  end(number: number, ok: boolean, timeMs: number): void {
    this.#notes.end(number, ok, timeMs);
  }

  /** See `FlightNotes.time`. */
  time(number: number, startUs: number, durationUs: number): void {
    this.#notes.time(number, startUs, durationUs);
  }

  /** All that are remembered, oldest first. */
  read(): readonly PairNote[] {
    const found: (PairNote & { readonly number: number })[] = [];
    for (let at = this.#at; at < this.#at + this.#ring * PAIR_NOTE_WORDS; at += PAIR_NOTE_WORDS) {
      const mark = Atomics.load(this.#words, at);
      if (mark === 0) continue;
      const [call = 0, count = 0, low = 0, high = 0] = this.#words.subarray(at + NOTE_WORDS, at + PAIR_NOTE_WORDS);
      // A number as far as its mark tells, modulo 2^31: its slot is the same.
      const number = (mark - 1) & 0x7fff_ffff;
      // After the words that only it has: it is whole when it is still the same.
      const note = this.#notes.read(number);
      if (note !== undefined) found.push({ ...note, call, count, seq: (low >>> 0) + high * 2 ** 32, number });
    }
    // They are a ring apart at most: of the difference modulo 2^31 the highest bit is the sign.
    return found.sort((a, b) => (a.number - b.number) << 1).map(({ number: _, ...note }) => note);
  }
}
