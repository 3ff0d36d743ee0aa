/**
 * How communicators of one rank end. What NCCL does decides it (src/init.cc, commReclaim):
 *
 * - Of communicators whose ranks are threads of one process, the last rank to destroy or abort frees those of all ranks,
 *   and freeing waits for whatever runs on their devices. A thread that frees while kernels of other groups wait for a
 *   call of this very thread never returns. So freeing waits for its turn, like every call that blocks, and a rank takes
 *   part only while nothing of its own is on its device ("quiet"): no kernel of a group that failed either, which is not
 *   aborted yet and would not end. Nor does anybody wait for a rank whose program is at work: all attend (turn-attendance.ts).
 * - A group that failed while the world goes on is aborted at once only where its kernels still run, and by the last of
 *   its threads only together with all others (pending-abort.ts); the rest waits until the group is freed. When the world
 *   fails, or this rank gives it up, everything is aborted together: every kernel has then been told to end before
 *   anything is freed.
 * - Aborting one communicator at a time can block behind another one's kernels (NVIDIA/nccl#1013): one NCCL group.
 * - A communicator is not freed while a graph that was captured with it exists: graphs are closed first.
 */
import type { ChoraleError } from "../../../core/index.ts";
import { CUDA_STATUS } from "../../../foreign/cuda/index.ts";
import { NCCL_RESULT } from "../../../foreign/nccl/index.ts";
import { CudaGraph, type CudaStream } from "../../device/index.ts";
import { napUntil, RECLAIM } from "../../memory/index.ts";
import type { CommunicatorParts, NcclContext } from "./nccl-context.ts";
import { PendingAborts } from "./pending-abort.ts";
import type { CommQueue } from "./queue.ts";
import { HOLD_BACK_MS, isHoldWindow } from "./quiet-window.ts";
import { TurnAttendance } from "./turn-attendance.ts";

/** NCCL before 2.22 cannot abort several communicators in a group. */
const GROUPED_ABORT_SINCE = 22200;
/** How long members wait for each other to free a group; NCCL takes some tens of milliseconds. */
const RECLAIM_MS = 20_000;
/** How long a world that closes waits for its members to free their groups together; then each aborts its own. */
const SETTLE_MS = 60_000;
/** How long it polls without a pause, ms; then it polls every millisecond, then every few: members may come much later. */
const SETTLE_EAGER_MS = 3;
const SETTLE_PAUSE_MS = 10;
/** How long what stands behind kernels that were told to end is waited for, ms: copies, which take no longer by themselves. */
const DRAIN_MS = 500;
/**
 * A closed group is freed when all its members have nothing on their devices. A program that never pauses comes to no such
 * moment: when the group has waited for this long, new calls are held back for one, and again every so often, ms.
 */
const FREE_AFTER_MS = 100;
const FREE_AGAIN_MS = 5_000;

export class CommunicatorTeardown {
  readonly #rank: NcclContext;
  /** Communicators in use, and those whose program has closed them. */
  readonly #open = new Set<CommunicatorParts>();
  readonly #retired = new Set<CommunicatorParts>();
  /** Retired ones that this rank has offered to free. */
  readonly #offered = new Set<CommunicatorParts>();
  /** Retired ones that all members have closed, and since when they wait to be freed; the oldest first. */
  readonly #waiting = new Map<CommunicatorParts, number>();
  /** Failed ones whose kernels still run, waiting for this rank's device to be quiet otherwise, and since when. */
  readonly #toAbort = new Map<CommQueue, number>();
  /** Among threads: failed ones that their last member has yet to abort. */
  readonly #pendingAborts: PendingAborts;
  readonly #attendance: TurnAttendance;
  /** Everything is being aborted: failures of single groups add nothing. */
  #everything = false;

