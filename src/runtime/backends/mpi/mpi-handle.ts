/** The handle of an MPI world on one host, and the launcher's side of it: the control segment that its ranks share. */
import { availableParallelism } from "node:os";
import { FormatError, OutOfMemoryError } from "../../../core/index.ts";
import type { FlightDump } from "../../comm/index.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import {
  createHostControl,
  type GrowingArena,
  hostSegment,
  MAX_JOINT_RANKS,
  type MappedControl,
  releaseHostControl,
  removeGrowingArena,
} from "../../memory/index.ts";
import { dumpSegment } from "../../progress/index.ts";
import { createHostArena } from "./host-arena.ts";
import { choicesOf, choicesOfEnvironment, type HostChoices, namesPlans } from "./host-choices.ts";

/** Most ranks of a world: the control segment grows with their square. */
export const MAX_MPI_RANKS = MAX_JOINT_RANKS;

/** What the ranks of one host share. */
interface HostPart {
  readonly control: MappedControl;
  /** For collectives inside the host; absent where MPI serves everything, or there is no room for it. */
  readonly arena?: GrowingArena;
}

/** What every rank of a world must hold to attach; plain data. */
export interface MpiHandle extends HostPart {
  readonly kind: "mpi";
  readonly ranks: number;
  readonly generation: number;
  /** What the tables of choices call this host. */
  readonly topology: string;
  /** Whether measurements choose between MPI and the exchange inside the host. */
  readonly measures: boolean;
  /** Tables that come before the shipped ones. */
  readonly choices?: ChoiceDocument;
  /** In a world of several hosts: the first rank of each rank's host. What else stands here is of one of them. */
  readonly hosts?: readonly number[];
  /** Of pretended hosts, which one launcher starts: what those of the others share, by their first ranks. */
  readonly parts?: Readonly<Record<number, HostPart>>;
}

/** How tables name a host: by whether each rank has a core of its own. */
const topologyOf = (ranks: number): string => (ranks > availableParallelism() ? "shared-cores" : "own-cores");

/**
 * Makes what the ranks share.
 * @throws OutOfMemoryError, UnavailableError without FFI, InvalidArgumentError for what the environment says of choices
 */
export function createMpiHost(
  world: { readonly ranks: number; readonly generation: number; readonly numHere?: number },
  given: HostChoices | undefined = choicesOfEnvironment(),
  pretended?: readonly number[],
): MpiHandle {
  const hosts = pretended === undefined ? undefined : hostsOf(pretended, world.ranks);
  const { ranks, generation, numHere = hosts?.filter((host) => host === 0).length ?? ranks } = world;
  const choices = choicesOf(given);
  const topology = topologyOf(numHere);
  // Where ranks share cores, MPI alone is left as it is: nothing that is measured there holds for the next call.
  const measures = given === "measured" || (given === undefined && choices === undefined && topology === "own-cores");
  const exchanges = measures || namesPlans(choices);
  const partOf = (numRanks: number): HostPart => {
    const control = createHostControl({ ranks, generation });
    const arena = numRanks > 1 && exchanges ? arenaOf(ranks, numRanks) : undefined;
    return { control, ...(arena !== undefined && { arena }) };
  };
  const own = partOf(numHere);
  const others = [...new Set(hosts)].filter((host) => host !== 0);
  return {
    kind: "mpi",
    ranks,
    generation,
    ...own,
    topology,
    measures,
    ...(choices !== undefined && { choices }),
    ...(hosts !== undefined &&
      others.length > 0 && {
        hosts,
        parts: Object.fromEntries(
          others.map((host) => [host, partOf(hosts.filter((one) => one === host).length)] as const),
        ),
      }),
  };
}

/** The first rank of each rank's host, where a list says which ranks are together; it is repeated for more ranks. */
function hostsOf(list: readonly number[], ranks: number): readonly number[] {
  const named = Array.from({ length: ranks }, (_, rank) => list[rank % list.length] ?? 0);
  return named.map((host) => named.indexOf(host));
}

/** All that the ranks of the hosts share which one launcher has started. */
export const partsOf = (handle: MpiHandle): readonly HostPart[] => [handle, ...Object.values(handle.parts ?? {})];

/** What the ranks of a rank's host share. */
export const partOf = (handle: MpiHandle, rank: number): HostPart =>
  handle.parts?.[handle.hosts?.[rank] ?? 0] ?? handle;

function arenaOf(ranks: number, numHere: number): GrowingArena | undefined {
  try {
    return createHostArena(ranks, numHere);
  } catch (error) {
    if (error instanceof OutOfMemoryError) return undefined;
    throw error;
  }
}

/** Removes it. Idempotent. */
export function releaseMpiHost(handle: MpiHandle): void {
  for (const { control, arena } of partsOf(handle)) {
    releaseHostControl(control);
    if (arena !== undefined) removeGrowingArena(arena);
  }
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
