/**
 * The flight recorder's hand in a communicator's queue: notes in the control segment what becomes of each call
 * and, when asked, times it on the stream with an event before and one behind. Without timings a call costs some stores
 * and no look at a clock; with them two events, of which none is waited for.
 */

import { CudaEvent, type CudaStream } from "../../device/index.ts";
import type { FlightNotes, GroupControl, Lane, PairNotes } from "../../memory/index.ts";
import type { Entry } from "./queue-entry.ts";

/** The environment variable that asks for timings. */
const TIMINGS_VARIABLE = "CHORALE_FLIGHT_TIMINGS";

/** Whether calls are to be timed: as told, or else as the environment says. */
export function wantsTimings(told: boolean | undefined): boolean {
  const said = process.env[TIMINGS_VARIABLE];
  return told ?? (said !== undefined && said !== "" && said !== "0");
}

/** Zero of this thread's `performance.now()`, ms since 1970: a constant, which the getter costs a call to ask for. */
const ORIGIN_MS = performance.timeOrigin;

/** Whether a lane's calls have notes of their own: what pairs agree on within a collective is in the collective's. */
const ofPair = ({ kind }: Lane): boolean => kind === "send" || kind === "recv";

interface Timed {
  readonly start: CudaEvent;
  readonly end: CudaEvent;
  running: boolean;
}

export class CallRecorder {
  readonly #notes: FlightNotes;
  readonly #pairs: PairNotes;
  /** Sends and receives that have had a note. */
  #numPairs = 0;
  readonly #stream: CudaStream;
  /** Calls that are being timed; absent without timings. */
  readonly #timed: Map<Entry, Timed> | undefined;
  readonly #spare: CudaEvent[] = [];
  /** The start of the call that was timed last, and when that was: times grow from call to call, so that none is long. */
  #last: CudaEvent | undefined;
  #lastUs = 0;

  constructor(control: GroupControl, stream: CudaStream, timings: boolean) {
    this.#notes = control.flightNotes(control.member);
    this.#pairs = control.pairNotes(control.member);
    this.#stream = stream;
    this.#timed = timings ? new Map() : undefined;
  }

  get timings(): boolean {
    return this.#timed !== undefined;
  }

  issued(entry: Entry): void {
    entry.firstPairNote = this.#numPairs;
    const timeMs = ORIGIN_MS + entry.issuedAt;
    for (const { lane, seq, print } of entry.arrivals) {
      if (lane.kind === "collective") this.#notes.issue(seq, timeMs);
      else if (ofPair(lane)) this.#pairs.issue(this.#numPairs++, timeMs, print, seq);
    }
  }

  /** To be called before a call is put on the stream, with timings. */
  before(entry: Entry): void {
    if (this.#timed === undefined || entry.arrivals.length === 0) return;
    const timed = { start: this.#event(), end: this.#event(), running: false };
    timed.start.record(this.#stream);
    this.#timed.set(entry, timed);
  }

  /** To be called when the call is on the stream. */
  started(entry: Entry): void {
    this.#timed?.get(entry)?.end.record(this.#stream);
    this.#reach(entry, "started");
  }

  /** Notes which calls the stream has begun. */
  look(): void {
    if (this.#timed === undefined) return;
    for (const [entry, timed] of this.#timed) {
      if (timed.running) continue;
      // In order: what is behind one that has not begun has not begun either.
      if (!timed.start.isDone()) return;
      timed.running = true;
      this.#reach(entry, "running");
    }
  }

  #reach({ arrivals, firstPairNote }: Entry, stage: "started" | "running"): void {
    let pair = firstPairNote;
    for (const { lane, seq } of arrivals) {
      if (lane.kind === "collective") this.#notes.reach(seq, stage);
      else if (ofPair(lane)) this.#pairs.reach(pair++, stage);
    }
  }

  /** Ends a call's note. @param now as `performance.now()` has it */
  ended(entry: Entry, ok: boolean, now: number): void {
    if (this.#timed !== undefined) this.#time(this.#timed, entry, ok);
    let pair = entry.firstPairNote;
    for (const { lane, seq } of entry.arrivals) {
      if (lane.kind === "collective") this.#notes.end(seq, ok, ORIGIN_MS + now);
      else if (ofPair(lane)) this.#pairs.end(pair++, ok, ORIGIN_MS + now);
    }
  }

  close(): void {
    for (const { start, end } of this.#timed?.values() ?? []) this.#spare.push(start, end);
    this.#timed?.clear();
    for (const event of this.#spare) event.close();
    this.#spare.length = 0;
    this.#last?.close();
    this.#last = undefined;
  }

  #time(all: Map<Entry, Timed>, entry: Entry, ok: boolean): void {
    const timed = all.get(entry);
    if (timed === undefined) return;
    all.delete(entry);
    const { start, end } = timed;
    if (!ok || end.closed) {
      // The stream may not have come to them: they are not used again. A lost context takes them with it.
      try {
        end.close();
        start.close();
      } catch {}
      return;
    }
    if (this.#last !== undefined) {
      this.#lastUs += start.elapsedUsSince(this.#last);
      this.#spare.push(this.#last);
    }
    this.#last = start;
    const durationUs = end.elapsedUsSince(start);
    this.#spare.push(end);
    let pair = entry.firstPairNote;
    for (const { lane, seq } of entry.arrivals) {
      if (lane.kind === "collective") this.#notes.time(seq, this.#lastUs, durationUs);
      else if (ofPair(lane)) this.#pairs.time(pair++, this.#lastUs, durationUs);
    }
  }

  #event(): CudaEvent {
    return this.#spare.pop() ?? CudaEvent.create(this.#stream.device, { timing: true });
  }
}
