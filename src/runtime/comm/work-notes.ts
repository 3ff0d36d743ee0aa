/**
 * Who looks at a group's works: a call that nobody awaited or waited for is a forgotten `await` more often than not, and
 * its author should hear of it. Taking a call site costs more than a small collective, so the first calls of a group have
 * theirs taken and one in many after that; CHORALE_CALLSITES=1 takes every one.
 */
import { type CallTrace, InvalidArgumentError, traceOfCall } from "../../core/index.ts";
import type { WorkState } from "./contract.ts";
import { callSite } from "./failure.ts";

/** Calls of a group, from its first, whose sites are taken: a program that forgets an `await` does so early. */
const FIRST_CALLS = 32;
/** One in so many of the later calls. */
const SAMPLE_EVERY = 512;
/** Where that comes more often than this, ms, calls are so short that a call site counts: the stride doubles then. */
const SAMPLE_MS = 10;
const MAX_STRIDE = 2 ** 13;
/** More calls than a group makes before it counts anew: a small integer, so that counting allocates nothing. */
const NEVER = 2 ** 30 - 1;
/** Notes that are kept; later calls are not watched while so many wait to be looked at. */
const MAX_NOTES = 64;
/** Call sites that a report names. */
const MAX_NAMED = 8;

/** What stays of a work that is watched: not the work, which would keep its tensors. */
export interface WorkNote {
  readonly op: string;
  readonly seq: number;
  readonly trace: CallTrace;
  seen: boolean;
}

/** Works that nobody looked at. */
export interface UnseenWorks {
  readonly what: string;
  /** The calls, one a line; each line begins with a line break. */
  readonly sites: string;
}

/** A work, as far as it is watched. */
export interface Watched {
  readonly op: string;
  readonly seq: number;
  readonly state: WorkState;
  trace: CallTrace | undefined;
  note: WorkNote | undefined;
}

export class WorkNotes {
  readonly #takesAll = (process.env["CHORALE_CALLSITES"] ?? "0") !== "0";
  readonly #reports: boolean;
  #notes: WorkNote[] = [];
  #numWatched = 0;
  /** Calls up to the next one that is watched. */
  #left = 1;
  /** Calls from one that is watched to the next. */
  #stride = SAMPLE_EVERY;
  #sampledAt = 0;

  /** @param reports whether the group reports calls that nobody awaited; otherwise later calls' sites are not taken */
  constructor(reports: boolean) {
    this.#reports = reports;
  }

  /** Counts a call, and watches its work when its turn has come. Costs a subtraction for all others. */
  count(work: Watched): void {
    if (--this.#left <= 0) this.#watch(work);
  }

  #watch(work: Watched): void {
    // A call that has failed already was refused or recorded: there is nothing to await, and the next one has its turn.
    const isOver = work.state === "failed";
    if (!isOver) this.#numWatched++;
    if (this.#takesAll || this.#numWatched < FIRST_CALLS || isOver) this.#left = 1;
    else this.#left = this.#reports ? this.#nextStride() : NEVER;
    // Also where nothing is reported: the error of a deadline names it.
    work.trace ??= traceOfCall();
    if (!this.#reports || isOver) return;
    if (this.#notes.length >= MAX_NOTES) this.#notes = this.#notes.filter(({ seen }) => !seen);
    if (this.#notes.length >= MAX_NOTES) return;
    const note: WorkNote = { op: work.op, seq: work.seq, trace: work.trace, seen: false };
    work.note = note;
    this.#notes.push(note);
  }

  #nextStride(): number {
    const now = performance.now();
    const isFast = now - this.#sampledAt < SAMPLE_MS;
    this.#sampledAt = now;
    this.#stride = isFast ? Math.min(2 * this.#stride, MAX_STRIDE) : SAMPLE_EVERY;
    return this.#stride;
  }

  /** The works that nobody looked at, in words; undefined when there is none. */
  unseen(group: string): UnseenWorks | undefined {
    const unseen = this.#notes.filter(({ seen }) => !seen);
    if (unseen.length === 0) return undefined;
    const named = unseen.slice(0, MAX_NAMED).map(({ op, seq, trace }) => {
      const site = callSite(trace);
      return `\n  ${op} #${seq}${site === undefined ? "" : ` at ${site}`}`;
    });
    const more = unseen.length > MAX_NAMED ? `\n  and ${unseen.length - MAX_NAMED} more` : "";
    const calls = unseen.length === 1 ? "a call" : `${unseen.length} calls`;
    return { what: `${calls} of group ${group} that nobody awaited or waited for`, sites: `${named.join("")}${more}` };
  }
}

/** Makes of forgotten works a warning of the process, or an error. @returns the error, with `strict` */
export function reportUnseen({ what, sites }: UnseenWorks, strict: boolean): InvalidArgumentError | undefined {
  if (strict) {
    return new InvalidArgumentError("work", what, `await, or wait(), for every call (strictWork is on):${sites}`);
  }
  process.emitWarning(`${what}:${sites}\nawait each call, or its results may not be there yet`, {
    type: "ChoraleWarning",
    code: "CHORALE_UNAWAITED_WORK",
  });
  return undefined;
}
