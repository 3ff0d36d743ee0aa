/**
 * The control segment of ranks that are processes: a file (mapped-file.ts) that each of them maps. A header page says whose
 * it is; the segment follows. The file is gone as soon as the last rank has mapped it.
 */
import { FormatError } from "../../core/index.ts";
import { mapShared, type SharedMapping } from "../../foreign/native/index.ts";
import { controlBytes } from "./control-layout.ts";
import { ControlSegment } from "./control-segment.ts";
import { createMappedFile, NONCE_BYTES, nonceOf, removeMappedFile, withMappedFile } from "./mapped-file.ts";

/** Where the control segment of processes is; plain data that travels to them. */
export interface MappedControl {
  readonly kind: "mapped";
  readonly path: string;
  /** Of the file, its header included. */
  readonly sizeBytes: number;
  /** Whether its world has several hosts, each with a segment of its own. */
  readonly spansHosts?: boolean;
}

/** A control segment, opened. */
export interface OpenControl {
  readonly segment: ControlSegment;
  /** Lets the memory go. The segment then reads as empty. Idempotent. */
  close(): void;
}

const HEADER_BYTES = 4096;
/** `chorctl` and the layout's number. */
const MAGIC = Buffer.from("chorctl3");
const RANKS_AT = 24;
const GENERATION_AT = 28;
const SIZE_AT = 32;
const ATTACHED_WORD = 16;

function fileBytes(ranks: number, spansHosts: boolean): number {
  return HEADER_BYTES + controlBytes(ranks, spansHosts);
}

/** The world that a segment is for. */
export interface ControlWorld {
  readonly ranks: number;
  readonly generation: number;
  readonly spansHosts?: boolean;
}

/**
 * Makes the control segment of a world, and removes those that dead makers left.
 * @throws OutOfMemoryError when no folder has room; ChoraleError of the mapping
 */
export function createMappedControl(world: ControlWorld, where?: readonly string[]): MappedControl {
  const { spansHosts = false } = world;
  const sizeBytes = fileBytes(world.ranks, spansHosts);
  const header = (nonce: Buffer) => {
    const bytes = Buffer.alloc(HEADER_BYTES);
    MAGIC.copy(bytes);
    nonce.copy(bytes, MAGIC.length);
    bytes.writeUInt32LE(world.ranks, RANKS_AT);
    bytes.writeUInt32LE(world.generation, GENERATION_AT);
    bytes.writeBigUInt64LE(BigInt(sizeBytes), SIZE_AT);
    return bytes;
  };
  return {
    kind: "mapped",
    path: createMappedFile("control segment of processes", sizeBytes, header, where),
    sizeBytes,
    ...(spansHosts ? { spansHosts } : {}),
  };
}

/**
 * Maps a segment that another process, or this one, has made.
 * @param options.attach counts this opening as a rank's: when all of this host have come the file is removed
 * @param options.numHere how many those are, where not all ranks are on this host
 * @throws FormatError when the file is not what `control` says, or not this user's alone; nothing was mapped then
 */
export function openMappedControl(
  control: MappedControl,
  world: { readonly ranks: number; readonly generation: number },
  options: { readonly attach: boolean; readonly numHere?: number },
): OpenControl {
  const { path, sizeBytes, spansHosts = false } = control;
  const refuse = (problem: string, cause?: unknown): never => {
    throw new FormatError(path, `is no control segment of this world: ${problem}`, { cause });
  };
  const nonce = nonceOf(path) ?? refuse("its name is not one");
  if (sizeBytes !== fileBytes(world.ranks, spansHosts)) refuse(`${sizeBytes} bytes cannot hold ${world.ranks} ranks`);
  const mapping: SharedMapping = withMappedFile(path, sizeBytes, refuse, (fd) => mapShared(fd, sizeBytes));
  try {
    const header = Buffer.from(mapping.buffer, 0, HEADER_BYTES);
    if (!header.subarray(0, MAGIC.length).equals(MAGIC)) refuse("it does not begin as one");
    if (header.toString("hex", MAGIC.length, MAGIC.length + NONCE_BYTES) !== nonce) refuse("its key is another");
    const [ranks, generation] = [header.readUInt32LE(RANKS_AT), header.readUInt32LE(GENERATION_AT)];
    if (ranks !== world.ranks || generation !== world.generation) {
      refuse(`it is of ${ranks} ranks, generation ${generation}; expected ${world.ranks}, ${world.generation}`);
    }
    if (header.readBigUInt64LE(SIZE_AT) !== BigInt(sizeBytes)) refuse("its size is another");
    const segment = new ControlSegment(mapping.buffer, world.ranks, HEADER_BYTES, spansHosts);
    if (options.attach) {
      const words = new Int32Array(mapping.buffer, 0, HEADER_BYTES / 4);
      if (Atomics.add(words, ATTACHED_WORD, 1) + 1 === (options.numHere ?? world.ranks)) removeMappedControl(control);
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
  removeMappedFile(path);
}
