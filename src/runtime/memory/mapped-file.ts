/**
 * Files in /dev/shm (or the temporary folder) that the processes of a host map. Each has a random name, is its user's alone,
 * and goes as soon as the last rank has mapped it, so that no crash afterwards can leave it behind. Whoever made it removes it
 * at the world's end; a file of a maker that was killed before is found by its name, which holds the maker's process number
 * and start time, and removed by the next maker.
 */
import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, ftruncateSync, openSync, statfsSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { OutOfMemoryError } from "../../core/index.ts";
import { ownName, parseName, removeOrphans } from "./owned-files.ts";

export const NONCE_BYTES = 16;
/** Bytes of zeros that one write reserves. */
const RESERVE_BYTES = 4 * 2 ** 20;
const KIND = "chorale";
/** What follows the maker in the file's name. */
const NONCE = /^[0-9a-f]{32}$/;

/** Where they are made, best first. */
const folders = (): readonly string[] => ["/dev/shm", tmpdir()];

/**
 * Makes a file of zeros, and removes those that dead makers left.
 * @param header what stands at its beginning, given the random part of its name
 * @returns its path
 * @throws OutOfMemoryError when no folder has room
 */
export function createMappedFile(
  what: string,
  sizeBytes: number,
  header?: (nonce: Buffer) => Buffer,
  where: readonly string[] = folders(),
): string {
  const reasons: string[] = [];
  let most = 0;
  for (const folder of where) sweep(folder);
  for (const folder of where) {
    try {
      const { bavail, bsize } = statfsSync(folder);
      most = Math.max(most, bavail * bsize);
      // Refused before anything is written; space that others take meanwhile is noticed when it is reserved.
      if (bavail * bsize < sizeBytes) {
        reasons.push(`${folder} has ${bavail * bsize} bytes free`);
        continue;
      }
      return createFile(folder, sizeBytes, header);
    } catch (error) {
      reasons.push(`${folder}: ${(error as Error).message}`);
    }
  }
  throw new OutOfMemoryError(
    what,
    sizeBytes,
    most,
    `${reasons.join("; ")}. Give the container more shared memory (docker run --shm-size), or set TMPDIR.`,
  );
}

function createFile(folder: string, sizeBytes: number, header: ((nonce: Buffer) => Buffer) | undefined): string {
  const nonce = randomBytes(NONCE_BYTES);
  const path = join(folder, ownName(KIND, nonce.toString("hex")));
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const fd = openSync(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    reserveInFile(fd, 0, sizeBytes);
    const head = header?.(nonce);
    if (head !== undefined) writeSync(fd, head, 0, head.length, 0);
    return path;
  } catch (error) {
    unlinkSync(path);
    throw error;
  } finally {
    closeSync(fd);
  }
}

/**
 * Opens a file that another process, or this one, has made, for as long as `use` runs.
 * @param refuse throws when it is not what it should be, or not this user's alone
 */
export function withMappedFile<T>(
  path: string,
  sizeBytes: number,
  refuse: (problem: string, cause?: unknown) => never,
  use: (fd: number) => T,
): T {
  const fd = openMappedFile(path, { from: sizeBytes, to: sizeBytes }, refuse);
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}

/** As `withMappedFile`, for a file that its users may have made longer. @returns its descriptor */
export function openMappedFile(
  path: string,
  bytes: { readonly from: number; readonly to: number },
  refuse: (problem: string, cause?: unknown) => never,
): number {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    return refuse((error as Error).message, error);
  }
  try {
    const file = fstatSync(fd);
    if (!file.isFile()) refuse("it is not a file");
    if (process.geteuid !== undefined && file.uid !== process.geteuid()) refuse(`it belongs to user ${file.uid}`);
    if ((file.mode & 0o077) !== 0) refuse(`others may open it (mode ${(file.mode & 0o777).toString(8)})`);
    if (file.nlink > 1) refuse("it has a second name");
    const { from, to } = bytes;
    if (file.size < from || file.size > to)
      refuse(`it has ${file.size} bytes instead of ${from}${from < to ? ` to ${to}` : ""}`);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/**
 * Makes a file longer, or reserves what it has no room for yet, by zeros from one byte to another.
 * @throws Error of the system, with the file as long as before
 */
export function extendMappedFile(fd: number, fromBytes: number, toBytes: number): void {
  try {
    reserveInFile(fd, fromBytes, toBytes);
  } catch (error) {
    ftruncateSync(fd, fromBytes);
    throw error;
  }
}

/**
 * Reserves room for a stretch of a file, which is zeros then, whatever lies behind it. Written, not only made longer: a page that
 * the folder has no room for ends the process that touches it (SIGBUS).
 * @throws Error of the system; what was reserved before is as it was
 */
export function reserveInFile(fd: number, fromBytes: number, toBytes: number): void {
  const zeros = Buffer.alloc(Math.min(toBytes - fromBytes, RESERVE_BYTES));
  for (let at = fromBytes; at < toBytes; ) at += writeSync(fd, zeros, 0, Math.min(zeros.length, toBytes - at), at);
}

/** Removes a file. Memory that is mapped stays. Idempotent. */
export function removeMappedFile(path: string): void {
  if (nonceOf(path) === undefined) return;
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

/** Removes this user's files in `folder` whose makers are gone. @returns their names */
export function sweep(folder: string): string[] {
  return removeOrphans(folder, KIND, (file, rest) => file.isFile() && NONCE.test(rest));
}

/** The random part of a file's name. */
export function nonceOf(path: string): string | undefined {
  const rest = parseName(KIND, basename(path))?.rest;
  return rest !== undefined && NONCE.test(rest) ? rest : undefined;
}
