/**
 * Compiled kernels on disk: NVRTC takes a second for a kernel, and every rank of every run needs the same ones. Keyed by
 * the source, the architecture and the compiler's version. A file that cannot be read or written costs a compilation, no more. The
 * folder has a size: what was not used for longest goes first.
 */
import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  futimesSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { parseSize } from "../../../core/index.ts";
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

/** Bytes that the folder may have. */
const LIMIT_VARIABLE = "CHORALE_CUBIN_LIMIT";
/** Some thousands of kernels. */
const DEFAULT_LIMIT_BYTES = 256 << 20;
/** How old the time of a file's last use may be, ms: it is not written at every start. */
const USE_IS_NEWS_MS = 3_600_000;
/** What nobody has finished for so long, ms, nobody will. */
const ABANDONED_MS = 3_600_000;

/** Where compiled kernels are kept, what they take there, and the most that they may, bytes. */
export interface CubinCache {
  readonly folder: string;
  readonly numFiles: number;
  readonly sizeBytes: number;
  readonly limitBytes: number;
}

/** Looks at the folder. @returns undefined where none can be @throws InvalidArgumentError for a limit that is no size */
export function cubinCache(folder: string | undefined = cubinFolder()): CubinCache | undefined {
  if (folder === undefined) return undefined;
  const files = filesOf(folder);
  const sizeBytes = files.reduce((sum, file) => sum + file.sizeBytes, 0);
  return { folder, numFiles: files.length, sizeBytes, limitBytes: cubinLimitBytes() };
}

/** What the cache may take. @throws InvalidArgumentError for a limit that is no size */
export function cubinLimitBytes(): number {
  const text = process.env[LIMIT_VARIABLE];
  return text === undefined || text === "" ? DEFAULT_LIMIT_BYTES : parseSize(text, LIMIT_VARIABLE);
}

interface CacheFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** When it was used last, to the hour. */
  readonly usedMs: number;
  readonly isWhole: boolean;
}

function filesOf(folder: string): CacheFile[] {
  let names: readonly string[];
  try {
    names = readdirSync(folder);
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    const [, more] = /^[0-9a-f]{32}\.cubin(\..*)?$/.exec(name) ?? [undefined, null];
    if (more === null) return [];
    const path = join(folder, name);
    // Others remove files, too.
    const about = statSync(path, { throwIfNoEntry: false });
    if (about?.isFile() !== true) return [];
    return { path, sizeBytes: about.size, usedMs: about.mtimeMs, isWhole: more === undefined };
  });
}

/** Removes what was not used for longest, as far as the folder has more than it may. Of several processes each may remove the same. */
function makeRoom(folder: string, mostBytes: number): void {
  const files = filesOf(folder).sort((a, b) => a.usedMs - b.usedMs);
  let bytes = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  for (const { path, sizeBytes, usedMs, isWhole } of files) {
    const isAbandoned = !isWhole && Date.now() - usedMs > ABANDONED_MS;
    if (!isAbandoned && (bytes <= mostBytes || !isWhole)) continue;
    rmSync(path, { force: true });
    bytes -= sizeBytes;
  }
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
  const mostBytes = cubinLimitBytes();
  const path = pathOf(nvrtc, source, computeCapability, folder);
  // Ranks compile the same at once: whole files only, the last one stays.
  const temporary = `${path}.${process.pid}.${Math.random().toString(36).slice(2)}`;
  try {
    makeFolder(folder, 0o700);
    writeFileSync(temporary, Buffer.concat([sum(cubin), cubin]), { mode: 0o600 });
    renameSync(temporary, path);
    makeRoom(folder, mostBytes);
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

function noteUse(fd: number): void {
  try {
    futimesSync(fd, new Date(), new Date());
  } catch {
    // Root's, or on a disk that is not written to.
  }
}

/** Reads a file of this user, or of root, that nobody else can write. @throws Error */
function readOwn(path: string): Buffer {
  // Without waiting for whoever writes to it, if it is a pipe.
  const fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const { uid, mode, mtimeMs } = fstatSync(fd);
    const isOurs = process.getuid === undefined || uid === process.getuid() || uid === 0;
    if (!isOurs || (process.platform !== "win32" && (mode & 0o022) !== 0)) throw new Error("written by others");
    if (Date.now() - mtimeMs > USE_IS_NEWS_MS) noteUse(fd);
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}
