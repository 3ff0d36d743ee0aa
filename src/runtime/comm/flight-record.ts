/**
 * The flight recorder's dump: the last operations of every rank, with enough around them to be read alone, on another
 * machine, with ranks missing. `chorale doctor --flight` explains it.
 */
import { hostname } from "node:os";

export const FLIGHT_SCHEMA_VERSION = 1;

export interface FlightEntry {
  readonly group: string;
  /** Number of the operation; with `peer` it is counted by itself, among this rank's sends to, or receives from, that one. */
  readonly seq: number;
  readonly op: string;
  readonly call: string;
  /** "started": the engine has it on its stream; "running": the stream is in it (told only where calls are timed). */
  readonly state: "issued" | "started" | "running" | "done" | "failed";
  /** When it was issued, milliseconds since 1970; 0 where the call was too fast to be timed. */
  readonly timeMs: number;
  /** When this rank saw its end, milliseconds since 1970; absent while it has not. */
  readonly endMs?: number;
  /** How far a call that failed had come. */
  readonly reached?: "issued" | "started" | "running";
  /** Where calls are timed: its start on the stream, counted from the group's first call, and how long it ran there. */
  readonly startUs?: number;
  readonly durationUs?: number;
  /** Of a send or receive: the other end, a rank of the group. The backends that leave it out count these with the rest. */
  readonly peer?: number;
  /** With `peer`: the type and number of the elements (modulo 2^32). */
  readonly dtype?: string;
  readonly count?: number;
  /** Of a call that failed while a plan served it: where each strand stood that had not ended, and the program's line. */
  readonly strands?: readonly string[];
  /** With `peer`: whether it stands in a batch, and so waits for the other end; outside of one a send is a copy. */
  readonly inBatch?: boolean;
}
export interface FlightRank {
  readonly rank: number;
  readonly failed: string | undefined;
  /** Oldest first. */
  readonly entries: readonly FlightEntry[];
}
export interface FlightDump {
  readonly schemaVersion: typeof FLIGHT_SCHEMA_VERSION;
  readonly backend: string;
  readonly generation: number;
  readonly worldSize: number;
  readonly host: string;
  readonly pid: number;
  readonly groups: readonly { readonly name: string; readonly ranks: readonly number[]; readonly failure: unknown }[];
  readonly ranks: readonly FlightRank[];
}

/** A dump that this process writes of a world. */
export function flightDump(
  { backend, generation, worldSize }: Pick<FlightDump, "backend" | "generation" | "worldSize">,
  groups: FlightDump["groups"],
  rankOf: (rank: number) => FlightRank,
): FlightDump {
  return {
    schemaVersion: FLIGHT_SCHEMA_VERSION,
    backend,
    generation,
    worldSize,
    host: hostname(),
    pid: process.pid,
    groups,
    ranks: Array.from({ length: worldSize }, (_, rank) => rankOf(rank)),
  };
}
