/** Writes large text in pieces, synchronously: to a file, or to stdout. */
import { closeSync, writeSync } from "node:fs";
import { openOutput } from "./write-output.ts";

/** Bytes that are gathered before they are written. */
const BUFFER_BYTES = 1 << 20;
/** Thrown within `stream` when who read stdout has left, as in `chorale compile … | head`: no error, but the end. */
const READER_LEFT = new Error("the reader left");

/** Writes pieces of ASCII text to a file, or to stdout, without ever holding all of it. */
export function stream(output: string | undefined, produce: (sink: (piece: string) => void) => void): void {
  const fd = output === undefined ? 1 : openOutput("-o", output);
  const buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  let used = 0;
  const flush = (bytes: Uint8Array) => {
    let at = 0;
    while (at < bytes.length) {
      try {
        at += writeSync(fd, bytes, at);
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (code === "EPIPE" && output === undefined) throw READER_LEFT;
        // Else a pipe that is full; its reader is at work.
        if (code !== "EAGAIN") throw error;
      }
    }
  };
  try {
    produce((piece) => {
      if (piece.length > BUFFER_BYTES - used) {
        flush(buffer.subarray(0, used));
        used = 0;
      }
      if (piece.length > BUFFER_BYTES) flush(Buffer.from(piece, "latin1"));
      else used += buffer.write(piece, used, "latin1");
    });
    flush(buffer.subarray(0, used));
  } catch (error) {
    if (error !== READER_LEFT) throw error;
  } finally {
    if (output !== undefined) closeSync(fd);
  }
}
