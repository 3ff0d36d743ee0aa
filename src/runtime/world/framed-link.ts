/** What links over sockets share: frames (rank-frames.ts) in both directions, and a hold on the event loop. */
import { writeSync } from "node:fs";
import type { Socket } from "node:net";
import { nap } from "../memory/index.ts";
import type { ToRank } from "./messages.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";

/** Between two attempts to write to a launcher that is busy, ms. */
const NAP_MS = 0.2;

export abstract class FramedLink {
  protected readonly socket: Socket;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  onMessage(listener: (message: ToRank) => void): void {
    const reader = new FrameReader((message) => listener(message as ToRank));
    this.socket.on("data", (chunk: Buffer) => reader.push(chunk));
  }

  ref(): void {
    this.socket.ref();
  }

  unref(): void {
    this.socket.unref();
  }
}

/**
 * Writes a message, which is out when this returns.
 * @returns false when the launcher is gone
 * @throws DOMException `DataCloneError`
 */
export function writeFrame(fd: number, message: unknown): boolean {
  const frame = encodeFrame(message);
  for (let at = 0; at < frame.length; ) {
    try {
      at += writeSync(fd, frame, at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") return false;
      nap(NAP_MS);
    }
  }
  return true;
}
