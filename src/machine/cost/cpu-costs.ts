/**
 * What plans cost on ranks that are threads of one host, for a number of ranks: constants that `chorale tune` fits and
 * `chorale sim --topology cpu` uses. Bandwidths are payload of one rank while all ranks move data; between the working
 * sets that fit the caches and those that are far larger, they are interpolated.
 */
import { FormatError } from "../../core/index.ts";

export interface CpuCosts {
  /** A call: announcing it, and meeting the other ranks. */
  readonly callUs: number;
  /** Meeting once more at the end, where a plan needs it. */
  readonly meetUs: number;
  /** Starting one operation. */
  readonly opUs: number;
  /** From a signal, or a packet, to its being seen by another core. */
  readonly signalUs: number;
  /** Copied, with the working set in caches, and out of them. */
  readonly cachedCopyGBps: number;
  readonly copyGBps: number;
  /** Each operand of a reduction, likewise. */
  readonly cachedReduceGBps: number;
  readonly reduceGBps: number;
  /** Packets, sent or received. */
  readonly packetGBps: number;
  /** The working set of all ranks at which half of it comes from memory. */
  readonly cacheBytes: number;
}

export const CPU_COST_NAMES = [
  "callUs",
  "meetUs",
  "opUs",
  "signalUs",
  "cachedCopyGBps",
  "copyGBps",
  "cachedReduceGBps",
  "reduceGBps",
  "packetGBps",
  "cacheBytes",
] as const satisfies readonly (keyof CpuCosts)[];

/** Where nothing was measured: round figures for a server core of about 3 GHz, estimated rather than fitted. */
export const DEFAULT_CPU_COSTS: CpuCosts = Object.freeze({
  callUs: 1.2,
  meetUs: 0.3,
  opUs: 0.05,
  signalUs: 0.15,
  cachedCopyGBps: 15,
  copyGBps: 6,
  cachedReduceGBps: 20,
  reduceGBps: 10,
  packetGBps: 3,
  cacheBytes: 8e6,
});

/** Constants by number of ranks. */
export interface CpuCostTable {
  readonly byRanks: Readonly<Record<string, CpuCosts>>;
}

/** Checks what was read from a file. @throws FormatError naming the field */
export function checkCpuCosts(value: unknown, where: string): CpuCostTable {
  const byRanks = (value as Partial<CpuCostTable> | null)?.byRanks;
  if (typeof byRanks !== "object" || byRanks === null) {
    throw new FormatError(where, "must be constants by number of ranks", { field: "cpuCosts.byRanks" });
  }
  for (const [ranks, costs] of Object.entries(byRanks)) {
    for (const name of CPU_COST_NAMES) {
      const constant = (costs as Partial<CpuCosts> | null)?.[name];
      if (typeof constant === "number" && constant >= 0 && constant < 1e15) continue;
      throw new FormatError(where, "must be a number of 0 or more", { field: `cpuCosts.byRanks.${ranks}.${name}` });
    }
  }
  return { byRanks };
}

/** The constants for the nearest number of ranks that was measured. */
export function cpuCostsFor(table: CpuCostTable | undefined, numRanks: number): CpuCosts {
  const known = Object.keys(table?.byRanks ?? {}).map(Number);
  const distance = (ranks: number) => Math.abs(Math.log(ranks / numRanks));
  const nearest = known.sort((a, b) => distance(a) - distance(b))[0];
  return nearest === undefined ? DEFAULT_CPU_COSTS : (table?.byRanks[String(nearest)] ?? DEFAULT_CPU_COSTS);
}
