/** What a group's queue holds: calls of MPI, each of one request or of several steps, and tasks of the host. */
import { type EntryParts as CommonParts, type QueuedWork, QueueEntry } from "../../progress/index.ts";
import type { MpiProcess } from "./mpi-process.ts";

/** Where a call is made. */
export interface CallTarget {
  readonly mpi: MpiProcess;
  readonly comm: number;
  /** This rank within the group. */
  readonly rank: number;
  readonly size: number;
}

/** One call on its way through MPI. */
export interface Activity {
  /**
   * Later collectives must wait until it is done: it gives MPI more than one, and those of all ranks must be in one order.
   */
  readonly stepped: boolean;
  begin(target: CallTarget): void;
  /** Goes on. @returns whether it is done */
  advance(): boolean;
  /** Gives it up, since its group has failed. */
  stop?(): void;
}

/** Issues one call. @param request where MPI writes the request @returns MPI's status */
export type Issue = (target: CallTarget, request: number) => number;

/** A call of one request. */
export class SingleCall implements Activity {
  readonly stepped = false;
  readonly #symbol: string;
  readonly #issue: Issue | undefined;
  readonly #done: (() => void) | undefined;
  #mpi: MpiProcess | undefined;
  #request = 0;

  /** @param issue absent where there is nothing to move @param done runs when MPI has ended the call */
  constructor(symbol: string, issue: Issue | undefined, done?: () => void) {
    this.#symbol = symbol;
    this.#issue = issue;
    this.#done = done;
  }

  begin(target: CallTarget): void {
    if (this.#issue === undefined) return;
    const { mpi } = target;
    const request = mpi.requests.take();
    const status = this.#issue(target, request);
    if (status !== 0) {
      mpi.requests.give(request);
      throw mpi.library.error(this.#symbol, status);
    }
    this.#mpi = mpi;
    this.#request = request;
  }

  advance(): boolean {
    const mpi = this.#mpi;
    if (mpi === undefined) return true;
    if (!mpi.requests.done(this.#request)) return false;
    mpi.requests.give(this.#request);
    this.#mpi = undefined;
    this.#done?.();
    return true;
  }
}

/** What the steps of a call use: each `yield` waits for what was issued before it. */
export interface Steps extends CallTarget {
  issue(symbol: string, issue: Issue): void;
}

/** A call of several steps. */
export class SteppedCall implements Activity, Steps {
  readonly stepped = true;
  mpi!: MpiProcess;
  comm = 0;
  rank = 0;
  size = 0;
  readonly #make: (steps: Steps) => Generator<void>;
  readonly #open: number[] = [];
  #steps: Generator<void> | undefined;

  constructor(make: (steps: Steps) => Generator<void>) {
    this.#make = make;
  }

  begin({ mpi, comm, rank, size }: CallTarget): void {
    this.mpi = mpi;
    this.comm = comm;
    this.rank = rank;
    this.size = size;
    this.#steps = this.#make(this);
    if (this.#steps.next().done === true) this.#steps = undefined;
  }

  issue(symbol: string, issue: Issue): void {
    const request = this.mpi.requests.take();
    const status = issue(this, request);
    if (status !== 0) {
      this.mpi.requests.give(request);
      throw this.mpi.library.error(symbol, status);
    }
    this.#open.push(request);
  }

  advance(): boolean {
    const { requests } = this.mpi;
    for (let i = this.#open.length - 1; i >= 0; i--) {
      const request = this.#open[i] ?? 0;
      if (!requests.done(request)) return false;
      requests.give(request);
      this.#open.pop();
    }
    if (this.#steps?.next().done === true) this.#steps = undefined;
    return this.#steps === undefined && this.#open.length === 0;
  }
}

export interface EntryParts extends CommonParts {
  /** In the order in which they begin. Absent for tasks of the host. */
  readonly activities?: readonly Activity[];
}

const NONE: readonly never[] = Object.freeze([]);

export class MpiEntry extends QueueEntry {
  readonly activities: readonly Activity[];
  #numBegun = 0;
  readonly #running: Activity[] = [];

  constructor(work: QueuedWork<unknown>, parts: EntryParts, timeoutMs: number) {
    super(work, parts, timeoutMs);
    this.activities = parts.activities ?? NONE;
  }

  /** Whether a collective of this entry has yet to be given to MPI. */
  get blocks(): boolean {
    return this.#numBegun < this.activities.length || this.#running.some(({ stepped }) => stepped);
  }

  begin(target: CallTarget): void {
    while (this.#numBegun < this.activities.length && !this.#running.some(({ stepped }) => stepped)) {
      const next = this.activities[this.#numBegun++];
      if (next === undefined) return;
      next.begin(target);
      this.#running.push(next);
    }
  }

  /** Goes on with what was begun. @returns whether all of it is done */
  advance(target: CallTarget): boolean {
    const running = this.#running;
    let left = 0;
    for (let i = 0; i < running.length; i++) {
      const one = running[i];
      if (one !== undefined && !one.advance()) running[left++] = one;
    }
    if (left < running.length) running.length = left;
    if (this.#numBegun < this.activities.length) this.begin(target);
    return running.length === 0 && this.#numBegun === this.activities.length;
  }
}
