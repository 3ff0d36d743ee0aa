/**
 * Whole files that a user named on a command line or in a call: regular files only, never larger than a bound, opened
 * without blocking. A FIFO without a writer, a device such as /dev/zero and a folder are refused at once.
 */
import { FormatError } from "../../core/index.ts";
import { fileSource } from "./byte-source.ts";

/**
 * Decodes UTF-8 without replacing invalid bytes.
 * @throws FormatError when the bytes are not UTF-8
 */
export function decodeUtf8(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new FormatError(where, "is not valid UTF-8", { cause });
  }
}

/**
 * Reads a regular file whole.
 * @throws FormatError when it cannot be read, is not a regular file, or has more than `maxBytes`
 */
export function readBytesFile(path: string, maxBytes: number): Uint8Array {
  const source = fileSource(path);
  try {
    if (source.sizeBytes > maxBytes) {
      throw new FormatError(path, `has ${source.sizeBytes} bytes; expected at most ${maxBytes}`);
    }
    const bytes = new Uint8Array(source.sizeBytes);
    source.read(bytes, 0);
    return bytes;
  } finally {
    source.close();
  }
}

/**
 * Reads a regular file of UTF-8; a byte-order mark at its start is left out.
 * @throws FormatError when it cannot be read, is not a regular file, has more than `maxBytes`, or is not UTF-8
 */
export function readTextFile(path: string, maxBytes: number): string {
  return decodeUtf8(readBytesFile(path, maxBytes), path);
}
