/**
 * Where the bytes of a foreign file come from: positional reads into the caller's memory. Nothing is allocated here,
 * so a reader's allocations are exactly those that it makes itself, after it has checked them against `sizeBytes`.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { FormatError } from "../../core/index.ts";

export interface ByteSource {
  /** A path, for error messages. */
  readonly where: string;
  readonly sizeBytes: number;
  /** Fills `into` from `position`. @throws FormatError when the source ends early */
  read(into: Uint8Array, position: number): void;
  close(): void;
}

/** Bytes of one read call: below the 2 GiB at which Linux cuts a read short. */
const MAX_READ_BYTES = 1 << 30;

const IS_FOLDER = "is a folder; expected a file";

function cannotRead(path: string, cause: unknown): FormatError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : String(cause);
  const text = code === "ENOENT" ? "does not exist" : code === "EISDIR" ? IS_FOLDER : `cannot be read (${code})`;
  return new FormatError(path, text, { cause });
}

/**
 * Opens a regular file. The caller closes it.
 * @throws FormatError when there is none, or it cannot be read
 */
export function fileSource(path: string): ByteSource {
  let fd: number;
  try {
    // Not blocking: opening a FIFO without a writer must not hang.
    fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (cause) {
    throw cannotRead(path, cause);
  }
  let open = true;
  const close = () => {
    if (open) closeSync(fd);
    open = false;
  };
  const stat = fstatSync(fd);
  if (!stat.isFile()) {
    close();
    throw new FormatError(path, stat.isDirectory() ? IS_FOLDER : "is not a regular file");
  }
  return {
    where: path,
    sizeBytes: stat.size,
    read(into, position) {
      let done = 0;
      while (done < into.length) {
        let got: number;
        try {
          got = readSync(fd, into, done, Math.min(into.length - done, MAX_READ_BYTES), position + done);
        } catch (cause) {
          throw cannotRead(path, cause);
        }
        if (got === 0) {
          throw new FormatError(path, `ends at byte ${position + done}, ${into.length - done} bytes early`);
        }
        done += got;
      }
    },
    close,
  };
}

/** Wraps bytes in memory, for tests and embedded files. */
export function memorySource(bytes: Uint8Array, where = "memory"): ByteSource {
  return {
    where,
    sizeBytes: bytes.length,
    read(into, position) {
      if (position < 0 || position + into.length > bytes.length) {
        throw new FormatError(where, `ends at byte ${bytes.length}; ${position + into.length} were asked for`);
      }
      into.set(bytes.subarray(position, position + into.length));
    },
    close() {},
  };
}
