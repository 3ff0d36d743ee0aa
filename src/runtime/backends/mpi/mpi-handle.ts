/** The handle of an MPI world on one host, and the launcher's side of it: the control segment that its ranks share. */
import { FormatError } from "../../../core/index.ts";
import type { FlightDump } from "../../comm/index.ts";
import {
  createHostControl,
  hostSegment,
  MAX_JOINT_RANKS,
  type MappedControl,
  releaseHostControl,
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

/** Makes what the ranks share. @throws OutOfMemoryError, UnavailableError without FFI */
export function createMpiHost(world: { readonly ranks: number; readonly generation: number }): MpiHandle {
  const { ranks, generation } = world;
  return { kind: "mpi", ranks, generation, control: createHostControl({ ranks, generation }) };
}

/** Removes it. Idempotent. */
export function releaseMpiHost({ control }: MpiHandle): void {
  releaseHostControl(control);
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
