/** The handle of an MPI world on one host, and the launcher's side of it: the control segment that its ranks share. */
import { FormatError, InvalidArgumentError } from "../../../core/index.ts";
import type { FlightDump } from "../../comm/index.ts";
import {
  type ControlSegment,
  createMappedControl,
  MAX_JOINT_RANKS,
  type MappedControl,
  type OpenControl,
  openMappedControl,
  removeMappedControl,
} from "../../memory/index.ts";
import { dumpSegment } from "../../progress/index.ts";

/** Most ranks of a world: the control segment grows with their square. */
export const MAX_MPI_RANKS = MAX_JOINT_RANKS;

/** What every rank of a world must hold to attach; plain data. */
export interface MpiHandle {
  readonly kind: "mpi";
  readonly ranks: number;
  readonly generation: number;
  readonly control: MappedControl;
}

/** Segments that this process has made: it says who died, and reads what they did last. */
const made = new Map<string, OpenControl>();

/** Makes what the ranks share. @throws OutOfMemoryError, UnavailableError without FFI */
export function createMpiHost(world: { readonly ranks: number; readonly generation: number }): MpiHandle {
  const { ranks, generation } = world;
  const control = createMappedControl({ ranks, generation });
  try {
    made.set(control.path, openMappedControl(control, { ranks, generation }, { attach: false }));
  } catch (error) {
    removeMappedControl(control);
    throw error;
  }
  return { kind: "mpi", ranks, generation, control };
}

/** Removes it. Idempotent. */
export function releaseMpiHost({ control }: MpiHandle): void {
  removeMappedControl(control);
  made.get(control.path)?.close();
  made.delete(control.path);
}

const segmentOf = ({ control }: MpiHandle): ControlSegment | undefined => made.get(control.path)?.segment;

/** Says, from the process that made the handle, that a rank is dead. The first cause stays. */
export function failMpiRank(handle: MpiHandle, rank: number, cause: string): void {
  segmentOf(handle)?.fail({ code: "RANK_FAILED", rank, generation: handle.generation, cause });
}

export function buryMpiRank(handle: MpiHandle, rank: number): void {
  segmentOf(handle)?.presence.bury(rank);
}

export function dumpMpiFlight(handle: MpiHandle): FlightDump {
  const { generation, ranks } = handle;
  return dumpSegment(segmentOf(handle), { backend: "mpi", generation, worldSize: ranks });
}

/** Reads a handle that another rank published. @throws FormatError */
export function checkMpiHandle(value: unknown): MpiHandle {
  const { kind, control } = (value ?? {}) as Partial<MpiHandle>;
  if (kind !== "mpi" || typeof control?.path !== "string") {
    throw new FormatError("the control segment's name", "cannot be read");
  }
  return value as MpiHandle;
}

/** @throws InvalidArgumentError for a number that is not a rank of the handle's world */
export function checkMpiRank({ ranks }: MpiHandle, rank: number): void {
  if (Number.isInteger(rank) && rank >= 0 && rank < ranks) return;
  throw new InvalidArgumentError("rank", rank, `a rank of the world, 0 to ${ranks - 1}`);
}
