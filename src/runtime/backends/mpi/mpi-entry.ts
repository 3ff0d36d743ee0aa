/** What a group's queue holds: calls of MPI, each of one request or of several steps, and tasks of the host. */
import { type Arrival, type EntryParts as CommonParts, type QueuedWork, QueueEntry } from "../../progress/index.ts";
import type { MpiProcess } from "./mpi-process.ts";

/** Where a call is made. */
export interface CallTarget {
  readonly mpi: MpiProcess;
  readonly comm: number;
  /** This rank within the group. */
  readonly rank: number;
  readonly size: number;
}

/** What a call needs to bring its part. */
export type BringPlace = Pick<MpiProcess, "library" | "addresses">;

/** One call on its way through MPI. */
export interface Activity {
  /**
   * Later collectives must wait until it is done: it gives MPI more than one, and those of all ranks must be in one order.
   */
  readonly stepped: boolean;
  /** It must be done before any later message of the group begins: the messages of its own entry come behind it. */
  readonly holdsMessages?: boolean;
  /**
   * Writes this rank's part where the other members find it, before the call's turn: when every earlier call of the group is done here.
   * @param arrival what this rank says of the call; without it the others hear of the call by what is published
   */
  bring?(arrival: Arrival, mpi: BringPlace): void;
  /** Of a call that was brought: whether all members have brought the same. */
  hasMet?(): boolean;
  begin(target: CallTarget): void;
  /** Goes on. @returns whether it is done */
  advance(): boolean;
  /** Gives up what was begun or brought, since its group has failed. */
  stop?(): void;
}

/** Issues one call. @param request where MPI writes the request @returns MPI's status */
type Issue = (target: CallTarget, request: number) => number;

/** A call of one request. When it is done it can be made again. */
export abstract class RequestCall implements Activity {
  readonly stepped = false;
  readonly #symbol: string;
  #mpi: MpiProcess | undefined;
  #request = 0;

  constructor(symbol: string) {
    this.#symbol = symbol;
  }

  protected abstract issue(mpi: MpiProcess, comm: number, request: number, target: CallTarget): number;
  /** Runs when MPI has ended the call. */
  protected ended(): void {}

  begin(target: CallTarget): void {
    const { mpi } = target;
    const request = mpi.requests.take();
    const status = this.issue(mpi, target.comm, request, target);
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
    this.ended();
    return true;
  }
}

/** A call of one request, issued by a function. */
export class SingleCall extends RequestCall {
  readonly #issue: Issue | undefined;
  readonly #done: (() => void) | undefined;

  /** @param issue absent where there is nothing to move @param done runs when MPI has ended the call */
  constructor(symbol: string, issue: Issue | undefined, done?: () => void) {
    super(symbol);
    this.#issue = issue;
    this.#done = done;
  }

  override begin(target: CallTarget): void {
    if (this.#issue !== undefined) super.begin(target);
  }

  protected issue(_mpi: MpiProcess, _comm: number, request: number, target: CallTarget): number {
    return this.#issue?.(target, request) ?? 0;
  }

  protected override ended(): void {
    this.#done?.();
  }
}

/** What the steps of a call use: each `yield` waits for what was issued before it. */
export interface Steps extends CallTarget {
  issue(symbol: string, issue: Issue): void;
  /** Makes a whole call, one at a time. */
  make(call: Activity): Generator<void>;
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
  #made: Activity | undefined;

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

  *make(call: Activity): Generator<void> {
    this.#made = call;
    call.begin(this);
    while (!call.advance()) yield;
    this.#made = undefined;
  }

  /** The steps stay: MPI may yet write to memory that they hold. */
  stop(): void {
    this.#made?.stop?.();
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
  #isStopped = false;
  /** What was begun and is not done; of a call of one activity, which most are, `activities` says it. */
  readonly #running: Activity[] | undefined;

  constructor(work: QueuedWork<unknown>, parts: EntryParts, timeoutMs: number) {
    super(work, parts, timeoutMs);
    this.activities = parts.activities ?? NONE;
    this.#running = this.activities.length === 1 ? undefined : [];
  }

  /** Whether a collective of this entry has yet to be given to MPI. */
  get blocks(): boolean {
    return this.#numBegun < this.activities.length || this.#isStepping();
  }

  /** Whether messages of later entries must wait for this one's. */
  get holdsMessages(): boolean {
    return this.#numBegun === 1 && this.activities[0]?.holdsMessages === true;
  }

  /** Whether something of several steps runs. */
  #isStepping(): boolean {
    if (this.#running === undefined) return this.#numBegun === 1 && this.activities[0]?.stepped === true;
    return this.#running.some(({ stepped }) => stepped);
  }

  begin(target: CallTarget): void {
    while (this.#numBegun < this.activities.length && !this.#isStepping()) {
      const next = this.activities[this.#numBegun++];
      if (next === undefined) return;
      next.begin(target);
      this.#running?.push(next);
    }
  }

  /**
   * Gives up what was begun, or brought: others may have found that of a call that waits, or was refused because the group has just
   * failed. They use this rank's memory no more. Idempotent.
   */
  stop(): void {
    if (this.#isStopped || (this.#numBegun === 0 && !this.comparesLater)) return;
    this.#isStopped = true;
    for (const one of this.activities) one.stop?.();
  }

  /** Goes on with what was begun. @returns whether all of it is done */
  advance(target: CallTarget): boolean {
    const running = this.#running;
    if (running === undefined) return this.activities[0]?.advance() ?? true;
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
