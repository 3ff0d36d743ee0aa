/**
 * Compiled kernels on disk: NVRTC takes a second for a kernel, and every rank of every run needs the same ones. Keyed by
 * the source, the architecture and the compiler's version. A file that cannot be read or written costs a compilation, no more.
 */
import { createHash } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Nvrtc } from "../../../foreign/cuda/index.ts";
import { makeFolder, userFolder } from "../../../foreign/formats/internal.ts";

/**
 * Where compiled kernels are kept: `$XDG_CACHE_HOME/chorale/cubin`, below `~/.cache` where that is not set. `undefined` for a
 * user without a home.
 */
function cubinFolder(): string | undefined {
  const folder = userFolder("XDG_CACHE_HOME");
  return folder === undefined ? undefined : join(folder, "chorale", "cubin");
}

type Capability = readonly [major: number, minor: number];

/** Compiles CUDA C++, or takes what an earlier compilation left. @throws NativeError with the compiler's log */
export function compileCached(
  nvrtc: Nvrtc,
  source: string,
  computeCapability: Capability,
  folder: string | undefined = cubinFolder(),
): Uint8Array {
  const kept = keptCubin(nvrtc, source, computeCapability, folder);
  if (kept !== undefined) return kept;
  return keep(nvrtc.compile(source, computeCapability), nvrtc, source, computeCapability, folder);
}

/** What an earlier compilation left, if there is any. */
export function keptCubin(
  nvrtc: Nvrtc,
  source: string,
  computeCapability: Capability,
  folder: string | undefined = cubinFolder(),
): Uint8Array | undefined {
  return folder === undefined ? undefined : read(pathOf(nvrtc, source, computeCapability, folder));
}

/** Compiles on another thread of the process, and leaves what comes of it. @throws (rejects with) NativeError */
export async function compileAside(
  nvrtc: Nvrtc,
  source: string,
  computeCapability: Capability,
  folder: string | undefined = cubinFolder(),
): Promise<Uint8Array> {
  return keep(await nvrtc.compileAside(source, computeCapability), nvrtc, source, computeCapability, folder);
}

function pathOf(nvrtc: Nvrtc, source: string, computeCapability: Capability, folder: string): string {
  const key = JSON.stringify([computeCapability, nvrtc.version, source]);
  return join(folder, `${createHash("sha256").update(key).digest("hex").slice(0, 32)}.cubin`);
}

function keep(
  cubin: Uint8Array,
  nvrtc: Nvrtc,
  source: string,
  computeCapability: Capability,
  folder: string | undefined,
): Uint8Array {
  if (folder === undefined) return cubin;
  const path = pathOf(nvrtc, source, computeCapability, folder);
  // Ranks compile the same at once: whole files only, the last one stays.
  const temporary = `${path}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  try {
    makeFolder(folder, 0o700);
    writeFileSync(temporary, Buffer.concat([sum(cubin), cubin]), { mode: 0o600 });
    renameSync(temporary, path);
  } catch {
    // A folder that cannot be written to, or a full disk.
    try {
      rmSync(temporary, { force: true });
    } catch {
      // Nothing was written.
    }
  }
  return cubin;
}

const SUM_BYTES = 32;

function sum(cubin: Uint8Array): Buffer {
  return createHash("sha256").update(cubin).digest();
}

/** A kept cubin; `undefined` where there is none, a damaged one, or one that another user could have written. */
function read(path: string): Uint8Array | undefined {
  try {
    const bytes = readOwn(path);
    const cubin = new Uint8Array(bytes.subarray(SUM_BYTES));
    return sum(cubin).equals(bytes.subarray(0, SUM_BYTES)) ? cubin : undefined;
  } catch {
    return undefined;
  }
}

/** Reads a file of this user, or of root, that nobody else can write. @throws Error */
function readOwn(path: string): Buffer {
  // Without waiting for whoever writes to it, if it is a pipe.
  const fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const { uid, mode } = fstatSync(fd);
    const isOurs = process.getuid === undefined || uid === process.getuid() || uid === 0;
    if (!isOurs || (process.platform !== "win32" && (mode & 0o022) !== 0)) throw new Error("written by others");
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}
