/**
 * The flight recorder's dump: the last operations of every rank, with enough around them to be read alone, on another
 * machine, with ranks missing. `chorale doctor --flight` explains it.
 */

export const FLIGHT_SCHEMA_VERSION = 1;

export interface FlightEntry {
  readonly group: string;
  readonly seq: number;
  readonly op: string;
  readonly call: string;
  readonly state: "issued" | "done" | "failed";
  /** Milliseconds since 1970; 0 where the call was too fast to be timed. */
  readonly timeMs: number;
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
