/**
 * The ways in which the tcp backend makes a collective by itself, by the names that tables of choices and `algorithm:` take:
 * `flat` (sockets between all ranks) and `hierarchical` (by shared memory inside hosts), each also with the size of its pieces,
 * such as `flat@unit256K`, and the schedules among which `flat` chooses by size.
 */
import { COLLECTIVE_NAMES, type CollectiveName } from "../../../collectives/index.ts";
import { invariant } from "../../../core/index.ts";
import type { KernelNames } from "../../executor/internal.ts";

/** What serves a call of which no table says anything: `algorithm:` takes it too. */
export const BY_ITSELF = "socket-kernel";
export const FLAT = "flat";
export const HIERARCHICAL = "hierarchical";

/** Collectives that can be made host by host. */
const PIECED = ["all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "barrier"] as const;
export type PiecedName = (typeof PIECED)[number];
export const isPieced = (op: string): op is PiecedName => PIECED.some((name) => name === op);

/** Of operations that have two: few messages, and few bytes. */
export const SCHEDULES = {
  all_reduce: ["bruck", "reduce-scatter-all-gather"],
  broadcast: ["binomial", "scatter-all-gather"],
  reduce: ["linear", "reduce-scatter-gather"],
} as const;
export type ScheduleName = (typeof SCHEDULES)[keyof typeof SCHEDULES][number];

/** Sizes of pieces that may be named. Those of hosts are at most as large as the memory that the host has for each. */
export const UNITS = { "64K": 65_536, "128K": 131_072, "256K": 262_144, "512K": 524_288, "1M": 1_048_576 } as const;
const HOST_UNITS = ["128K", "256K", "512K"] as const;

/** How a call is made that goes over sockets or host by host; what is absent is the backend's own choice, by size. */
export interface SocketWay {
  readonly isHierarchical: boolean;
  readonly schedule: ScheduleName | undefined;
  readonly pieceBytes: number | undefined;
}

function namesFor(op: CollectiveName): readonly string[] {
  const hosted = isPieced(op) ? [HIERARCHICAL] : [];
  if (op === "barrier") return [BY_ITSELF, FLAT, ...hosted];
  const units = (name: string, those: readonly string[]) => [name, ...those.map((unit) => `${name}@unit${unit}`)];
  return [
    BY_ITSELF,
    ...units(FLAT, Object.keys(UNITS)),
    ...hosted.flatMap((name) => units(name, HOST_UNITS)),
    ...(op in SCHEDULES ? SCHEDULES[op as keyof typeof SCHEDULES] : []),
  ];
}

export const SOCKET_KERNELS = Object.fromEntries(
  COLLECTIVE_NAMES.map((op) => [op, namesFor(op)]),
) as unknown as KernelNames;

/** What one of these names means. */
export function wayOf(label: string): SocketWay {
  const [name, unit] = label.split("@unit");
  const pieceBytes = unit === undefined ? undefined : UNITS[unit as keyof typeof UNITS];
  const isNamed = name !== FLAT && name !== HIERARCHICAL;
  invariant(unit === undefined || pieceBytes !== undefined, `${label} has pieces of a size that there is`);
  return {
    isHierarchical: name === HIERARCHICAL,
    schedule: isNamed ? (name as ScheduleName) : undefined,
    pieceBytes,
  };
}

/** The name of a schedule as reports have it, with the size of its pieces where that was named. */
export function labelOf(name: string, pieceBytes: number | undefined): string {
  const unit = Object.entries(UNITS).find(([, bytes]) => bytes === pieceBytes)?.[0];
  return unit === undefined ? name : `${name}@unit${unit}`;
}
