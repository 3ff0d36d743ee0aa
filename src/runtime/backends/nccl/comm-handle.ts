/**
 * NCCL's handle of one communicator, from opening it to giving it up: whether it is there, whether NCCL takes a call with
 * it now, and what NCCL says of it. Once it is given up nothing may be called with it.
 */
import type { ChoraleError } from "../../../core/index.ts";
import { NCCL_RESULT, type NcclLibrary } from "../../../foreign/nccl/index.ts";
import { napUntil } from "../../memory/index.ts";
import type { Opening } from "./nccl-entry.ts";

/** How long NCCL may work on a call that was given to it, ms. */
const ACCEPT_MS = 10_000;

interface CommHandleOptions {
  readonly library: NcclLibrary;
  readonly opening: Opening;
  /** Whether NCCL's host calls return only when they are done. */
  readonly blocking: boolean;
}

export class CommHandle {
  readonly #library: NcclLibrary;
  readonly #opening: Opening;
  readonly #blocking: boolean;
  #comm: bigint | undefined;
  #surrendered = false;

  constructor({ library, opening, blocking }: CommHandleOptions) {
    this.#library = library;
    this.#opening = opening;
    this.#blocking = blocking;
  }

  /** The handle, once the communicator is open and as long as it is not given up. */
  get comm(): bigint | undefined {
    return this.#surrendered ? undefined : this.#comm;
  }

  get surrendered(): boolean {
    return this.#surrendered;
  }

  /** Goes on opening the communicator. @returns the handle, once it is usable @throws NativeError when NCCL gave up on it */
  open(): bigint | undefined {
    this.#comm = this.#opening.advance();
    return this.#comm;
  }

  /** Gives the handle up, once, to be aborted or destroyed: also that of a communicator that is not open yet. */
  surrender(): bigint | undefined {
    if (this.#surrendered) return undefined;
    this.#surrendered = true;
    return this.#comm ?? this.#opening.handle;
  }

  /** Whether NCCL takes a call on this communicator now: a non-blocking one may be busy with the last. */
  get accepts(): boolean {
    return this.#blocking || this.#state() !== NCCL_RESULT.inProgress;
  }

  /** Waits until NCCL has put the last call on the stream, so that what follows it can be put behind. */
  untilAccepted(): void {
    napUntil(() => this.accepts, ACCEPT_MS, { napMs: 0.02 });
  }

  /** What NCCL has found wrong meanwhile. */
  get failure(): ChoraleError | undefined {
    const state = this.#state();
    if (state === NCCL_RESULT.success || state === NCCL_RESULT.inProgress) return undefined;
    return this.#library.error("ncclCommGetAsyncError", state, this.comm);
  }

  #state(): number {
    const { comm } = this;
    if (comm === undefined) return NCCL_RESULT.success;
    const out = new Int32Array(1);
    const status = this.#library.api.ncclCommGetAsyncError(comm, out);
    return status === NCCL_RESULT.success ? (out[0] ?? 0) : status;
  }
}
