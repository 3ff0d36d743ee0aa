/** The launcher's side of a world: it makes the memory, keeps it mapped, says who died and reads what ranks did last. */
import { availableParallelism } from "node:os";
import { type FlightDump, flightDump, type HostSpec } from "../../comm/index.ts";
import { MAX_PAGES, PAGE_BYTES } from "../../executor/internal.ts";
import { createGrowingArena, removeGrowingArena } from "../../memory/index.ts";
import {
  beginWorld,
  buryRank,
  checkHost,
  dumpFlight,
  failRank,
  failWorld,
  LINE,
  noteEnded,
  WORLD,
} from "../threads/internal.ts";
import type { ShmHandle, ShmOptions } from "./shm-handle.ts";
import { type OpenWorld, openWorld } from "./shm-world.ts";

/** Worlds that this process has made and not released, by the paths of their files. */
const made = new Map<string, OpenWorld>();

/** @throws InvalidArgumentError, OutOfMemoryError, UnavailableError without FFI */
export function createShmHost({ ranks, generation }: HostSpec, options: ShmOptions): ShmHandle {
  const { memoryLimitBytes = MAX_PAGES * PAGE_BYTES } = options;
  const { firstBytes, limitBytes, choices } = checkHost(ranks, memoryLimitBytes, options.choices);
  const handle: ShmHandle = {
    kind: "shm",
    ranks,
    generation,
    limitBytes: memoryLimitBytes,
    arena: createGrowingArena(firstBytes, limitBytes),
    cores: options.cores ?? availableParallelism(),
    ...(choices === undefined ? {} : { choices }),
  };
  try {
    const open = openWorld(handle);
    const { memory } = open.world;
    new Int32Array(memory.buffer)[WORLD.committed] = firstBytes / LINE;
    beginWorld(memory, { ranks, generation, memoryLimitBytes });
    made.set(handle.arena.path, open);
  } catch (error) {
    removeGrowingArena(handle.arena);
    throw error;
  }
  return handle;
}

/** Removes what is left of it. Idempotent. */
export function releaseShmHost({ arena }: ShmHandle): void {
  removeGrowingArena(arena);
  const open = made.get(arena.path);
  if (open === undefined) return;
  made.delete(arena.path);
  open.arena.release();
  noteEnded(open.world.memory);
}

export function failShmRank(
  { arena }: ShmHandle,
  rank: number,
  cause: string,
  everybody: boolean,
  blamed?: number,
): void {
  const open = made.get(arena.path);
  if (open === undefined) return;
  if (everybody) failWorld(open.world, rank, cause, blamed);
  else failRank(open.world, rank, cause, { blamed });
}

export function buryShmRank({ arena }: ShmHandle, rank: number): void {
  const open = made.get(arena.path);
  if (open !== undefined) buryRank(open.world, rank);
}

/** Empty, but for the names of the ranks, once the memory is released. */
export function readShmFlight({ arena, ranks, generation }: ShmHandle): FlightDump {
  const open = made.get(arena.path);
  return open === undefined
    ? flightDump({ backend: "shm", generation, worldSize: ranks }, [], (rank) => ({
        rank,
        failed: undefined,
        entries: [],
      }))
    : dumpFlight(open.world);
}
