/** The launcher's side of an NCCL world: what its ranks share. Needs no GPU, and loads neither CUDA nor NCCL. */
import { hostname } from "node:os";
import { InvalidArgumentError } from "../../../core/index.ts";
import {
  describeWords,
  FLIGHT_SCHEMA_VERSION,
  type FlightDump,
  type FlightEntry,
  unpackCall,
} from "../../comm/index.ts";
import { ControlSegment, controlBytes, type GroupControl, LANE_RING } from "../control/segment.ts";

/** What every rank of a world must hold to attach; structured-cloneable. */
export interface NcclHandle {
  readonly kind: "nccl";
  readonly ranks: number;
  readonly generation: number;
  /** The control segment: a SharedArrayBuffer among threads, mapped memory among processes. */
  readonly control: ArrayBufferLike;
}

/** Most ranks of one host: the control segment grows with the square. */
const MAX_RANKS = 16;

/** Makes what the ranks of one host share. @throws InvalidArgumentError */
export function createNcclHost(options: { readonly ranks: number; readonly generation?: number }): NcclHandle {
  const { ranks, generation = 1 } = options;
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidArgumentError("ranks", ranks, `an integer from 1 to ${MAX_RANKS}, one rank per GPU of the host`);
  }
  return { kind: "nccl", ranks, generation, control: new SharedArrayBuffer(controlBytes(ranks)) };
}

/** Says, from any thread, that `rank` is dead: pending work of every survivor fails. The first cause stays. */
export function failNcclRank(handle: NcclHandle, rank: number, cause: string): void {
  const segment = new ControlSegment(handle.control, handle.ranks);
  segment.fail({ code: "RANK_FAILED", rank, generation: handle.generation, cause });
}

/** Reads what every rank issued last, also of ranks that are dead or stuck. Collectives only; the GPU keeps no times. */
export function dumpNcclFlight(handle: NcclHandle): FlightDump {
  const segment = new ControlSegment(handle.control, handle.ranks);
  const groups = segment.groups();
  const failure = segment.failure;
  return {
    schemaVersion: FLIGHT_SCHEMA_VERSION,
    backend: "nccl",
    generation: handle.generation,
    worldSize: handle.ranks,
    host: hostname(),
    pid: process.pid,
    groups: groups.map(({ name, ranks, control }) => ({ name, ranks, failure: control.failure })),
    ranks: Array.from({ length: handle.ranks }, (_, rank) => ({
      rank,
      failed: failure?.code === "RANK_FAILED" && failure.rank === rank ? failure.cause : undefined,
      entries: groups.flatMap(({ name, ranks, control }) =>
        ranks.includes(rank) ? entriesOf(name, control, ranks.indexOf(rank)) : [],
      ),
    })),
  };
}

function entriesOf(group: string, control: GroupControl, member: number): FlightEntry[] {
  const lane = { kind: "collective" } as const;
  const issued = control.issued(member, lane);
  const entries: FlightEntry[] = [];
  // Call 0 is the member's joining.
  for (let seq = Math.max(1, issued - LANE_RING); seq < issued; seq++) {
    const print = control.read(member, lane, seq);
    if (print === undefined) continue;
    const call = describeWords(print.call, print.count >>> 0);
    entries.push({ group, seq, op: unpackCall(print.call).op, call, state: "issued", timeMs: 0 });
  }
  return entries;
}
