/**
 * The flight recorder's part of a queue: notes in the control segment what becomes of each call and, where the engine
 * has a timer and it is asked for, when the call ran. Without timings a call costs some stores and no look at a clock.
 */
import type { FlightNotes, GroupControl, Lane, PairNotes } from "../memory/index.ts";
import type { QueueEntry } from "./queue-entry.ts";

/** The environment variable that asks for timings. */
const TIMINGS_VARIABLE = "CHORALE_FLIGHT_TIMINGS";

/** Whether calls are timed: as the option says, otherwise as the environment does. */
export function wantsTimings(told: boolean | undefined): boolean {
  const said = process.env[TIMINGS_VARIABLE];
  return told ?? (said !== undefined && said !== "" && said !== "0");
}

/** Times calls where they run, without waiting for anything. */
export interface CallTimer {
  /** To be called before a call is given to the engine. */
  before(entry: QueueEntry): void;
  /** To be called once the engine has it. */
  behind(entry: QueueEntry): void;
  /** Finds the calls that have begun since the last look. */
  look(begun: (entry: QueueEntry) => void): void;
  /** When an ended call ran; `undefined` for one that was not timed. */
  ended(entry: QueueEntry, ok: boolean): { readonly startUs: number; readonly durationUs: number } | undefined;
  close(): void;
}

/** Zero of this thread's `performance.now()`, ms since 1970: a constant, which the getter costs a call to ask for. */
const ORIGIN_MS = performance.timeOrigin;

/** Whether a lane's calls have notes of their own: what pairs agree on within a collective is in the collective's. */
const ofPair = ({ kind }: Lane): boolean => kind === "send" || kind === "recv";

export class CallRecorder {
  readonly #notes: FlightNotes;
  readonly #pairs: PairNotes;
  readonly #timer: CallTimer | undefined;
  /** Sends and receives that have had a note. */
  #numPairs = 0;

  constructor(control: GroupControl, timer?: CallTimer) {
    ({ collectives: this.#notes, pairs: this.#pairs } = control.notesOf(control.member));
    this.#timer = timer;
  }

  get timings(): boolean {
    return this.#timer !== undefined;
  }

  issued(entry: QueueEntry): void {
    entry.firstPairNote = this.#numPairs;
    const timeMs = ORIGIN_MS + entry.issuedAt;
    for (const { lane, seq, print } of entry.arrivals) {
      if (lane.kind === "collective") this.#notes.issue(seq, timeMs);
      else if (ofPair(lane)) this.#pairs.issue(this.#numPairs++, timeMs, print, seq);
    }
  }

  /** To be called before a call is given to the engine, with timings. */
  before(entry: QueueEntry): void {
    if (entry.arrivals.length > 0) this.#timer?.before(entry);
  }

  /** To be called when the engine has the call. */
  started(entry: QueueEntry): void {
    this.#timer?.behind(entry);
    this.#reach(entry, "started");
  }

  /** Notes which calls have begun to run. */
  look(): void {
    this.#timer?.look((entry) => this.#reach(entry, "running"));
  }

  #reach({ arrivals, firstPairNote }: QueueEntry, stage: "started" | "running"): void {
    let pair = firstPairNote;
    for (const { lane, seq } of arrivals) {
      if (lane.kind === "collective") this.#notes.reach(seq, stage);
      else if (ofPair(lane)) this.#pairs.reach(pair++, stage);
    }
  }

  /** Ends a call's note. @param now as `performance.now()` has it */
  ended(entry: QueueEntry, ok: boolean, now: number): void {
    const ran = this.#timer?.ended(entry, ok);
    let pair = entry.firstPairNote;
    for (const { lane, seq } of entry.arrivals) {
      if (lane.kind === "collective") {
        if (ran !== undefined) this.#notes.time(seq, ran.startUs, ran.durationUs);
        this.#notes.end(seq, ok, ORIGIN_MS + now);
      } else if (ofPair(lane)) {
        if (ran !== undefined) this.#pairs.time(pair, ran.startUs, ran.durationUs);
        this.#pairs.end(pair++, ok, ORIGIN_MS + now);
      }
    }
  }

  close(): void {
    this.#timer?.close();
  }
}
