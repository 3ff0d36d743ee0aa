/** What can serve a call, by name: `NAME[*INSTANCES][/CHUNKS]`, and algorithms of a program's own. */
import type { CollectiveName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import type { Runnable } from "../comm/index.ts";

/** Collectives whose calls need no more than a count, which is what an algorithm is made for. */
export const SERVED_COLLECTIVES = [
  "all_reduce",
  "broadcast",
  "reduce",
  "all_gather",
  "reduce_scatter",
  "all_to_all",
  "gather",
  "scatter",
] as const satisfies readonly CollectiveName[];

/** Whether an algorithm can serve a collective. */
export function isServed(collective: string): boolean {
  return (SERVED_COLLECTIVES as readonly string[]).includes(collective);
}

/** What serves a call. `kernel`: code that a backend has by hand; `plan`: an algorithm, compiled and run by an executor. */
export interface Served {
  readonly kind: "kernel" | "plan";
  readonly name: string;
  /** Replicas of the algorithm, each on its share of every chunk. Only of plans. */
  readonly instances: number;
  /** Chunks that a pipeline cuts its buffer into; the algorithm's own number when absent. Only of plans. */
  readonly chunks: number | undefined;
  /** All of it in one word: `NAME[*INSTANCES][/CHUNKS]`. */
  readonly label: string;
}

/** What an algorithm is made for. */
export interface AlgorithmRequest {
  readonly numRanks: number;
  /** Rank within the group; only of rooted collectives. */
  readonly root?: number;
  readonly instances?: number;
  readonly chunks?: number;
}

/** An algorithm of the program's own, as `algorithm:` and tables of choices may name it. */
export interface RegisteredAlgorithm {
  /** Lower-case words joined by hyphens, none of the library's. */
  readonly name: string;
  readonly collective: CollectiveName;
  /** Groups of so many ranks alone; of any number when absent. */
  readonly numRanks?: number;
  /** Makes the program, out of place. Called once for each set of arguments. */
  readonly make: (request: AlgorithmRequest) => Runnable;
}

/** More would be a typing error: every instance is a strand of its own. */
const MAX_INSTANCES = 64;
const MAX_CHUNKS = 1024;

/**
 * Reads `NAME[*INSTANCES][/CHUNKS]`. @throws InvalidArgumentError for another form
 * @example
 * import { parseServed } from "chorale/executor";
 *
 * parseServed("chain-broadcast*2/16", []).instances // 2
 */
export function parseServed(label: string, kernels: readonly string[], argument = "algorithm"): Served {
  const match = /^([a-z][a-z0-9-]*)(?:\*([1-9]\d*))?(?:\/([1-9]\d*))?$/i.exec(label);
  const instances = Number(match?.[2] ?? 1);
  const chunks = match?.[3] === undefined ? undefined : Number(match[3]);
  if (match === null || instances > MAX_INSTANCES || (chunks ?? 1) > MAX_CHUNKS) {
    const accepted = `a name such as ring-all-reduce, with *2 for 2 instances (at most ${MAX_INSTANCES}) and /8 for 8 chunks (at most ${MAX_CHUNKS})`;
    throw new InvalidArgumentError(argument, label, accepted);
  }
  const name = match[1] as string;
  const kind = kernels.includes(name) ? "kernel" : "plan";
  if (kind === "kernel" && label !== name) {
    throw new InvalidArgumentError(argument, label, `${name} alone: a kernel has neither instances nor chunks`);
  }
  return Object.freeze({ kind, name, instances, chunks, label });
}
