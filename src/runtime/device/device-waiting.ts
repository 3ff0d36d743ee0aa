/**
 * How a thread waits for its device. Alone it lets the driver block it. In a world somebody else must be able to end the
 * wait, so the world brings a way of its own (see progress/world-waiting.ts).
 */

export interface WaitOptions {
  /** Why what is waited for will not come, if so. */
  readonly failure?: () => Error | undefined;
  /** Deadline; the world's by default. */
  readonly timeoutMs?: number;
}

export interface DeviceWaiting {
  /** Blocks this thread until `done` returns true. @throws whatever else ends the wait */
  until(done: () => boolean, what: string, options?: WaitOptions): void;
  /** The same without blocking the event loop. */
  settles(done: () => boolean, what: string, options?: WaitOptions): Promise<void>;
}

/** Something that a stream waits for and that may fail: a group of ranks. */
export interface StreamSource {
  /** Why it has failed, as far as this rank has been told. */
  readonly cause: Error | undefined;
  /** The same, where it can tell, of a failure that another member has only just written: kernels of all may have ended by that. */
  knownFailure?(): Error | undefined;
  /** How many calls it has taken so far: a stream that is ordered behind it now follows those. */
  readonly numTaken: number;
  /** Which call, counted from 1, is the first that has not ended well; infinite when all have. */
  readonly firstOpen: number;
}

/** A source and how many of its calls a stream was ordered behind: what fails after those does not concern it. */
export interface Following {
  readonly source: StreamSource;
  readonly upTo: number;
}

/** Longest pause between two polls outside of a world, ms. */
const MAX_PAUSE_MS = 5;

/** Waits without blocking, outside of a world. */
export async function lookUntil(done: () => boolean): Promise<void> {
  for (let pauseMs = 0; !done(); pauseMs = Math.min(MAX_PAUSE_MS, pauseMs + 0.1)) {
    await new Promise((resolve) => (pauseMs < 1 ? setImmediate(resolve) : setTimeout(resolve, pauseMs)));
  }
}
