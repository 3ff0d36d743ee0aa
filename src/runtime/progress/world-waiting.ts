/**
 * How a rank's thread waits for its device while it is in a world: it looks, and never blocks in the driver, where nobody
 * could reach it. The other groups of the rank are seen to meanwhile, and the wait ends with the world's deadline, or
 * when the world or the group that is waited for has failed.
 */
import { AbortedError, type ChoraleError, TimeoutError } from "../../core/index.ts";
import { errorOf, runningTime } from "../comm/index.ts";
import type { DeviceWaiting, WaitOptions } from "../device/internal.ts";
import type { ControlSegment } from "../memory/index.ts";
import { blockUntil, Poller } from "./poller.ts";

/** How long work may take to end once what it waits for was told to, ms: kernels that are aborted end in microseconds. */
const AFTERMATH_MS = 1000;

export class WorldWaiting implements DeviceWaiting {
  readonly poller: Poller;
  readonly #segment: ControlSegment;
  readonly #timeoutMs: number;
  readonly #pending = new Set<(error: Error) => void>();
  #closed: Error | undefined;

  constructor(segment: ControlSegment, timeoutMs: number, poller = new Poller()) {
    this.poller = poller;
    this.#segment = segment;
    this.#timeoutMs = timeoutMs;
  }

  until(done: () => boolean, what: string, options: WaitOptions = {}): void {
    const refuse = this.#refusal(what, options);
    blockUntil(this.poller, (now) => {
      if (done()) return true;
      refuse(now);
      return false;
    });
  }

  settles(done: () => boolean, what: string, options: WaitOptions = {}): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    const refuse = this.#refusal(what, options);
    return new Promise<void>((resolve, reject) => {
      this.#pending.add(reject);
      const poll = (now: number): boolean => {
        if (this.#closed !== undefined) return false;
        try {
          if (!done()) {
            refuse(now);
            return true;
          }
          resolve();
        } catch (error) {
          reject(error as Error);
        }
        this.#pending.delete(reject);
        return false;
      };
      if (poll(performance.now())) this.poller.add({ poll });
    });
  }

  /** Ends every wait that does not block, with `cause`. */
  close(cause: ChoraleError = new AbortedError("the world was closed")): void {
    this.#closed ??= cause;
    for (const reject of this.#pending) reject(cause);
    this.#pending.clear();
  }

  /** @returns what throws when the wait is over without success */
  #refusal(what: string, { failure, timeoutMs = this.#timeoutMs }: WaitOptions): (now: number) => void {
    const start = runningTime();
    let failedAt = 0;
    return (now) => {
      const cause = failure?.() ?? this.#worldFailure();
      if (cause !== undefined && failedAt === 0) failedAt = now;
      if (cause !== undefined && now - failedAt > AFTERMATH_MS) throw cause;
      if (runningTime(now) - start > timeoutMs) throw cause ?? new TimeoutError(what, timeoutMs);
    };
  }

  #worldFailure(): ChoraleError | undefined {
    if (!this.#segment.failed) return undefined;
    const { failure } = this.#segment;
    return failure === undefined ? undefined : errorOf(failure);
  }
}
