/** What hosts of ranks have in common: who listens, what has happened before anybody did, and what is printed by line. */
import type { Isolation } from "../comm/index.ts";
import { checkFromRank, type Job, type ToRank } from "./messages.ts";
import { LineSplitter } from "./output.ts";
import type { RankHost, RankListener } from "./rank-host.ts";

interface Exit {
  readonly exitCode: number;
  readonly reason: string;
}

export abstract class BaseHost implements RankHost {
  abstract readonly kind: Isolation;
  #listener: RankListener | undefined;
  #crash: { readonly error: unknown } | undefined;
  #exit: Exit | undefined;
  #isLeaving = false;
  protected readonly lines = {
    stdout: new LineSplitter((text) => this.#listener?.line("stdout", text)),
    stderr: new LineSplitter((text) => this.#listener?.line("stderr", text)),
  };

  abstract send(message: ToRank): void;
  abstract setIdle(idle: boolean): void;
  abstract terminate(): void;

  get exited(): boolean {
    return this.#exit !== undefined;
  }

  listen(listener: RankListener | undefined): void {
    this.#listener = listener;
    if (this.#crash !== undefined) listener?.crash(this.#crash.error);
    if (this.#exit !== undefined) listener?.exit(this.#exit.exitCode, this.#exit.reason);
  }

  run(job: Job): void {
    this.send({ kind: "run", job });
  }

  flush(): void {
    this.lines.stdout.flush();
    this.lines.stderr.flush();
  }

  /** Gives out what came from the rank. @throws FormatError when it is no message: the rank's program may write too */
  protected take(value: unknown): void {
    const message = checkFromRank(value);
    if (message.kind === "output") this.lines[message.stream].push(message.text);
    else if (message.kind === "child") this.noteChild(message.pid, message.isAlive);
    else {
      if (message.kind === "exiting" && message.worldOpen) {
        this.#isLeaving = true;
        this.noteLeaving();
      }
      this.#listener?.message(message);
    }
  }

  /** Whether the rank left a world that goes on, by process.exit(0): it counts as dead, whatever its exit code. */
  protected get isLeaving(): boolean {
    return this.#isLeaving;
  }

  /** Hears that it does. */
  protected noteLeaving(): void {}

  /** Hears of a process that the rank has started, or that has ended. */
  protected noteChild(_pid: number, _isAlive: boolean): void {}

  /** Reports, once, an error that the rank cannot report itself. */
  protected crash(error: unknown): void {
    if (this.#crash !== undefined) return;
    this.#crash = { error };
    this.#listener?.crash(error);
  }

  /** Reports, once, that the rank is gone. */
  protected end(exitCode: number, reason: string): void {
    if (this.#exit !== undefined) return;
    this.#exit = { exitCode, reason };
    this.#listener?.exit(exitCode, reason);
    // The rest of a listener leads to the rank's generation, and so to the shared memory of that.
    if (this.#listener !== undefined) this.#listener = onlyLines(this.#listener);
  }
}

/** What a listener hears of a rank that is gone: lines may still come by another way. */
function onlyLines({ line }: RankListener): RankListener {
  return { line, message() {}, crash() {}, exit() {} };
}