  constructor(rank: NcclContext) {
    this.#rank = rank;
    this.#pendingAborts = new PendingAborts(rank, {
      isQuiet: (except) => this.#isQuiet(except),
      runs: (queue) => this.#runs(queue),
      abort: (queues) => this.#abort(queues),
      attend: () => this.#attend(),
    });
    this.#attendance = new TurnAttendance(rank);
  }

  get communicators(): readonly CommunicatorParts[] {
    return [...this.#open];
  }

  /** How many communicators their program has closed that are not freed yet. */
  get numRetired(): number {
    return this.#retired.size;
  }

  add(communicator: CommunicatorParts): void {
    this.#open.add(communicator);
  }

  /** Takes over a communicator that its program has closed: it is freed when all members have closed it. */
  retire(communicator: CommunicatorParts): void {
    this.#open.delete(communicator);
    this.#retired.add(communicator);
    this.#rank.poller.add({ poll: () => !this.#tryReclaim(communicator) });
  }

  /** Waits for retired communicators, and aborts those whose peers never closed. */
  async settle(): Promise<void> {
    const start = performance.now();
    for (;;) {
      for (const communicator of [...this.#retired]) this.#tryReclaim(communicator);
      const waitedMs = performance.now() - start;
      const isDone = this.#retired.size === 0 && !this.#pendingAborts.inTurn;
      if (isDone || waitedMs > Math.min(SETTLE_MS, this.#rank.settings.timeoutMs)) break;
      const pauseMs = waitedMs < SETTLE_EAGER_MS ? 0 : Math.min(SETTLE_PAUSE_MS, 1 + waitedMs / 100);
      await new Promise((resolve) => (pauseMs === 0 ? setImmediate(resolve) : setTimeout(resolve, pauseMs)));
    }
    const left = [...this.#retired].map(({ queue }) => queue);
    this.#abort(left);
    this.#drain(left);
    for (const communicator of [...this.#retired]) this.#forget(communicator);
  }

  /** Called before every call that is put on a stream: this rank is no longer quiet. */
  beforeIssue(): void {
    this.#pendingAborts.beforeIssue();
    if (this.#offered.size > 0) this.#withdraw();
  }

  /** Whether calls of other groups than this one run on this rank's device. */
  runsBeside(queue: CommQueue): boolean {
    for (const other of [...this.#open, ...this.#retired])
      if (other.queue !== queue && this.#runs(other.queue)) return true;
    return false;
  }

  /** Whether new calls of a group wait until a failed one is aborted, or a closed one is freed. */
  holdsBack(queue: CommQueue): boolean {
    if (this.#toAbort.size > 0) this.#abortWhenQuiet();
    return this.#toAbort.size > 0 || this.#pendingAborts.holdsBack(queue) || this.#makesQuiet(queue);
  }

  /** Whether a new call waits for a closed group to be freed. */
  #makesQuiet({ options }: CommQueue): boolean {
    if (this.#waiting.size === 0) return false;
    const [since = 0] = this.#waiting.values();
    const waitedMs = performance.now() - since;
    // Later by the clock that ranks share: one that heard of the last close a second after another would never hold back with it.
    const isAgain = Date.now() % FREE_AGAIN_MS < HOLD_BACK_MS;
    const isTime = waitedMs > FREE_AFTER_MS && (waitedMs < FREE_AFTER_MS + HOLD_BACK_MS || isAgain);
    // Others may be in NCCL already with a call whose turn was granted.
    return isTime && isHoldWindow() && !options.control.granted;
  }

  /**
   * Ends NCCL's side of a group that has just failed on this rank.
   * @param entering whether members may be in NCCL with a call that this rank has not made: what they wait for there must
   *   end, and not only what runs on the device
   */
  failed(queue: CommQueue, entering: boolean): void {
    if (this.#everything) return;
    if (this.#rank.segment.failed) {
      this.#abortEverything();
      return;
    }
    const runs = this.#runs(queue);
    if (queue.handle.surrendered || !(runs || entering)) return;
    if (!entering && this.#revoke(queue)) return;
    if (this.#rank.settings.interprocess) {
      this.#toAbort.set(queue, performance.now());
      this.#abortWhenQuiet();
      const poll = () => {
        this.#abortWhenQuiet();
        return this.#toAbort.size > 0;
      };
      if (poll()) this.#rank.poller.add({ poll });
      return;
    }
    if (this.#pendingAborts.mayAbort(queue)) this.#abort([queue]);
    else if (runs && !this.#revoke(queue)) this.#pendingAborts.linger(queue);
  }

  /** Whether kernels of a group run here, or are about to, also of calls that failed: those do not end by themselves. */
  #runs({ handle, options }: CommQueue): boolean {
    if (handle.comm === undefined) return false;
    const status = this.#statusOf(options.stream);
    // Errors are left to `isDone` of the stream.
    return status !== undefined && (!handle.accepts || status !== CUDA_STATUS.success);
  }

  /** What the driver says of a stream: nothing of what is closed, or lost with its context. */
  #statusOf(stream: CudaStream): number | undefined {
    const { device } = this.#rank.at;
    if (stream.closed || device.closed || device.poison !== undefined) return undefined;
    return device.driver.api.cuStreamQuery(stream.handle);
  }

  /** Ends the kernels of a communicator without freeing anything, where NCCL can. @returns whether it could */
  #revoke(queue: CommQueue): boolean {
    const revoke = this.#rank.library.optional.ncclCommRevoke;
    if (revoke === undefined || queue.handle.comm === undefined || this.#rank.at.device.poison !== undefined)
      return false;
    this.#rank.at.device.activate();
    const status = revoke(queue.handle.comm, 0);
    return status === NCCL_RESULT.success || status === NCCL_RESULT.inProgress;
  }

  /** Ends everything at once, without waiting for peers. Nothing of this rank's NCCL is left afterwards. */
  abandon(cause: ChoraleError): void {
    this.#everything = true;
    const all = [...this.#open, ...this.#retired];
    for (const { queue } of all) queue.abandon(cause);
    this.#abort(
      all.map(({ queue }) => queue),
      true,
    );
    this.#leave(all.map(({ queue }) => queue));
    this.#open.clear();
    this.#retired.clear();
    this.#offered.clear();
    this.#waiting.clear();
    this.#toAbort.clear();
    this.#pendingAborts.close();
  }

  /** Ends everything, if that has not been done, because the world has failed. */
  worldFailed(): void {
    if (!this.#everything) this.#abortEverything();
  }

  /** The world has failed: every group ends, after those of its calls complete that every member has made. */
  #abortEverything(): void {
    this.#everything = true;
    const all = [...this.#open, ...this.#retired].map(({ queue }) => queue);
    for (const queue of all) queue.adopt();
    this.#abort(all, true);
    this.#leave(all);
    this.#toAbort.clear();
    this.#pendingAborts.close();
    this.#everything = false;
  }

  /** Waits, for a while, for what is on the streams of groups whose kernels were told to end: copies among that do so by themselves. */
  #drain(queues: readonly CommQueue[]): void {
    const mayRun = ({ options }: CommQueue) => this.#statusOf(options.stream) === CUDA_STATUS.notReady;
    napUntil(() => !queues.some(mayRun), DRAIN_MS);
  }

  /** Tells peers in this process that nothing of this rank reaches their memory any more. */
  #leave(queues: readonly CommQueue[]): void {
    this.#drain(queues);
    this.#rank.segment.presence.end(this.#rank.settings.worldRank);
  }

  /** Tells NCCL to give communicators up, all in one group. */
  #abort(queues: readonly CommQueue[], all = false): void {
    const { library, at } = this.#rank;
    const handles = queues.flatMap((queue) => {
      this.#toAbort.delete(queue);
      const handle = queue.handle.surrender();
      if (handle === undefined) return [];
      // Members of a group that failed alone must know how many are left to do this.
      if (!this.#pendingAborts.hasCounted(queue)) queue.options.control.countAbort();
      return handle;
    });
    if (at.device.poison !== undefined || at.device.closed) return;
    const { api, versionCode } = library;
    at.device.activate();
    const grouped = handles.length > 0 && versionCode >= GROUPED_ABORT_SINCE;
    for (const handle of handles) {
      at.device.ledger?.drop("communicator", handle);
      this.#rank.settings.registrations?.forget(handle);
    }
    if (grouped) {
      api.ncclGroupStart();
      // Each call tells the communicator's kernels to end; what it holds is freed at the group's end.
      for (const handle of handles) api.ncclCommAbort(handle);
    }
    if (all) at.device.closeAll((resource) => resource instanceof CudaGraph);
    for (const { queue, graphs } of [...this.#open, ...this.#retired]) if (queues.includes(queue)) graphs.close();
    if (grouped) api.ncclGroupEnd();
    else for (const handle of handles) api.ncclCommAbort(handle);
    for (const queue of queues) this.#pendingAborts.ended(queue);
  }

  /** Aborts the communicators that must be aborted, as soon as nothing else runs here or when the wait is over. */
  #abortWhenQuiet(): void {
    if (this.#toAbort.size === 0) return;
    const since = Math.min(...this.#toAbort.values());
    const busy = [...this.#open].some(({ queue }) => queue.inFlight && !this.#toAbort.has(queue));
    if (busy && performance.now() - since < HOLD_BACK_MS) return;
    this.#abort([...this.#toAbort.keys()]);
  }

  /** Whether nothing of this rank's communicators is on its device, leaving `except` aside. */
  #isQuiet(except?: ReadonlySet<CommQueue>): boolean {
    // Nothing may be freed while calls go into a graph.
    if (this.#rank.capturing !== undefined) return false;
    for (const { queue } of this.#open) if (queue.inFlight) return false;
    for (const { queue } of [...this.#open, ...this.#retired]) {
      if (queue.cause !== undefined && except?.has(queue) !== true && this.#runs(queue)) return false;
    }
    return true;
  }

  /** Frees a retired communicator if it is time to. @returns whether it is gone */
  #tryReclaim(communicator: CommunicatorParts): boolean {
    if (!this.#retired.has(communicator)) return true;
    const { queue } = communicator;
    const { control, ranks } = queue.options;
    if (this.#rank.segment.failed) {
      if (!this.#everything) this.#abortEverything();
      this.#forget(communicator);
      return true;
    }
    if (!control.allClosing) return false;
    if (!this.#waiting.has(communicator)) this.#waiting.set(communicator, performance.now());
    if (!this.#isQuiet()) {
      if (this.#offered.has(communicator) && !control.withdraw()) return this.#reclaim(communicator);
      this.#offered.delete(communicator);
      return false;
    }
    if (control.size > 1 && !control.turn(RECLAIM, ranks)) {
      this.#offered.add(communicator);
      this.#rank.poller.hurry();
      if (control.mayReclaim) this.#attend();
      return !this.#retired.has(communicator);
    }
    return this.#reclaim(communicator);
  }

  /** Waits a moment for the turns that this rank has offered itself for, once others have too, and takes one. */
  #attend(): void {
    if (!this.#isQuiet()) this.#withdraw();
    const together = this.#pendingAborts.offers() ?? [];
    const ready = [...this.#offered].filter(({ queue }) => queue.options.control.mayReclaim);
    const ranks = new Set([...together, ...ready.flatMap((communicator) => communicator.ranks)]);
    if (ranks.size === 0) return;
    this.#attendance.attend(ranks, () => {
      // Any of them may be granted, also one that was not ready before.
      if (this.#pendingAborts.takesTurn()) return true;
      const granted = [...this.#offered].find(({ ranks, queue }) => queue.options.control.turn(RECLAIM, ranks));
      return granted !== undefined && this.#reclaim(granted);
    });
  }

  /** Takes back all offers to free a group. */
  #withdraw(): void {
    for (const communicator of [...this.#offered]) {
      if (communicator.queue.options.control.withdraw()) this.#offered.delete(communicator);
      else this.#reclaim(communicator);
    }
  }

  /** Frees a communicator together with all its members, none of which goes on before all are done. */
  #reclaim(communicator: CommunicatorParts): true {
    const { queue, graphs, plans } = communicator;
    const { control, ranks } = queue.options;
    this.#offered.delete(communicator);
    const { at, library, segment } = this.#rank;
    const failed = queue.cause !== undefined || control.failed;
    // What was aborted may still write to what its plans hold.
    if (failed) this.#drain([queue]);
    graphs.close();
    plans.close();
    const handle = queue.handle.surrender();
    if (handle !== undefined && at.device.poison === undefined) {
      at.device.activate();
      at.device.ledger?.drop("communicator", handle);
      if (failed) this.#rank.settings.registrations?.forget(handle);
      else this.#rank.settings.registrations?.closing(handle);
      if (failed || !this.#finalize(handle)) library.api.ncclCommAbort(handle);
      else library.api.ncclCommDestroy(handle);
    }
    control.countReclaim();
    napUntil(() => control.allReclaimed || segment.failed, RECLAIM_MS, { spinMs: 0.2 });
    if (control.allReclaimed) {
      graphs.release();
      queue.releaseExposed();
    }
    control.endTurn(ranks);
    this.#forget(communicator);
    return true;
  }

  /** Brings a communicator to the point where it can be destroyed. A blocking one is there. @returns whether it is */
  #finalize(handle: bigint): boolean {
    if (this.#rank.settings.blocking) return true;
    if (this.#settled(handle) !== NCCL_RESULT.success) return false;
    const status = this.#rank.library.api.ncclCommFinalize(handle);
    return (status === NCCL_RESULT.inProgress ? this.#settled(handle) : status) === NCCL_RESULT.success;
  }

  /** Waits until a non-blocking communicator is done with its last call. @returns NCCL's status */
  #settled(handle: bigint): number {
    const { api } = this.#rank.library;
    const state = new Int32Array(1);
    let status: number = NCCL_RESULT.inProgress;
    const isSettled = () => {
      const asked = api.ncclCommGetAsyncError(handle, state);
      status = asked === NCCL_RESULT.success ? (state[0] ?? 0) : asked;
      return status !== NCCL_RESULT.inProgress;
    };
    napUntil(isSettled, RECLAIM_MS);
    return status;
  }

  #forget(communicator: CommunicatorParts): void {
    if (!this.#retired.delete(communicator)) return;
    this.#offered.delete(communicator);
    this.#waiting.delete(communicator);
    const { queue } = communicator;
    const { control, ranks } = queue.options;
    this.#pendingAborts.forget(queue);
    control.endTurn(ranks);
    control.leave();
    queue.options.stream.close();
  }
}
