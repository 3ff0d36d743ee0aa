/** What every algorithm of the library can be told, and small arithmetic that several share. */

import type { ProgramOptions } from "../language/index.ts";
import type { PlanReduceOp } from "../plan/index.ts";

export interface AlgorithmArgs {
  readonly numRanks: number;
  readonly inPlace?: boolean;
  readonly op?: PlanReduceOp;
  /** Replicates the algorithm, each instance on its share of every chunk: parallel strands. */
  readonly instances?: number;
  /** `port`: reach other ranks through a proxy. Memory by default. */
  readonly channel?: "memory" | "port";
  readonly numThreadsPerBlock?: number;
  readonly minMessageSizeBytes?: number | bigint;
  readonly maxMessageSizeBytes?: number | bigint;
}
export interface RootedArgs extends AlgorithmArgs {
  readonly root?: number;
}
export interface HierarchicalArgs extends AlgorithmArgs {
  /** Ranks of one node; must divide numRanks. */
  readonly ranksPerNode: number;
}

/** Every argument that some algorithm of the library takes, for whoever reads them from a command line. */
export const ARGUMENT_NAMES: readonly string[] = [
  "numRanks",
  "inPlace",
  "op",
  "instances",
  "channel",
  "numThreadsPerBlock",
  "minMessageSizeBytes",
  "maxMessageSizeBytes",
  "root",
  "ranksPerNode",
  "chunks",
  "sendTo",
  "sendCounts",
] satisfies (keyof AlgorithmArgs | keyof RootedArgs | keyof HierarchicalArgs | "chunks" | "sendTo" | "sendCounts")[];

/** The options of `program` that come from the arguments. Synchronisation is the compiler's. */
export function settings(name: string, args: AlgorithmArgs): Omit<ProgramOptions, "collective"> {
  const { instances, numThreadsPerBlock, minMessageSizeBytes, maxMessageSizeBytes, channel } = args;
  return {
    name,
    autoSync: "full",
    ...(instances === undefined ? {} : { instances }),
    ...(numThreadsPerBlock === undefined ? {} : { numThreadsPerBlock }),
    ...(minMessageSizeBytes === undefined ? {} : { minMessageSizeBytes }),
    ...(maxMessageSizeBytes === undefined ? {} : { maxMessageSizeBytes }),
    ...(channel === undefined ? {} : { links: () => channel }),
  };
}

/** As `settings`, of programs that move packets: data with flags, which need scratch twice. */
export function packetSettings(name: string, args: AlgorithmArgs): Omit<ProgramOptions, "collective"> {
  return { ...settings(name, args), protocol: "LL", useDoubleScratchBuffer: true };
}

/** i modulo n, never negative. */
export function modulo(i: number, n: number): number {
  return ((i % n) + n) % n;
}

/** The other numbers below n, from the next one on: if all began with 0, its link would carry everything at once. */
export function others(i: number, n: number): readonly number[] {
  return Array.from({ length: n - 1 }, (_, step) => (i + 1 + step) % n);
}

/** The other ranks, in that order. */
export function after<T extends { readonly id: number }>(ranks: readonly T[], rank: T): readonly T[] {
  return others(rank.id, ranks.length).map((id) => ranks[id] as T);
}
