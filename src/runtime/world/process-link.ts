/**
 * The link of a rank that is a process: the socket pair that its launcher made (rank-frames.ts). A process must not outlive
 * its launcher: it ends when the socket ends, and, where the C library can be called, by a signal of the kernel
 * (PR_SET_PDEATHSIG), which also reaches a rank that never looks at its socket.
 */
import { writeSync } from "node:fs";
import { Socket } from "node:net";
import { endWithParent } from "../../foreign/native/index.ts";
import { nap } from "../memory/index.ts";
import type { FromRank, ToRank } from "./messages.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";
import { LAUNCHER_PID_VARIABLE, type RankLink } from "./rank-link-contract.ts";

const CHANNEL_FD = 3;
/** Between two attempts to write to a launcher that is busy. */
const NAP_MS = 0.2;

export class ProcessLink implements RankLink {
  readonly kind = "process";
  readonly relaysOutput = false;
  readonly #socket = new Socket({ fd: CHANNEL_FD, readable: true, writable: false });

  constructor() {
    endWithParent(Number(process.env[LAUNCHER_PID_VARIABLE]));
    delete process.env[LAUNCHER_PID_VARIABLE];
    this.#socket.on("close", endNow);
    this.#socket.on("error", endNow);
  }

  post(message: FromRank): void {
    const frame = encodeFrame(message);
    for (let at = 0; at < frame.length; ) {
      try {
        at += writeSync(CHANNEL_FD, frame, at);
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (code !== "EAGAIN") {
          endNow();
          return;
        }
        nap(NAP_MS);
      }
    }
  }

  onMessage(listener: (message: ToRank) => void): void {
    const reader = new FrameReader((message) => listener(message as ToRank));
    this.#socket.on("data", (chunk: Buffer) => reader.push(chunk));
  }

  ref(): void {
    this.#socket.ref();
  }

  unref(): void {
    this.#socket.unref();
  }
}

/**
 * The launcher is gone: nobody waits for this rank's words, and its handlers must not keep it. What the rank started ends
 * with it: the rank leads their process group (rank-process.ts).
 */
function endNow(): void {
  try {
    process.kill(-process.pid, "SIGKILL");
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}
