/**
 * Memory of processes that grows: a file (mapped-file.ts) whose whole possible length each of them maps over a WebAssembly
 * memory, and which is made longer as more is needed. What lies behind its end must not be touched. Who may use how much, and
 * who has come, its users count in the memory itself.
 */
import { closeSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { FormatError } from "../../core/index.ts";
import { mapPrivateOver, mapSharedOver } from "../../foreign/native/index.ts";
import {
  createMappedFile,
  extendMappedFile,
  nonceOf,
  openMappedFile,
  removeMappedFile,
  reserveInFile,
} from "./mapped-file.ts";

/** Where it is; plain data that travels to the ranks. */
export interface GrowingArena {
  readonly path: string;
  /** Of the file, when it was made and at most: whole pages. */
  readonly firstBytes: number;
  readonly limitBytes: number;
}

/** An arena, mapped. */
export interface OpenArena {
  /** Makes the file longer. @throws Error of the system, with nothing changed */
  extend(fromBytes: number, toBytes: number): void;
  /**
   * Makes room for a stretch that is this process's alone to give away, wherever the file ends: it is zeros then.
   * @throws Error of the system, with what others have as it was
   */
  reserve(fromBytes: number, toBytes: number): void;
  /** Maps it over another memory too, from a byte of that on. @returns lets it go there @throws NativeError */
  mapOver(memory: SharedArrayBuffer, atByte: number): () => void;
  /**
   * Puts memory that is this process's alone in the place of a stretch, with what is there now: what others write there afterwards
   * does not come here. Both ends are on page boundaries. @throws NativeError
   */
  keep(fromBytes: number, toBytes: number): void;
  /** Whether the folder has so much room now. */
  hasRoom(bytes: number): boolean;
  /** Closes the file; what is mapped stays. Idempotent. */
  close(): void;
  /** Also lets the memory go, which is zeros then. Idempotent. */
  release(): void;
}

/**
 * Makes an arena of zeros.
 * @param folder where, if not wherever there is room
 * @throws OutOfMemoryError when no folder has room for its beginning
 */
export function createGrowingArena(firstBytes: number, limitBytes: number, folder?: string): GrowingArena {
  const where = folder === undefined ? undefined : [folder];
  return {
    path: createMappedFile("memory that processes share", firstBytes, undefined, where),
    firstBytes,
    limitBytes,
  };
}

/** Removes its file. Memory that is mapped stays. Idempotent. */
export function removeGrowingArena({ path }: GrowingArena): void {
  removeMappedFile(path);
}

/**
 * Maps an arena over `memory`.
 * @throws FormatError when the file is not what `arena` says, or not this user's alone; NativeError, UnavailableError
 */
export function openGrowingArena(arena: GrowingArena, memory: SharedArrayBuffer): OpenArena {
  const { path, firstBytes, limitBytes } = arena;
  const refuse = (problem: string, cause?: unknown): never => {
    throw new FormatError(path, `is no shared memory of this world: ${problem}`, { cause });
  };
  if (nonceOf(path) === undefined) refuse("its name is not one");
  const fd = openMappedFile(path, { from: firstBytes, to: limitBytes }, refuse);
  let isOpen = true;
  const close = () => {
    if (isOpen) closeSync(fd);
    isOpen = false;
  };
  let unmap: (() => void) | undefined;
  try {
    unmap = mapSharedOver(memory, fd, limitBytes);
  } catch (error) {
    close();
    throw error;
  }
  return {
    extend: (fromBytes, toBytes) => extendMappedFile(fd, fromBytes, toBytes),
    reserve: (fromBytes, toBytes) => reserveInFile(fd, fromBytes, toBytes),
    keep: (fromBytes, toBytes) => mapPrivateOver(memory, fromBytes, toBytes),
    mapOver: (other, atByte) => mapSharedOver(other, fd, limitBytes, atByte),
    hasRoom: (bytes) => {
      try {
        const { bavail, bsize } = statfsSync(dirname(path));
        return bavail * bsize >= bytes;
      } catch {
        // The folder went with whoever made it.
        return false;
      }
    },
    close,
    release: () => {
      close();
      unmap?.();
      unmap = undefined;
    },
  };
}
