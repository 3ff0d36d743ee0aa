/** The launcher's side of one worker thread: sends jobs and cuts what the rank prints into lines. */
import { Worker } from "node:worker_threads";
import { endChildWithLauncher, forgetChild } from "./group-reaper.ts";
import type { ToRank } from "./messages.ts";
import { loadableUrl } from "./package-location.ts";
import { endAll } from "./rank-children.ts";
import { PROGRAM_FLAGS } from "./rank-command.ts";
import { exitReason } from "./rank-host.ts";
import { BaseHost } from "./rank-host-base.ts";

/** Threads that were told to stop and have not: those in a system call or native code do when they are back from it. */
const stopping = new Set<RankWorker>();

export function numStoppingThreads(): number {
  return stopping.size;
}

export class RankWorker extends BaseHost {
  readonly kind = "thread";
  readonly #worker: Worker;
  readonly #children = new Set<number>();

  constructor() {
    super();
    // Threads inherit this process's flags; a list of their own may not hold flags of V8, hence none then.
    const own = process.execArgv.some((flag) => PROGRAM_FLAGS.test(flag)) ? { execArgv: [] } : {};
    // Under `node --watch` a thread would send names of the files it loads among its messages, temporary ones too.
    const { WATCH_REPORT_DEPENDENCIES: _, ...env } = process.env;
    this.#worker = new Worker(loadableUrl("runtime/world/rank-entry"), { stdout: true, stderr: true, env, ...own });
    this.#worker.stdout.on("data", (chunk: Buffer) => this.lines.stdout.push(chunk.toString()));
    this.#worker.stderr.on("data", (chunk: Buffer) => this.lines.stderr.push(chunk.toString()));
    this.#worker.on("message", (message: unknown) => {
      // What the rank's program sends must not end this process.
      try {
        this.take(message);
      } catch (error) {
        this.crash(error);
        this.terminate();
      }
    });
    this.#worker.on("error", (error) => this.crash(error));
    this.#worker.on("exit", (exitCode) => {
      stopping.delete(this);
      // What a rank that failed has started has nobody to end it any more.
      if (exitCode !== 0 || this.isLeaving) endAll(this.#children);
      for (const pid of this.#children) forgetChild(pid);
      this.end(exitCode, exitReason("thread", exitCode));
    });
  }

  protected override noteChild(pid: number, isAlive: boolean): void {
    if (isAlive) {
      this.#children.add(pid);
      endChildWithLauncher(pid);
    } else {
      this.#children.delete(pid);
      forgetChild(pid);
    }
  }

  send(message: ToRank): void {
    this.#worker.postMessage(message);
  }

  setIdle(idle: boolean): void {
    if (idle) {
      this.#worker.unref();
      // Of a world that ended well they may go on.
      for (const pid of this.#children) forgetChild(pid);
    } else this.#worker.ref();
  }

  terminate(): void {
    if (!this.exited) stopping.add(this);
    void this.#worker.terminate();
  }
}
