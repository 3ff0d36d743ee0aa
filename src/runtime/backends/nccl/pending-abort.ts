/**
 * Groups that failed while their world goes on, among threads. Every member but the last aborts its part at once, which
 * ends its kernels and frees nothing. The last one's abort frees the communicators of all members and waits for their
 * devices, so where it has kernels that run, the group *lingers* there until all members can wait together: a joint turn
 * (memory/joint-turn.ts) of the members of every group that lingers on one of them, for which a rank offers itself while
 * nothing else of its own is on its device, and which it attends when all have offered (turn-attendance.ts). In that turn
 * all of these groups are aborted at once, each by its last member, and no member goes on before all have done so.
 *
 * While this rank offers itself, its new calls are held back, for a second at most and now and then, because calls that
 * others have made already must complete before the ranks are quiet. Afterwards it takes whatever quiet moment there is.
 * All members of a group that lingers know of the failure, for the others have aborted it.
 */
import { type JointTurn, napUntil } from "../../memory/index.ts";
import type { NcclContext } from "./nccl-context.ts";
import type { CommQueue } from "./queue.ts";
import { HOLD_BACK_MS, isHoldWindow } from "./quiet-window.ts";

/** How often a rank that is idle looks whether a group lingers on another one, ms. */
const LOOK_MS = 10;
/** How long a rank waits for a turn to end, in which all are: NCCL frees a group in some tens of milliseconds. */
const TURN_MS = 20_000;

/** What the rank's communicators are asked for. */
interface PendingAbortOptions {
  /** Whether nothing is on this rank's device, leaving `except` aside. */
  readonly isQuiet: (except: ReadonlySet<CommQueue>) => boolean;
  /** Whether kernels of a group run here. */
  readonly runs: (queue: CommQueue) => boolean;
  readonly abort: (queues: readonly CommQueue[]) => void;
  /** Attends the turns that this rank has offered itself for. */
  readonly attend: () => void;
}

export class PendingAborts {
  readonly #rank: NcclContext;
  readonly #options: PendingAbortOptions;
  readonly #turn: JointTurn;
  /** Groups that this rank has aborted, or would have as the last: they may linger on some member. */
  readonly #watched = new Set<CommQueue>();
  /** Those that linger here. */
  readonly #here = new Set<CommQueue>();
  readonly #pollable = { poll: () => this.#look() };
  #since: number | undefined;
  #offered = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(rank: NcclContext, options: PendingAbortOptions) {
    this.#rank = rank;
    this.#options = options;
    this.#turn = rank.jointTurn;
  }

  /** Whether this rank is in a turn that has not ended. When the world fails it is over: everything is aborted then. */
  get inTurn(): boolean {
    return this.#offered && this.#turn.granted && !this.#rank.segment.failed;
  }

  /** Whether a group was counted among those that its members abort (`GroupControl.countAbort`). */
  hasCounted(queue: CommQueue): boolean {
    return this.#watched.has(queue);
  }

  /**
   * Takes note of a group that has failed and whose kernels this rank is to end.
   * @returns whether it may be aborted at once; else this rank is the last
   */
  mayAbort(queue: CommQueue): boolean {
    const { control } = queue.options;
    this.#watched.add(queue);
    this.#timer ??= setInterval(() => this.#look(), LOOK_MS).unref();
    return control.countAbort() < control.size;
  }

  /** Has a group, of which this rank is the last to abort it, linger here. */
  linger(queue: CommQueue): void {
    this.#here.add(queue);
    queue.options.control.lingering = true;
    this.#rank.poller.add(this.#pollable);
  }

  /** Says that a group is aborted here, or freed. */
  ended(queue: CommQueue): void {
    if (this.#here.delete(queue)) queue.options.control.lingering = false;
  }

  /** Lets go of a group: nothing may be asked of its control any more. */
  forget(queue: CommQueue): void {
    this.ended(queue);
    this.#watched.delete(queue);
    if (this.#watched.size === 0) this.close();
  }

  /** Ends it: everything was aborted. */
  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#here.clear();
    this.#watched.clear();
    this.#withdraws();
  }

  /** Whether a new call of `queue` waits until what lingers is aborted. */
  holdsBack(queue: CommQueue): boolean {
    if (this.#watched.size === 0 && !this.#offered) return false;
    if (!this.#step()) return false;
    if (this.inTurn) return true;
    const isLate = this.#since === undefined || performance.now() - this.#since > HOLD_BACK_MS;
    // Others may be in NCCL already with a call whose turn was granted.
    return !isLate && isHoldWindow() && !queue.options.control.granted;
  }

  /** Called before every call that is put on a stream: this rank is no longer quiet. */
  beforeIssue(): void {
    if (this.#offered && !this.#withdraws()) this.#goOnToEnd();
  }

  /** Whom this rank would have a turn with as soon as they attend, if all have offered themselves. */
  offers(): readonly number[] | undefined {
    if (this.#watched.size === 0 && !this.#offered) return undefined;
    this.#step();
    return this.#offered ? this.#turn.together : undefined;
  }

  /** Takes a turn for which this rank has offered itself, if it is granted, to its end. @returns whether it was */
  takesTurn(): boolean {
    if (!this.#offered || !this.#turn.offer(this.#needs())) return false;
    this.#goOnToEnd();
    return true;
  }

  /** As `#step`, from the event loop, where this rank may attend. */
  #look(): boolean {
    const lingers = this.#step();
    if (this.#offered && !this.inTurn && this.#turn.together !== undefined) this.#options.attend();
    return lingers;
  }

  /** The ranks without which what lingers here cannot be ended. */
  #needs(): readonly number[] {
    return [...new Set([...this.#here].flatMap(({ options }) => options.ranks))];
  }

  #goOnToEnd(): void {
    const isOver = () => {
      if (this.inTurn) this.#goOn();
      return !this.inTurn;
    };
    napUntil(isOver, TURN_MS);
  }

  /** Does what can be done now. @returns whether a group lingers, here or on another member */
  #step(): boolean {
    if (this.inTurn) this.#goOn();
    if (this.inTurn) return true;
    for (const queue of this.#here) {
      // As its last, this rank aborts it when all are to free it.
      if (!this.#options.runs(queue)) this.ended(queue);
    }
    if (this.#rank.segment.failed || ![...this.#watched].some(({ options }) => options.control.lingering)) {
      this.#since = undefined;
      this.#withdraws();
      return false;
    }
    this.#since ??= performance.now();
    this.#rank.poller.add(this.#pollable);
    if (!this.#options.isQuiet(this.#here)) {
      this.#withdraws();
      return true;
    }
    this.#offered = true;
    this.#rank.poller.hurry();
    if (this.#turn.offer(this.#needs())) this.#goOn();
    return true;
  }

  /** Goes on with the turn that this rank is in. */
  #goOn(): void {
    if (this.#turn.advance() === "act") {
      this.#options.abort([...this.#here]);
      this.#turn.done();
      this.#turn.advance();
    }
    if (this.#turn.granted) this.#rank.poller.hurry();
    else this.#offered = false;
  }

  /** Takes an offer back. @returns whether this rank is in no turn */
  #withdraws(): boolean {
    if (!this.#offered) return true;
    if (!this.#turn.withdraw()) return false;
    this.#offered = false;
    return true;
  }
}
