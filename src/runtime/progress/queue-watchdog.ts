/**
 * Notices what goes wrong without anybody being told: failures that the engine only tells when asked, which costs calls
 * and hence is done now and then; and calls that are not done by their deadlines.
 */
import { type RankActivity, TimeoutError } from "../../core/index.ts";
import { callSite, runningTime } from "../comm/index.ts";
import type { Agreement } from "./agreement.ts";
import type { QueueEntry } from "./queue-entry.ts";
import type { QueuedWork } from "./queued-work.ts";

/** How often the engine is asked for failures while something is pending, ms. */
const ASK_PERIOD_MS = 20;

interface WatchdogOptions {
  readonly agreement: Agreement;
  readonly group: string;
  /** Asks the engine. @param oldest the oldest pending call, for the error @throws what ends the group */
  readonly ask: (oldest: string) => void;
}

/** The one of `among`, or `other`, whose deadline comes first. */
function mostUrgent(among: readonly QueueEntry[], other: QueueEntry): QueueEntry {
  let urgent = other;
  for (const entry of among) if (entry.deadline < urgent.deadline) urgent = entry;
  return urgent;
}

export class QueueWatchdog {
  readonly #options: WatchdogOptions;
  #lastAsked = 0;
  /** Some call had a deadline of its own: the oldest call's need not be the first. */
  #ownDeadlines = false;

  constructor(options: WatchdogOptions) {
    this.#options = options;
  }

  /** Says that a call has a deadline of its own. */
  expectOwnDeadlines(): void {
    this.#ownDeadlines = true;
  }

  /**
   * Checks pending calls, with the engine or held back, for failures and missed deadlines. Oldest first in both lists.
   * @throws what ends the group: what `ask` throws, RankFailedError of a member that has closed it, TimeoutError
   */
  look(issued: readonly QueueEntry[], heldBack: readonly QueueEntry[], now: number): void {
    const oldest = issued[0] ?? heldBack[0];
    if (oldest === undefined) return;
    const { agreement, ask } = this.#options;
    let urgent = oldest;
    if (now - this.#lastAsked > ASK_PERIOD_MS) {
      this.#lastAsked = now;
      if (this.#ownDeadlines) urgent = mostUrgent(issued, mostUrgent(heldBack, oldest));
      ask(this.#nameOf(oldest));
      for (const entry of issued) agreement.refuseDeparted(entry);
      for (const entry of heldBack) agreement.refuseDeparted(entry);
    }
    if (runningTime(now) > urgent.deadline) {
      const { trace } = urgent.work;
      const site = trace === undefined ? undefined : callSite(trace);
      throw new TimeoutError(this.#nameOf(urgent), urgent.timeoutMs, agreement.activity(urgent), { callSite: site });
    }
  }

  /** Who has come to the call of `work`, if it is one of the pending calls. */
  activityOf(
    work: QueuedWork<unknown>,
    issued: readonly QueueEntry[],
    heldBack: readonly QueueEntry[],
  ): readonly RankActivity[] {
    const isIts = (entry: QueueEntry) => entry.work === work;
    const entry = issued.find(isIts) ?? heldBack.find(isIts);
    return entry === undefined ? [] : this.#options.agreement.activity(entry);
  }

  #nameOf({ op, work }: QueueEntry): string {
    return `${op} #${work.seq} of ${this.#options.group}`;
  }
}
