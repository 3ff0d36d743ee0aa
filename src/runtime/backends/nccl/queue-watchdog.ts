/**
 * Looks out for what goes wrong without anybody being told: what NCCL and the driver found wrong meanwhile, asked now and
 * then because it costs calls, and calls that are not done by their deadlines.
 */
import { TimeoutError } from "../../../core/index.ts";
import type { CudaStream } from "../../device/index.ts";
import type { Agreement } from "./agreement.ts";
import type { CallRecorder } from "./call-recorder.ts";
import type { CommHandle } from "./comm-handle.ts";
import type { Entry } from "./queue-entry.ts";

/** How often NCCL is asked for asynchronous errors while something is pending, ms. */
const ASYNC_ERROR_PERIOD_MS = 20;

export interface LookoutOptions {
  readonly stream: CudaStream;
  readonly group: string;
}

/** The one of `among`, or `other`, whose deadline comes first. */
function mostUrgent(among: readonly Entry[], other: Entry): Entry {
  let urgent = other;
  for (const entry of among) if (entry.deadline < urgent.deadline) urgent = entry;
  return urgent;
}

export class Lookout {
  readonly #handle: CommHandle;
  readonly #recorder: CallRecorder;
  readonly #agreement: Agreement;
  readonly #options: LookoutOptions;
  #lastAsked = 0;
  /** Some call had a deadline of its own: the oldest call's need not be the first. */
  #ownDeadlines = false;

  constructor(handle: CommHandle, recorder: CallRecorder, agreement: Agreement, options: LookoutOptions) {
    this.#handle = handle;
    this.#recorder = recorder;
    this.#agreement = agreement;
    this.#options = options;
  }

  /** Says that a call has a deadline of its own. */
  expectOwnDeadlines(): void {
    this.#ownDeadlines = true;
  }

  /**
   * Looks whether something is wrong while calls are pending, on the stream or held back, the oldest first.
   * @throws what ends the group: NativeError, TimeoutError
   */
  look(issued: readonly Entry[], heldBack: readonly Entry[], now: number): void {
    const oldest = issued[0] ?? heldBack[0];
    if (oldest === undefined) return;
    let urgent = oldest;
    if (now - this.#lastAsked > ASYNC_ERROR_PERIOD_MS) {
      this.#lastAsked = now;
      if (this.#ownDeadlines) urgent = mostUrgent(issued, mostUrgent(heldBack, oldest));
      this.#askWhatFailed(oldest);
    }
    if (now > urgent.deadline) {
      throw new TimeoutError(this.#nameOf(urgent), urgent.timeoutMs, this.#agreement.activity(urgent));
    }
  }

  #askWhatFailed(oldest: Entry): void {
    if (this.#handle.comm === undefined) return;
    const { failure } = this.#handle;
    if (failure !== undefined) throw failure;
    this.#recorder.look();
    this.#options.stream.isDone(this.#nameOf(oldest));
  }

  #nameOf({ op, work }: Entry): string {
    return `${op} #${work.seq} of ${this.#options.group}`;
  }
}
