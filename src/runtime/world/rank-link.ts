/**
 * A rank's side of the way to its launcher: the message port of a worker thread, or the socket pair of a process
 * (rank-frames.ts). A process must not outlive its launcher: it ends when the socket ends, and, where the C library can
 * be called, by a signal of the kernel (PR_SET_PDEATHSIG), which also reaches a rank that never looks at its socket.
 */
import { writeSync } from "node:fs";
import { Socket } from "node:net";
import { parentPort } from "node:worker_threads";
import { endWithParent } from "../../foreign/native/index.ts";
import type { Isolation } from "../comm/index.ts";
import { nap } from "../memory/index.ts";
import type { FromRank, ToRank } from "./messages.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";

/** Tells a process which launcher it belongs to. */
export const LAUNCHER_PID_VARIABLE = "CHORALE_LAUNCHER_PID";
const CHANNEL_FD = 3;
/** Between two attempts to write to a launcher that is busy. */
const NAP_MS = 0.2;

export interface RankLink {
  readonly kind: Isolation;
  /** Sends; the message is out when this returns. @throws DOMException `DataCloneError` */
  post(message: FromRank): void;
  onMessage(listener: (message: ToRank) => void): void;
  /** Keeps the rank alive, as it is at first. */
  ref(): void;
  unref(): void;
}

/** Opens the way to whoever started this thread or process. */
export function openLink(): RankLink {
  const port = parentPort;
  if (port === null) return new ProcessLink();
  return {
    kind: "thread",
    post: (message) => port.postMessage(message),
    onMessage: (listener) => void port.on("message", listener),
    ref: () => port.ref(),
    unref: () => port.unref(),
  };
}

class ProcessLink implements RankLink {
  readonly kind = "process";
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
