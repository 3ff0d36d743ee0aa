/**
 * The launcher's side of a rank that is a process of its own: a Node process that runs rank-entry.ts, with pipes for
 * what it prints and a socket pair for messages (rank-frames.ts). The process leads a session of its own, so that Ctrl-C
 * reaches the launcher alone, which then ends its ranks; it ends itself when the launcher is gone (rank-link.ts).
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { boundTo } from "../../foreign/native/index.ts";
import { afterRunning } from "../comm/index.ts";
import type { CpuShares } from "./cpu-binding.ts";
import { endWithLauncher, forgetGroup } from "./group-reaper.ts";
import type { ToRank } from "./messages.ts";
import { rankCommand } from "./rank-command.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";
import { exitReason } from "./rank-host.ts";
import { BaseHost } from "./rank-host-base.ts";
import { LAUNCHER_PID_VARIABLE } from "./rank-link-contract.ts";
import { sendFrame } from "./send-frame.ts";

/** How long after a rank's death its pipes may stay open: a process that the rank started may hold them. */
const DRAIN_MS = 1_000;

export class RankProcess extends BaseHost {
  readonly kind = "process";
  readonly #child: ChildProcess;
  /** Absent when this process had no descriptor left for it: the child's error says so. */
  readonly #channel: Socket | undefined;
  readonly #reader = new FrameReader((message) => this.take(message));
  /** How the process ended, whose last words may still be in the pipes. */
  #ending: { readonly exitCode: number; readonly reason: string } | undefined;

  /**
   * @param env variables beside this process's, which the loader and native libraries see from the start
   * @param share the CPUs that it may run on; given back when it has ended
   */
  constructor(env: Readonly<Record<string, string>> = {}, share?: ReturnType<CpuShares["take"]>) {
    super();
    const [node, ...words] = rankCommand();
    const start = () =>
      spawn(node, words, {
        stdio: ["ignore", "pipe", "pipe", "pipe"],
        detached: true,
        env: { ...process.env, ...env, [LAUNCHER_PID_VARIABLE]: String(process.pid) },
      });
    const bound = share === undefined ? undefined : boundTo(share.cpus, start);
    this.#child = bound === undefined ? start() : bound.value;
    if (bound?.isBound === false) {
      process.emitWarning(`a rank could not be bound to the CPUs ${share?.cpus.join(", ")}`, "ChoraleWarning");
    }
    this.#child.once("exit", () => share?.free()).once("error", () => share?.free());
    if (this.#child.pid !== undefined) endWithLauncher(this.#child.pid);
    for (const stream of ["stdout", "stderr"] as const) {
      this.#child[stream]?.setEncoding("utf8").on("data", (text: string) => this.lines[stream].push(text));
    }
    this.#channel = (this.#child.stdio as readonly unknown[] | undefined)?.[3] as Socket | undefined;
    this.#channel?.on("data", (chunk: Buffer) => void this.#read(chunk));
    // A rank that died is heard of by its exit.
    this.#channel?.on("error", () => {});
    this.#child.on("error", (error) => {
      this.#fail(error);
      if (this.#child.pid !== undefined) return;
      this.#ending = { exitCode: 1, reason: "its process could not be started" };
      this.#drained();
    });
    this.#child.on("exit", (code, signal) => {
      const exitCode = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
      this.#ending = { exitCode, reason: exitReason("process", exitCode, signal) };
      // What a rank that failed has started has nobody to end it any more.
      if (exitCode !== 0 || this.isLeaving) this.#killGroup();
      if (this.#child.pid !== undefined) forgetGroup(this.#child.pid);
      // What it said last is still in the pipes; "close" comes when they are empty.
      afterRunning(DRAIN_MS, () => this.#drained(), true);
    });
    this.#child.on("close", () => this.#drained());
  }

  /** Of the operating system; `undefined` when the process could not be started. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  send(message: ToRank): void {
    sendFrame(this.#channel, encodeFrame(message), (chunk) => this.#read(chunk));
  }

  /** @returns whether the rank may have said more */
  #read(chunk: Buffer): boolean {
    try {
      this.#reader.push(chunk);
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  setIdle(idle: boolean): void {
    const turn = idle ? "unref" : "ref";
    this.#child[turn]();
    this.#channel?.[turn]();
    for (const stream of [this.#child.stdout, this.#child.stderr] as (Readable & Partial<Socket>)[]) stream?.[turn]?.();
  }

  protected override noteLeaving(): void {
    // Its last words may come after its end.
    if (this.#ending !== undefined) this.#killGroup();
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

  #fail(error: unknown): void {
    this.crash(error);
    this.terminate();
  }

  #drained(): void {
    if (this.exited || this.#ending === undefined) return;
    this.end(this.#ending.exitCode, this.#ending.reason);
    // A process that the rank started may hold these open for ever.
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
    this.#channel?.destroy();
  }
}
