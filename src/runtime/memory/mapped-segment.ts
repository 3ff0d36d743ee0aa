/**
 * The control segment of ranks that are processes: a file in /dev/shm (or the temporary folder) that each of them maps.
 * A header page says whose it is; the segment follows.
 *
 * The file has a random name, is its user's alone, and is gone as soon as the last rank has mapped it, so that no crash
 * afterwards can leave it behind. Whoever made it removes it at the world's end; a file of a maker that was killed before
 * is found by its name, which holds the maker's process number and start time, and removed by the next maker.
 */
import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, statfsSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { FormatError, OutOfMemoryError } from "../../core/index.ts";
import { mapShared, type SharedMapping } from "../../foreign/native/index.ts";
import { controlBytes } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";
import { ownName, parseName, removeOrphans } from "./owned-files.ts";

/** Where the control segment of processes is; plain data that travels to them. */
export interface MappedControl {
  readonly kind: "mapped";
  readonly path: string;
  /** Of the file, its header included. */
  readonly sizeBytes: number;
}

/** A control segment, opened. */
export interface OpenControl {
  readonly segment: ControlSegment;
  /** Lets the memory go. The segment then reads as empty. Idempotent. */
  close(): void;
}

const HEADER_BYTES = 4096;
/** Bytes of zeros that one write reserves. */
const RESERVE_BYTES = 4 * 2 ** 20;
/** `chorctl` and the layout's number. */
const MAGIC = Buffer.from("chorctl2");
const NONCE_BYTES = 16;
const RANKS_AT = 24;
const GENERATION_AT = 28;
const SIZE_AT = 32;
const ATTACHED_WORD = 16;

const KIND = "chorale";
/** What follows the maker in the file's name. */
const NONCE = /^[0-9a-f]{32}$/;

/** Where segments are made, best first. */
const folders = (): readonly string[] => ["/dev/shm", tmpdir()];

function fileBytes(ranks: number): number {
  return HEADER_BYTES + controlBytes(ranks);
}

/**
 * Makes the control segment of a world, and removes those that dead makers left.
 * @throws OutOfMemoryError when no folder has room; ChoraleError of the mapping
 */
export function createMappedControl(
  world: { readonly ranks: number; readonly generation: number },
  where: readonly string[] = folders(),
): MappedControl {
  const sizeBytes = fileBytes(world.ranks);
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
      return { kind: "mapped", path: createFile(folder, sizeBytes, world), sizeBytes };
    } catch (error) {
      reasons.push(`${folder}: ${(error as Error).message}`);
    }
  }
  throw new OutOfMemoryError(
    "control segment of processes",
    sizeBytes,
    most,
    `${reasons.join("; ")}. Give the container more shared memory (docker run --shm-size), or set TMPDIR.`,
  );
}

function createFile(folder: string, sizeBytes: number, world: { ranks: number; generation: number }): string {
  const nonce = randomBytes(NONCE_BYTES);
  const path = join(folder, ownName(KIND, nonce.toString("hex")));
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const fd = openSync(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    // Written, not only made longer: a page that the folder has no room for ends the process that touches it (SIGBUS).
    const zeros = Buffer.alloc(Math.min(sizeBytes, RESERVE_BYTES));
    for (let at = 0; at < sizeBytes; ) at += writeSync(fd, zeros, 0, Math.min(zeros.length, sizeBytes - at), at);
    const header = Buffer.alloc(HEADER_BYTES);
    MAGIC.copy(header);
    nonce.copy(header, MAGIC.length);
    header.writeUInt32LE(world.ranks, RANKS_AT);
    header.writeUInt32LE(world.generation, GENERATION_AT);
    header.writeBigUInt64LE(BigInt(sizeBytes), SIZE_AT);
    writeSync(fd, header, 0, HEADER_BYTES, 0);
    return path;
  } catch (error) {
    unlinkSync(path);
    throw error;
  } finally {
    closeSync(fd);
  }
}

/**
 * Maps a segment that another process, or this one, has made.
 * @param options.attach counts this opening as a rank's: when all have come the file is removed
 * @throws FormatError when the file is not what `control` says, or not this user's alone; nothing was mapped then
 */
export function openMappedControl(
  control: MappedControl,
  world: { readonly ranks: number; readonly generation: number },
  options: { readonly attach: boolean },
): OpenControl {
  const { path, sizeBytes } = control;
  const refuse = (problem: string, cause?: unknown): never => {
    throw new FormatError(path, `is no control segment of this world: ${problem}`, { cause });
  };
  const nonce = nonceOf(path) ?? refuse("its name is not one");
  if (sizeBytes !== fileBytes(world.ranks)) refuse(`${sizeBytes} bytes cannot hold ${world.ranks} ranks`);
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    return refuse((error as Error).message, error);
  }
  let mapping: SharedMapping;
  try {
    const file = fstatSync(fd);
    if (!file.isFile()) refuse("it is not a file");
    if (process.geteuid !== undefined && file.uid !== process.geteuid()) refuse(`it belongs to user ${file.uid}`);
    if ((file.mode & 0o077) !== 0) refuse(`others may open it (mode ${(file.mode & 0o777).toString(8)})`);
    if (file.nlink > 1) refuse("it has a second name");
    if (file.size !== sizeBytes) refuse(`it has ${file.size} bytes instead of ${sizeBytes}`);
    mapping = mapShared(fd, sizeBytes);
  } finally {
    closeSync(fd);
  }
  try {
    const header = Buffer.from(mapping.buffer, 0, HEADER_BYTES);
    if (!header.subarray(0, MAGIC.length).equals(MAGIC)) refuse("it does not begin as one");
    if (header.toString("hex", MAGIC.length, MAGIC.length + NONCE_BYTES) !== nonce) refuse("its key is another");
    const [ranks, generation] = [header.readUInt32LE(RANKS_AT), header.readUInt32LE(GENERATION_AT)];
    if (ranks !== world.ranks || generation !== world.generation) {
      refuse(`it is of ${ranks} ranks, generation ${generation}; expected ${world.ranks}, ${world.generation}`);
    }
    if (header.readBigUInt64LE(SIZE_AT) !== BigInt(sizeBytes)) refuse("its size is another");
    const segment = new ControlSegment(mapping.buffer, world.ranks, HEADER_BYTES);
    if (options.attach) {
      const words = new Int32Array(mapping.buffer, 0, HEADER_BYTES / 4);
      if (Atomics.add(words, ATTACHED_WORD, 1) + 1 === world.ranks) removeMappedControl(control);
    }
    return { segment, close: () => mapping.close() };
  } catch (error) {
    mapping.close();
    if (error instanceof FormatError) throw error;
    return refuse((error as Error).message, error);
  }
}

/** Removes a segment's file. Memory that is mapped stays. Idempotent. */
export function removeMappedControl({ path }: MappedControl): void {
  if (nonceOf(path) === undefined) return;
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

/** Removes this user's segments in `folder` whose makers are gone. @returns the files' names */
export function sweep(folder: string): string[] {
  return removeOrphans(folder, KIND, (file, rest) => file.isFile() && NONCE.test(rest));
}

function nonceOf(path: string): string | undefined {
  const rest = parseName(KIND, basename(path))?.rest;
  return rest !== undefined && NONCE.test(rest) ? rest : undefined;
}
