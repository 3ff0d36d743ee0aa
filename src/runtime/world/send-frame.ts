/** How the launcher writes to a rank's socket, whose other end may have left. */
import type { Socket } from "node:net";
import { readLastWords } from "../rendezvous/index.ts";

/** Sends a frame of rank-frames.ts. @param read hears what a rank that has left said last: it may have said why */
export function sendFrame(socket: Socket | undefined, frame: Buffer, read: (chunk: Buffer) => boolean): void {
  if (!socket?.writable) return;
  socket.write(frame, (error) => {
    if (error && !socket.destroyed) readLastWords(socket, read);
  });
}
