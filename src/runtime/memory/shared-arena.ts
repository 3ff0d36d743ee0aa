/**
 * Memory for data that the processes of a host share, below a WebAssembly memory of each: a file (mapped-file.ts) is mapped
 * over the first part of it, so that the executor's code of all ranks works on the same bytes at the same addresses.
 * `Atomics.load` and `store` work there among processes; `Atomics.wait` and `notify` do not.
 */
import { FormatError } from "../../core/index.ts";
import { mapSharedOver } from "../../foreign/native/index.ts";
import { createMappedFile, nonceOf, removeMappedFile, withMappedFile } from "./mapped-file.ts";

/** Where an arena is; plain data that travels to the ranks. */
export interface SharedArena {
  readonly path: string;
  readonly sizeBytes: number;
}

/** The first word counts who has mapped it. */
const ATTACHED_WORD = 0;

/** Makes an arena of zeros. @param folder where, if not wherever there is room @throws OutOfMemoryError when there is none */
export function createSharedArena(sizeBytes: number, folder?: string): SharedArena {
  const where = folder === undefined ? undefined : [folder];
  return { path: createMappedFile("memory for data that processes share", sizeBytes, undefined, where), sizeBytes };
}

/** Removes its file. Memory that is mapped stays. Idempotent. */
export function removeSharedArena({ path }: SharedArena): void {
  removeMappedFile(path);
}

/**
 * Maps an arena over the first bytes of `memory`, as one of so many ranks; the last one removes the file.
 * @returns lets the arena go: those bytes are zeros of this rank alone then
 * @throws FormatError when the file is not what `arena` says, or not this user's alone; NativeError
 */
export function attachSharedArena(arena: SharedArena, memory: SharedArrayBuffer, ranks: number): () => void {
  const { path, sizeBytes } = arena;
  const refuse = (problem: string, cause?: unknown): never => {
    throw new FormatError(path, `is no shared memory of this world: ${problem}`, { cause });
  };
  if (nonceOf(path) === undefined) refuse("its name is not one");
  const unmap = withMappedFile(path, sizeBytes, refuse, (fd) => mapSharedOver(memory, fd, sizeBytes));
  if (Atomics.add(new Int32Array(memory), ATTACHED_WORD, 1) + 1 === ranks) removeSharedArena(arena);
  return unmap;
}
