/**
 * What became of a member's last collectives, in the control segment: there the launcher reads it also of a rank that is
 * dead or stuck. A call costs a dozen stores. Notes follow the lane's ring: the last LANE_RING calls have one.
 */

import { markOf } from "./counts.ts";

/** How far a call came: called by the program, given to the engine's stream, begun there (told only with timings), done. */
const FLIGHT_STAGES = ["issued", "started", "running", "done"] as const;
export type FlightStage = (typeof FLIGHT_STAGES)[number];

/** Words of a note: number, stage, and four 64-bit floats. Words, for the segment need not be aligned to eight bytes. */
export const NOTE_WORDS = 10;
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

/** The notes of one member: it writes them, anybody reads them. */
export class FlightNotes {
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #ring: number;

  /** @param at first of `ring * NOTE_WORDS` words */
  constructor(words: Int32Array, at: number, ring: number) {
    this.#words = words;
    this.#at = at;
    this.#ring = ring;
  }

  issue(seq: number, timeMs: number): void {
    const words = this.#words;
    const at = this.#at + (seq % this.#ring) * NOTE_WORDS;
    Atomics.store(words, at, 0);
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
    const at = this.#at + (seq % this.#ring) * NOTE_WORDS;
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
