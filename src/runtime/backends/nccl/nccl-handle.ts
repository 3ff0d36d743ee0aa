/** The handle of an NCCL world, and the check of what a program hands over as one. */
import { InvalidArgumentError } from "../../../core/index.ts";
import type { MappedControl } from "../../memory/index.ts";

/** What every rank of a world must hold to attach; structured-cloneable. */
export interface NcclHandle {
  readonly kind: "nccl";
  readonly ranks: number;
  readonly generation: number;
  /** The control segment: a SharedArrayBuffer among threads, mapped memory among processes. */
  readonly control: SharedArrayBuffer | MappedControl;
  /** Of a world of several hosts, each of which has a handle and a segment of its own: this host's name among them. */
  readonly hostId?: string;
  /** Among threads: where each rank writes down what it holds (see `reapNccl`). Of processes the system frees it. */
  readonly ledger?: SharedArrayBuffer;
}

/** @throws InvalidArgumentError for what `createNcclHost` did not give */
export function checkNcclHandle(handle: NcclHandle): NcclHandle {
  const isHandle = typeof handle === "object" && handle !== null && handle.kind === "nccl";
  if (isHandle && typeof handle.control === "object" && handle.control !== null) return handle;
  throw new InvalidArgumentError("handle", handle, "what createNcclHost gave");
}
