/**
 * The launcher's side of a rank that is a process of its own: a Node process that runs rank-entry.ts, with pipes for
 * what it prints and a socket pair for messages (rank-frames.ts). The process leads a session of its own, so that Ctrl-C
 * reaches the launcher alone, which then ends its ranks; it ends itself when the launcher is gone (rank-link.ts).
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { loadableUrl } from "./location.ts";
import { checkFromRank, type FromRank, type Job, type ToRank } from "./messages.ts";
import { LineSplitter } from "./output.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";
import { exitReason, type RankHost, type RankListener } from "./rank-host.ts";
import { LAUNCHER_PID_VARIABLE } from "./rank-link.ts";
import { PROGRAM_FLAGS } from "./rank-worker.ts";

/** How long after a rank's death its pipes may stay open: a process that the rank started may hold them. */
const DRAIN_MS = 1_000;
/** A process inherits this one's debugger port, and cannot have it. */
const DEBUGGER_FLAGS = /^--inspect/;

interface Exit {
  readonly exitCode: number;
  readonly reason: string;
}

export class RankProcess implements RankHost {
  readonly kind = "process";
  readonly #child: ChildProcess;
  /** Absent when this process had no descriptor left for it: the child's error says so. */
  readonly #channel: Socket | undefined;
  #listener: RankListener | undefined;
  #crash: { readonly error: unknown } | undefined;
  #ending: Exit | undefined;
  #exit: Exit | undefined;
  readonly #lines = {
    stdout: new LineSplitter((text) => this.#listener?.line("stdout", text)),
    stderr: new LineSplitter((text) => this.#listener?.line("stderr", text)),
  };

  /** @param env variables beside this process's, which the loader and native libraries see from the start */
  constructor(env: Readonly<Record<string, string>> = {}) {
    const own = process.execArgv.some((flag) => PROGRAM_FLAGS.test(flag)) ? [] : process.execArgv;
    const flags = own.filter((flag) => !DEBUGGER_FLAGS.test(flag));
    this.#child = spawn(process.execPath, [...flags, fileURLToPath(loadableUrl("runtime/world/rank-entry"))], {
      stdio: ["ignore", "pipe", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, ...env, [LAUNCHER_PID_VARIABLE]: String(process.pid) },
    });
    for (const stream of ["stdout", "stderr"] as const) {
      this.#child[stream]?.setEncoding("utf8").on("data", (text: string) => this.#lines[stream].push(text));
    }
    this.#channel = (this.#child.stdio as readonly unknown[] | undefined)?.[3] as Socket | undefined;
    const reader = new FrameReader((message) => this.#onMessage(checkFromRank(message)));
    this.#channel?.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        this.#fail(error);
      }
    });
    // A rank that died is heard of by its exit.
    this.#channel?.on("error", () => {});
    this.#child.on("error", (error) => {
      this.#fail(error);
      if (this.#child.pid === undefined) this.#end({ exitCode: 1, reason: "its process could not be started" });
    });
    this.#child.on("exit", (code, signal) => {
      const exitCode = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
      this.#ending = { exitCode, reason: exitReason("process", exitCode, signal) };
      // What a rank that failed has started has nobody to end it any more.
      if (exitCode !== 0) this.#killGroup();
      // What it said last is still in the pipes; "close" comes when they are empty.
      setTimeout(() => this.#end(), DRAIN_MS).unref();
    });
    this.#child.on("close", () => this.#end());
  }

  /** Of the operating system; `undefined` when the process could not be started. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

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

  send(message: ToRank): void {
    const frame = encodeFrame(message);
    if (this.#channel?.writable) this.#channel.write(frame);
  }

  flush(): void {
    this.#lines.stdout.flush();
    this.#lines.stderr.flush();
  }

  setIdle(idle: boolean): void {
    const turn = idle ? "unref" : "ref";
    this.#child[turn]();
    this.#channel?.[turn]();
    for (const stream of [this.#child.stdout, this.#child.stderr] as (Readable & Partial<Socket>)[]) stream?.[turn]?.();
  }

  /** Ends the programs that the rank started as well, but for those that it detached. */
  terminate(): void {
    if (this.#ending === undefined) this.#killGroup();
  }

  /** The rank leads a process group: its number is not given to others while somebody is in it. */
  #killGroup(): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, "SIGKILL");
    } catch {
      // No such group any more, or (Windows) none at all.
      this.#child.kill("SIGKILL");
    }
  }

  #onMessage(message: FromRank): void {
    if (message.kind === "output") this.#lines[message.stream].push(message.text);
    else this.#listener?.message(message);
  }

  #fail(error: unknown): void {
    if (this.#crash !== undefined) return;
    this.#crash = { error };
    this.#listener?.crash(error);
    this.terminate();
  }

  #end(exit = this.#ending): void {
    if (this.#exit !== undefined || exit === undefined) return;
    this.#exit = exit;
    this.#listener?.exit(exit.exitCode, exit.reason);
    // A process that the rank started may hold these open for ever.
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
    this.#channel?.destroy();
  }
}
