/**
 * What the other end of a socket said last, when a write to it has failed: it has left, its words are still in the kernel, and
 * Node closes the socket without reading them. Node calls a write's callback before that.
 */
import { readSync } from "node:fs";
import type { Socket } from "node:net";
import { descriptorOf } from "../../foreign/native/index.ts";

/** What is read at once. */
const READ_BYTES = 64 * 1024;

/** Reads what is there, without waiting. @param take is given it in order; @returns whether it wants more */
export function readLastWords(socket: Socket, take: (chunk: Buffer) => boolean): void {
  const fd = descriptorOf(socket);
  if (fd === undefined) return;
  for (;;) {
    const chunk = Buffer.allocUnsafe(READ_BYTES);
    let length = 0;
    try {
      length = readSync(fd, chunk);
    } catch {
      // All has been read, or nothing can be.
    }
    if (length === 0 || !take(chunk.subarray(0, length))) return;
  }
}
