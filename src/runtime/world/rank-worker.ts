/** The launcher's side of one worker thread: sends jobs and cuts what the rank prints into lines. */
import { Worker } from "node:worker_threads";
import { loadableUrl } from "./location.ts";
import { checkFromRank, type FromRank, type Job, type ToRank } from "./messages.ts";
import { LineSplitter } from "./output.ts";
import { exitReason, type RankHost, type RankListener } from "./rank-host.ts";

/** Flags of this process that say what program to run: a rank must not inherit them. */
export const PROGRAM_FLAGS = /^(-e|-p|-pe|-c|--(eval|print|check|test|input-type|entry-url|watch|inspect-brk))\b/;

export class RankWorker implements RankHost {
  readonly kind = "thread";
  readonly #worker: Worker;
  #listener: RankListener | undefined;
  #crash: { readonly error: unknown } | undefined;
  #exitCode: number | undefined;
  readonly #lines = {
    stdout: new LineSplitter((text) => this.#listener?.line("stdout", text)),
    stderr: new LineSplitter((text) => this.#listener?.line("stderr", text)),
  };

  constructor() {
    // Threads inherit this process's flags; a list of their own may not hold flags of V8, hence none then.
    const own = process.execArgv.some((flag) => PROGRAM_FLAGS.test(flag)) ? { execArgv: [] } : {};
    this.#worker = new Worker(loadableUrl("runtime/world/rank-entry"), { stdout: true, stderr: true, ...own });
    this.#worker.stdout.on("data", (chunk: Buffer) => this.#lines.stdout.push(chunk.toString()));
    this.#worker.stderr.on("data", (chunk: Buffer) => this.#lines.stderr.push(chunk.toString()));
    this.#worker.on("message", (message: unknown) => {
      // The rank's program may use the port as well; what it sends must not end this process.
      try {
        this.#onMessage(checkFromRank(message));
      } catch (error) {
        this.#fail(error);
        this.terminate();
      }
    });
    this.#worker.on("error", (error) => this.#fail(error));
    this.#worker.on("exit", (exitCode) => {
      this.#exitCode = exitCode;
      this.#listener?.exit(exitCode, exitReason("thread", exitCode));
    });
  }

  get exited(): boolean {
    return this.#exitCode !== undefined;
  }

  listen(listener: RankListener | undefined): void {
    this.#listener = listener;
    if (this.#crash !== undefined) listener?.crash(this.#crash.error);
    if (this.#exitCode !== undefined) listener?.exit(this.#exitCode, exitReason("thread", this.#exitCode));
  }

  run(job: Job): void {
    this.send({ kind: "run", job });
  }

  send(message: ToRank): void {
    this.#worker.postMessage(message);
  }

  flush(): void {
    this.#lines.stdout.flush();
    this.#lines.stderr.flush();
  }

  setIdle(idle: boolean): void {
    if (idle) this.#worker.unref();
    else this.#worker.ref();
  }

  terminate(): void {
    void this.#worker.terminate();
  }

  #onMessage(message: FromRank): void {
    if (message.kind === "output") this.#lines[message.stream].push(message.text);
    else this.#listener?.message(message);
  }

  #fail(error: unknown): void {
    this.#crash = { error };
    this.#listener?.crash(error);
  }
}
