/**
 * Looks out for what goes wrong without anybody being told: what NCCL and the driver found wrong meanwhile, asked now and
 * then because it costs calls, and a call that is not done by its deadline.
 */
import { TimeoutError } from "../../../core/index.ts";
import type { CudaStream } from "../cuda/stream.ts";
import type { Agreement } from "./agreement.ts";
import type { CallRecorder } from "./call-recorder.ts";
import type { CommHandle } from "./comm-handle.ts";
import type { Entry } from "./entry.ts";

/** How often NCCL is asked for asynchronous errors while something is pending, ms. */
const ASYNC_ERROR_PERIOD_MS = 20;

export interface LookoutOptions {
  readonly stream: CudaStream;
  readonly group: string;
}

export class Lookout {
  readonly #handle: CommHandle;
  readonly #recorder: CallRecorder;
  readonly #agreement: Agreement;
  readonly #options: LookoutOptions;
  #lastAsked = 0;

  constructor(handle: CommHandle, recorder: CallRecorder, agreement: Agreement, options: LookoutOptions) {
    this.#handle = handle;
    this.#recorder = recorder;
    this.#agreement = agreement;
    this.#options = options;
  }

  /** Looks whether something is wrong while `oldest` is pending. @throws what ends the group: NativeError, TimeoutError */
  look(oldest: Entry, now: number): void {
    if (now - this.#lastAsked > ASYNC_ERROR_PERIOD_MS && this.#handle.comm !== undefined) {
      this.#lastAsked = now;
      const { failure } = this.#handle;
      if (failure !== undefined) throw failure;
      this.#recorder.look();
      this.#options.stream.isDone(this.#nameOf(oldest));
    }
    if (now > oldest.deadline) {
      throw new TimeoutError(this.#nameOf(oldest), oldest.timeoutMs, this.#agreement.activity(oldest));
    }
  }

  #nameOf({ op, work }: Entry): string {
    return `${op} #${work.seq} of ${this.#options.group}`;
  }
}
