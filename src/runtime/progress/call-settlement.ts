/**
 * What becomes of calls: their works settle, what they hold is given back, and each is counted and noted for the flight
 * recorder. A failure that nobody looked at is kept until the group is closed, and told then.
 */
import type { ChoraleError } from "../../core/index.ts";
import { OpCounters, opCode } from "../comm/index.ts";
import type { CallRecorder } from "./call-recorder.ts";
import type { QueueEntry } from "./queue-entry.ts";
import type { QueuedWork } from "./queued-work.ts";

/** The group whose calls these are. */
interface FailingGroup {
  /** Why it has ended, once it has. */
  readonly cause: ChoraleError | undefined;
  fail(error: unknown): void;
}

/** Runs all of them even when one throws, and throws its error then. */
function runAll(finish: QueueEntry["finish"]): void {
  let failed: { readonly error: unknown } | undefined;
  for (const one of finish) {
    try {
      one(true);
    } catch (error) {
      failed ??= { error };
    }
  }
  if (failed !== undefined) throw failed.error;
}

export class CallSettlement<E extends QueueEntry> {
  readonly counters = new OpCounters();
  readonly #group: FailingGroup;
  readonly #recorder: CallRecorder;
  readonly #forget: (entry: E) => void;
  readonly #failures: QueuedWork<unknown>[] = [];
  /** The first call that failed, by its number. */
  firstLost = Number.POSITIVE_INFINITY;

  /** @param forget gives up what the engine keeps for a call that never reaches it */
  constructor(group: FailingGroup, recorder: CallRecorder, forget: (entry: E) => void) {
    this.#group = group;
    this.#recorder = recorder;
    this.#forget = forget;
  }

  /** Failures that nobody has looked at. */
  get unseen(): readonly unknown[] {
    return this.#failures.filter((work) => !work.seen).map((work) => work.error);
  }

  /** Settles a call that has ended. A failure to copy its result out fails the group. @param now see `performance.now()` */
  settle(entry: E, now: number): void {
    entry.countUse(-1);
    try {
      this.#recorder.ended(entry, true, now);
    } catch (error) {
      this.#group.fail(error);
    }
    const counter = this.counters.byCode[opCode(entry.op)];
    if (counter !== undefined) {
      counter.calls++;
      counter.bytes += entry.sizeBytes;
      counter.time((now - entry.issuedAt) * 1000);
    }
    const { finish, members } = entry;
    const refusal = entry.refusal?.();
    if (refusal !== undefined) {
      if (counter !== undefined) counter.failures++;
      for (const one of finish) one(false);
      entry.work.fail(refusal);
      this.#failures.push(entry.work);
      return;
    }
    if (finish.length === 0 && members.length === 0 && entry.value === undefined) {
      entry.work.complete(entry.result);
      return;
    }
    try {
      runAll(finish);
      for (const { work, value } of members) work.complete(value);
      entry.work.complete(entry.value === undefined ? entry.result : entry.value());
    } catch (error) {
      this.#group.fail(error);
    }
    const { cause } = this.#group;
    if (cause === undefined || entry.work.state === "done") return;
    if (counter !== undefined) counter.failures++;
    this.#failWorks(entry, cause);
  }

  /** Settles a call that will never complete. */
  settleFailed(entry: E, cause: ChoraleError): void {
    const counter = this.counters.byCode[opCode(entry.op)];
    if (counter !== undefined) counter.failures++;
    this.#recorder.ended(entry, false, performance.now());
    this.giveBack(entry);
    this.#failWorks(entry, cause);
  }

  #failWorks(entry: E, cause: ChoraleError): void {
    this.firstLost = Math.min(this.firstLost, entry.number);
    for (const { work } of entry.members) work.fail(cause);
    entry.work.fail(cause);
    this.#failures.push(entry.work);
  }

  /** Takes back a call that the queue refuses. The caller has no work of it yet, but may hold those of a batch's calls. */
  refuse(entry: E, cause: ChoraleError): void {
    this.giveBack(entry);
    for (const { work } of entry.members) work.fail(cause);
  }

  /** Releases what a call holds that did not complete. */
  giveBack(entry: E): void {
    this.#forget(entry);
    entry.countUse(-1);
    for (const finish of entry.finish) {
      try {
        finish(false);
      } catch {
        // The cause is known already, and memory that cannot be given back goes with the device.
      }
    }
  }
}
