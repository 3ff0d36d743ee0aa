/**
 * When a rank attends (memory/attendance.ts) for a turn that others must begin with it: once all have offered, and not
 * again at once where one of them did not come, for its program may be at work for long. A rank that sees another one
 * attend comes in any case: that one is there now.
 */
import { nap } from "../../memory/index.ts";
import type { NcclContext } from "./nccl-context.ts";

/** How long a rank attends, ms: several times as long as an idle one takes to look again. */
const ATTEND_MS = 30;
/** How long it looks without a pause. */
const SPIN_MS = 0.2;
const NAP_MS = 0.05;
/** Pause after somebody did not come, ms: twice as long each time, up to the longest. */
const PAUSE_MS = 60;
const LONGEST_PAUSE_MS = 1000;
/** A turn is granted within microseconds once it is begun: a rank that takes longer is dead. */
const GRANT_MS = 1000;

export class TurnAttendance {
  readonly #rank: NcclContext;
  #pauseMs = PAUSE_MS;
  #notBefore = 0;

  constructor(rank: NcclContext) {
    this.#rank = rank;
  }

  /**
   * Waits for a turn on this thread, for a short while.
   * @param ranks who would have it together
   * @param take does what the turn is for, if it is granted; @returns whether it was
   * @returns whether this rank has had a turn
   */
  attend(ranks: Iterable<number>, take: () => boolean): boolean {
    const start = performance.now();
    const own = this.#rank.settings.worldRank;
    const attendance = this.#rank.segment.attendance(own);
    const isAwaited = [...ranks].some((rank) => rank !== own && attendance.has(rank));
    if ((!isAwaited && start < this.#notBefore) || !attendance.enter()) return false;
    for (;;) {
      if (take()) {
        this.#pauseMs = PAUSE_MS;
        this.#notBefore = 0;
        // Where the world has failed no turn took this rank.
        attendance.leave();
        return true;
      }
      const waitedMs = performance.now() - start;
      const isOver = waitedMs > ATTEND_MS || this.#rank.segment.failed;
      if (isOver && (attendance.leave() || waitedMs > ATTEND_MS + GRANT_MS)) break;
      if (waitedMs > SPIN_MS) nap(NAP_MS);
    }
    this.#notBefore = performance.now() + this.#pauseMs;
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, 2 * this.#pauseMs);
    return false;
  }
}
