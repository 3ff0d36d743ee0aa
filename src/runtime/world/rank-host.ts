/**
 * A rank's host, from the launcher's side: a worker thread of this process (rank-worker.ts) or a process of its own
 * (rank-process.ts). Both run rank-entry.ts, speak the messages of messages.ts, and give what the rank prints by line.
 */
import type { Isolation } from "../comm/index.ts";
import type { FromRank, Job, ToRank } from "./messages.ts";
import type { OutputStream } from "./output.ts";

/** Hears what a rank does. */
export interface RankListener {
  line(stream: OutputStream, text: string): void;
  message(message: FromRank): void;
  /** An error that the rank could not report itself, such as running out of heap. */
  crash(error: unknown): void;
  /**
   * The rank is gone, and all that it said was given out before.
   * @param exitCode 128 + the signal's number after a signal
   * @param reason the end of a sentence about the rank: `its process was killed by SIGKILL`
   */
  exit(exitCode: number, reason: string): void;
}

export interface RankHost {
  readonly kind: Isolation;
  readonly exited: boolean;
  /** Number of the host it runs on; absent for the first, where the supervisor is. */
  readonly node?: number;
  /** Whether that host is gone. */
  readonly hostLost?: boolean;
  /** Sets the listener of this rank. A rank that is dead already is reported at once. */
  listen(listener: RankListener | undefined): void;
  /** @throws DOMException `DataCloneError` when the job's data cannot be copied */
  run(job: Job): void;
  /** @throws DOMException `DataCloneError`. Sending to a rank that is gone does nothing */
  send(message: ToRank): void;
  /** Gives out the last line, when it has no line end. */
  flush(): void;
  /** An idle rank must not keep this process alive. */
  setIdle(idle: boolean): void;
  /** Ends the rank, also when it blocks. The exit is reported to the listener. */
  terminate(): void;
}

/** Says how a rank ended, after `rank N: `. */
export function exitReason(what: "thread" | "process", exitCode: number, signal?: string | null): string {
  if (signal != null) return `its ${what} was killed by ${signal}`;
  return exitCode === 13
    ? `its ${what} had nothing left to do while a top-level await was still pending (exit code 13)`
    : `its ${what} exited with code ${exitCode}`;
}
