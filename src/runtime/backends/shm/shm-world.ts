/** The memory of a world, mapped over a WebAssembly memory of this process: as a rank, and as the launcher, have it. */
import { FormatError, InvariantError, OutOfMemoryError } from "../../../core/index.ts";
import { newSharedMemory, PAGE_BYTES, type WasmMemory } from "../../executor/internal.ts";
import { type OpenArena, openGrowingArena } from "../../memory/index.ts";
import { LINE, MAGIC, type SharedWorld, WORLD } from "../threads/internal.ts";
import { processWaiting } from "./process-waiting.ts";
import type { ShmHandle } from "./shm-handle.ts";

/** A world, as this process has mapped it. */
export interface OpenWorld {
  readonly world: SharedWorld;
  readonly arena: OpenArena;
}

/**
 * Maps a world's memory.
 * @throws UnavailableError without FFI; OutOfMemoryError without address space; FormatError when the file is not what the
 *   handle says, or not this user's alone
 */
export function openWorld(handle: ShmHandle): OpenWorld {
  const { ranks, generation, limitBytes, choices } = handle;
  const memory = reserve(handle.arena.limitBytes);
  const arena = openGrowingArena(handle.arena, memory.buffer);
  const words = new Int32Array(memory.buffer);
  const size = () => (words[WORLD.committed] ?? 0) * LINE;
  const world: SharedWorld = {
    kind: "shm",
    ranks,
    generation,
    limitBytes,
    memory,
    waiting: processWaiting(memory.buffer),
    growth: {
      get sizeBytes() {
        return size();
      },
      grow(leastBytes, wantedBytes) {
        const grown = extend(arena, size(), Math.ceil(leastBytes / PAGE_BYTES) * PAGE_BYTES, wantedBytes);
        words[WORLD.committed] = grown / LINE;
      },
    },
    onClosed: () => arena.close(),
    ...(choices === undefined ? {} : { choices }),
  };
  return { world, arena };
}

/** Checks that mapped memory is the world of a handle. @throws FormatError */
export function checkWorld({ world: { memory }, arena }: OpenWorld, { ranks, generation, arena: { path } }: ShmHandle) {
  const words = new Int32Array(memory.buffer);
  const [magic, itsRanks, itsGeneration] = [words[WORLD.magic], words[WORLD.ranks], words[WORLD.generation]];
  if (magic === MAGIC && itsRanks === ranks && itsGeneration === generation) return;
  arena.release();
  const found =
    magic === MAGIC ? `it is of ${itsRanks} ranks, generation ${itsGeneration}` : "it does not begin as one";
  throw new FormatError(path, `is no shared memory of ${ranks} ranks, generation ${generation}: ${found}`);
}

/** @returns how long the file is now */
function extend(arena: OpenArena, fromBytes: number, leastBytes: number, wantedBytes: number): number {
  for (const toBytes of [wantedBytes, leastBytes]) {
    try {
      arena.extend(fromBytes, toBytes);
      return toBytes;
    } catch (error) {
      if (toBytes > leastBytes) continue;
      const { message } = error as Error;
      throw new Error(`${message}. Give the container more shared memory (docker run --shm-size)`, { cause: error });
    }
  }
  throw new InvariantError("a file is made longer or not");
}

/** Address space for all that a world may come to need: nothing of it is memory before the file is mapped over it. */
function reserve(sizeBytes: number): WasmMemory {
  const pages = sizeBytes / PAGE_BYTES;
  try {
    return newSharedMemory(pages, pages);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new OutOfMemoryError("address space of this process", sizeBytes, 0, "Lower memoryLimitBytes", { cause });
  }
}
