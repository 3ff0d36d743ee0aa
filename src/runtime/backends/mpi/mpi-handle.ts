/** The handle of an MPI world on one host, and the launcher's side of it: the control segment that its ranks share. */
import { availableParallelism } from "node:os";
import { FormatError, OutOfMemoryError } from "../../../core/index.ts";
import type { FlightDump } from "../../comm/index.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import {
  createHostControl,
  hostSegment,
  MAX_JOINT_RANKS,
  type MappedControl,
  releaseHostControl,
  removeSharedArena,
  type SharedArena,
} from "../../memory/index.ts";
import { dumpSegment } from "../../progress/index.ts";
import { createHostArena } from "./host-arena.ts";
import { choicesOf, choicesOfEnvironment, type HostChoices, namesPlans } from "./host-choices.ts";

/** Most ranks of a world: the control segment grows with their square. */
export const MAX_MPI_RANKS = MAX_JOINT_RANKS;

/** What every rank of a world must hold to attach; plain data. */
export interface MpiHandle {
  readonly kind: "mpi";
  readonly ranks: number;
  readonly generation: number;
  readonly control: MappedControl;
  /** For collectives inside the host; absent where MPI serves everything, or there is no room for it. */
  readonly arena?: SharedArena;
  /** What the tables of choices call this host. */
  readonly topology: string;
  /** Whether measurements choose between MPI and the exchange inside the host. */
  readonly measures: boolean;
  /** Tables that come before the shipped ones. */
  readonly choices?: ChoiceDocument;
}

/** How tables name a host: by whether each rank has a core of its own. */
const topologyOf = (ranks: number): string => (ranks > availableParallelism() ? "shared-cores" : "own-cores");

/**
 * Makes what the ranks share.
 * @throws OutOfMemoryError, UnavailableError without FFI, InvalidArgumentError for what the environment says of choices
 */
export function createMpiHost(
  world: { readonly ranks: number; readonly generation: number },
  given: HostChoices | undefined = choicesOfEnvironment(),
): MpiHandle {
  const { ranks, generation } = world;
  const choices = choicesOf(given);
  const topology = topologyOf(ranks);
  // Where ranks share cores, MPI alone is left as it is: nothing that is measured there holds for the next call.
  const measures = given === "measured" || (given === undefined && choices === undefined && topology === "own-cores");
  const control = createHostControl({ ranks, generation });
  const arena = ranks > 1 && (measures || namesPlans(choices)) ? arenaOf(ranks) : undefined;
  return {
    kind: "mpi",
    ranks,
    generation,
    control,
    topology,
    measures,
    ...(arena !== undefined && { arena }),
    ...(choices !== undefined && { choices }),
  };
}

function arenaOf(ranks: number): SharedArena | undefined {
  try {
    return createHostArena(ranks);
  } catch (error) {
    if (error instanceof OutOfMemoryError) return undefined;
    throw error;
  }
}

/** Removes it. Idempotent. */
export function releaseMpiHost({ control, arena }: MpiHandle): void {
  releaseHostControl(control);
  if (arena !== undefined) removeSharedArena(arena);
}

export function dumpMpiFlight(handle: MpiHandle): FlightDump {
  const { generation, ranks } = handle;
  return dumpSegment(hostSegment(handle.control), { backend: "mpi", generation, worldSize: ranks });
}

/** Reads a handle that another rank published. @throws FormatError */
export function checkMpiHandle(value: unknown): MpiHandle {
  const { kind, control } = (value ?? {}) as Partial<MpiHandle>;
  if (kind !== "mpi" || typeof control?.path !== "string") {
    throw new FormatError("the control segment's name", "cannot be read");
  }
  return value as MpiHandle;
}
