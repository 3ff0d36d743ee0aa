/** One rank's door to a shm world: it maps the memory, and is a rank of the threads backend's engine from then on. */
import type { Backend } from "../../comm/index.ts";
import { removeGrowingArena } from "../../memory/index.ts";
import { attachShared, buildProtocol } from "../threads/index.ts";
import { WORLD } from "../threads/internal.ts";
import type { ShmHandle, ShmOptions } from "./shm-handle.ts";
import { checkWorld, openWorld } from "./shm-world.ts";

/** Of this process: its generations differ in their memory alone. */
let compiled: ReturnType<typeof buildProtocol> | undefined;

/**
 * Attaches this process as `rank`. Synchronous: nothing waits for the other ranks. The last one to come removes the file.
 * @throws UnavailableError without FFI; FormatError when the memory is not the handle's, or not this user's alone;
 *   OutOfMemoryError; InvalidArgumentError for a rank out of range, or attached before
 */
export function attachShm(handle: ShmHandle, rank: number, options: ShmOptions): Backend {
  const open = openWorld(handle);
  checkWorld(open, handle);
  const { memory } = open.world;
  try {
    compiled ??= buildProtocol("call");
    const backend = attachShared({ ...open.world, module: compiled }, rank, { ...options, cores: handle.cores });
    const words = new Int32Array(memory.buffer);
    if (Atomics.add(words, WORLD.mapped, 1) + 1 === handle.ranks) removeGrowingArena(handle.arena);
    return backend;
  } catch (error) {
    open.arena.release();
    throw error;
  }
}
