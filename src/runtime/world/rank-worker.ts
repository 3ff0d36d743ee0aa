/** The launcher's side of one worker thread: sends jobs and cuts what the rank prints into lines. */
import { Worker } from "node:worker_threads";
import { loadableUrl } from "./location.ts";
import type { FromRank, Job, ToRank } from "./messages.ts";
import { LineSplitter, type OutputStream } from "./output.ts";

export interface RankListener {
  line(stream: OutputStream, text: string): void;
  message(message: FromRank): void;
  /** An error that the rank could not report itself, such as running out of heap. */
  crash(error: unknown): void;
  exit(exitCode: number): void;
}

/** Flags of this process that say what program to run: a thread must not inherit them. */
const PROGRAM_FLAGS = /^(-e|-p|-pe|-c|--(eval|print|check|test|input-type|entry-url|watch|inspect-brk))\b/;

export class RankWorker {
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
    this.#worker.on("message", (message: FromRank) => {
      if (message.kind === "output") this.#lines[message.stream].push(message.text);
      else this.#listener?.message(message);
    });
    this.#worker.on("error", (error) => {
      this.#crash = { error };
      this.#listener?.crash(error);
    });
    this.#worker.on("exit", (exitCode) => {
      this.#exitCode = exitCode;
      this.#listener?.exit(exitCode);
    });
  }

  get exited(): boolean {
    return this.#exitCode !== undefined;
  }

  /** Sets who hears of this worker. A thread that is dead already is reported at once. */
  listen(listener: RankListener | undefined): void {
    this.#listener = listener;
    if (this.#crash !== undefined) listener?.crash(this.#crash.error);
    if (this.#exitCode !== undefined) listener?.exit(this.#exitCode);
  }

  run(job: Job): void {
    this.send({ kind: "run", job });
  }

  send(message: ToRank): void {
    this.#worker.postMessage(message);
  }

  /** Gives out the last line, when it has no line end. */
  flush(): void {
    this.#lines.stdout.flush();
    this.#lines.stderr.flush();
  }

  /** An idle worker must not keep the process alive. */
  setIdle(idle: boolean): void {
    if (idle) this.#worker.unref();
    else this.#worker.ref();
  }

  /** Ends the thread, also when it blocks in a wait. The exit is reported to the listener. */
  terminate(): void {
    void this.#worker.terminate();
  }
}
