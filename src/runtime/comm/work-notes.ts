/**
 * Who looks at a group's works: a call that nobody awaited or waited for is a forgotten `await` more often than not, and
 * its author should hear of it. Taking a call site costs more than a small collective, so the first calls of a group have
 * theirs taken and one in many after that; CHORALE_CALLSITES=1 takes every one.
 */
import { type CallTrace, InvalidArgumentError, traceOfCall } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
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
interface UnseenWorks {
  readonly what: string;
  /** The calls, one a line; each line begins with a line break. */
  readonly sites: string;
}

/** A work, as far as it is watched. */
export interface Watched {
  readonly op: string;
  readonly seq: number;
  readonly state: WorkState;
  /** Not set where the call is done: its note has it. */
  trace: CallTrace | undefined;
  note: WorkNote | undefined;
}

/** What a report must know of a group. */
interface NotedGroup {
  readonly name: string;
  /** Whether calls that nobody awaited are reported; otherwise later calls' sites are not taken. */
  readonly reports: boolean;
  /** Such calls are an error. */
  readonly strict: boolean;
  readonly hasFailed: () => boolean;
}

/** Notes of groups that are open: their program may exit before it closes them. Nothing here keeps a group that is dropped. */
const open = new Set<WeakRef<WorkNotes>>();

export class WorkNotes {
  readonly #takesAll = (process.env["CHORALE_CALLSITES"] ?? "0") !== "0";
  readonly #group: NotedGroup;
  readonly #self = new WeakRef<WorkNotes>(this);
  #notes: WorkNote[] = [];
  #numWatched = 0;
  /** Calls up to the next one that is watched. */
  #left = 1;
  /** Calls from one that is watched to the next. */
  #stride = SAMPLE_EVERY;
  #sampledAt = 0;

  constructor(group: NotedGroup) {
    this.#group = group;
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
    else this.#left = this.#group.reports ? this.#nextStride() : NEVER;
    // Also where nothing is reported: the error of a deadline names it.
    const trace = work.trace ?? traceOfCall();
    if (work.state !== "done") work.trace = trace;
    if (!this.#group.reports || isOver) return;
    if (this.#notes.length >= MAX_NOTES) this.#notes = this.#notes.filter(({ seen }) => !seen);
    if (this.#notes.length >= MAX_NOTES) return;
    const note: WorkNote = { op: work.op, seq: work.seq, trace, seen: false };
    work.note = note;
    if (this.#numWatched === 1) {
      // Before listeners that tell other ranks of the end: it is no failure of this group yet.
      if (open.size === 0) process.prependListener("exit", onExit);
      for (const one of open) if (one.deref() === undefined) open.delete(one);
      open.add(this.#self);
    }
    this.#notes.push(note);
  }

  #nextStride(): number {
    const now = performance.now();
    const isFast = now - this.#sampledAt < SAMPLE_MS;
    this.#sampledAt = now;
    this.#stride = isFast ? Math.min(2 * this.#stride, MAX_STRIDE) : SAMPLE_EVERY;
    return this.#stride;
  }

  /** The works that nobody looked at, in words; undefined when there is none, or the program was busy with a failure. */
  unseen(): UnseenWorks | undefined {
    if (this.#group.hasFailed()) return undefined;
    const unseen = this.#notes.filter(({ seen }) => !seen);
    if (unseen.length === 0) return undefined;
    const named = unseen.slice(0, MAX_NAMED).map(({ op, seq, trace }) => {
      const site = callSite(trace);
      return `\n  ${op} #${seq}${site === undefined ? "" : ` at ${site}`}`;
    });
    const more = unseen.length > MAX_NAMED ? `\n  and ${unseen.length - MAX_NAMED} more` : "";
    const calls = unseen.length === 1 ? "a call" : `${unseen.length} calls`;
    const what = `${calls} of group ${this.#group.name} that nobody awaited or waited for`;
    return { what, sites: `${named.join("")}${more}` };
  }

  /** Ends the watch as the group is closed. @returns the works that nobody looked at */
  end(): UnseenWorks | undefined {
    if (open.delete(this.#self) && open.size === 0) process.removeListener("exit", onExit);
    return this.unseen();
  }

  /** Makes of them a warning of the process, or an error. @returns the error */
  report(unseen: UnseenWorks): InvalidArgumentError | undefined {
    if (this.#group.strict) return errorOf(unseen);
    process.emitWarning(textOf(unseen), { type: WARNING, code: CODE });
    return undefined;
  }

  /** Reports them, as the process exits: warnings would not be shown any more. @returns whether that is an error */
  reportAtExit(): boolean {
    const unseen = this.end();
    if (unseen === undefined) return false;
    const { strict } = this.#group;
    const text = strict ? errorOf(unseen).message : `[${CODE}] ${WARNING}: ${textOf(unseen)}`;
    process.stderr.write(`(node:${process.pid}) ${text}\n`);
    return strict;
  }
}

const WARNING = "ChoraleWarning";
const CODE = "CHORALE_UNAWAITED_WORK";
const textOf = ({ what, sites }: UnseenWorks) =>
  `${what}:${sites}\nawait each call, or its results may not be there yet`;
const errorOf = ({ what, sites }: UnseenWorks) =>
  new InvalidArgumentError("work", described(what), `await, or wait(), for every call (strictWork is on):${sites}`);

/**
 * Reports the works that nobody looked at, of a program that exits as if all were well with its groups open.
 * @returns the exit code: 1 instead of 0 where that is an error
 */
export function reportUnseenAtExit(code: number): number {
  if (code !== 0) return code;
  let isError = false;
  for (const notes of open) isError = notes.deref()?.reportAtExit() || isError;
  return isError ? 1 : 0;
}

function onExit(code: number): void {
  const reported = reportUnseenAtExit(code);
  if (reported !== code) process.exitCode = reported;
}
