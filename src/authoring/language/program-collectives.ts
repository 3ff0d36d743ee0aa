/**
 * What a program computes: the collectives of chorale, and custom ones whose conditions the user writes. Chunks are
 * counted per part (src/collectives): `chunks` of an all-reduce cuts its whole buffer, `chunks` of an all-gather
 * each rank's contribution.
 */

import type { ChunkValue } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { PLAN_REDUCE_OPS, type PlanCollective, type PlanReduceOp } from "../plan/index.ts";

export interface CollectiveOptions {
  readonly inPlace?: boolean;
  /** Chunks of one part. */
  readonly chunks?: number;
}
export interface ReducingOptions extends CollectiveOptions {
  /** The operator that the result is defined by; `sum` by default. */
  readonly op?: PlanReduceOp;
  /** Whether the input may be overwritten although the call is not in place. */
  readonly mayOverwriteInput?: boolean;
}

/** More ranks than any plan has: a slip of a digit should be told, not run out of memory. */
const MAX_RANKS = 4096;

/** Refuses what no function of this file has made. */
export function needCollective(collective: PlanCollective): void {
  const { operation, reduceOp } = Object(collective) as Partial<PlanCollective>;
  if (typeof operation !== "string")
    throw new InvalidArgumentError("collective", collective, "a collective, such as allReduce(numRanks)");
  if (reduceOp !== undefined && !PLAN_REDUCE_OPS.includes(reduceOp))
    throw new InvalidArgumentError("op", reduceOp, PLAN_REDUCE_OPS.join(", "));
}

/** Refuses anything but an object as options. Unknown names pass: whole argument objects are handed on. */
function needOptions(options: unknown): void {
  if (typeof options !== "object" || options === null)
    throw new InvalidArgumentError("options", options, "an object, such as { chunks: 2, inPlace: true }");
}

/** Refuses anything but a list of counts of chunks. */
function needCounts(name: string, counts: readonly number[]): void {
  if (!Array.isArray(counts)) throw new InvalidArgumentError(name, counts, "a list of counts, one for each rank");
  for (const [rank, count] of counts.entries())
    if (!Number.isSafeInteger(count) || count < 0)
      throw new InvalidArgumentError(`${name}[${rank}]`, count, "an integer, 0 or more");
}

function make(
  operation: PlanCollective["operation"],
  numRanks: number,
  chunks: number,
  options: ReducingOptions & { readonly root?: number },
): PlanCollective {
  if (!Number.isInteger(numRanks) || numRanks < 1 || numRanks > MAX_RANKS)
    throw new InvalidArgumentError("numRanks", numRanks, `an integer, 1 or more, and ${MAX_RANKS} at most`);
  if (!Number.isInteger(chunks) || chunks < 1)
    throw new InvalidArgumentError("chunks", chunks, "an integer, 1 or more");
  const { root, op, inPlace = false } = options;
  if (typeof inPlace !== "boolean") throw new InvalidArgumentError("inPlace", inPlace, "true or false");
  if (op !== undefined && !PLAN_REDUCE_OPS.includes(op))
    throw new InvalidArgumentError("op", op, PLAN_REDUCE_OPS.join(", "));
  if (root !== undefined && !(Number.isInteger(root) && root >= 0 && root < numRanks)) {
    throw new InvalidArgumentError("root", root, `0 to ${numRanks - 1}`);
  }
  return Object.freeze({
    operation,
    numRanks,
    chunksPerPart: chunks,
    inPlace,
    ...(root === undefined ? {} : { root }),
    ...(options.op === undefined ? {} : { reduceOp: options.op }),
    ...(options.mayOverwriteInput === true ? { mayOverwriteInput: true } : {}),
  });
}

/** Every rank gets the reduction of all inputs. `chunks` of the whole buffer: one per rank by default. */
export function allReduce(numRanks: number, options: ReducingOptions = {}): PlanCollective {
  needOptions(options);
  return make("all_reduce", numRanks, options.chunks ?? numRanks, options);
}
/** Every rank gets all inputs, in rank order. */
export function allGather(numRanks: number, options: CollectiveOptions = {}): PlanCollective {
  needOptions(options);
  return make("all_gather", numRanks, options.chunks ?? 1, options);
}
/** Rank r gets the reduction of part r of all inputs. */
export function reduceScatter(numRanks: number, options: ReducingOptions = {}): PlanCollective {
  needOptions(options);
  return make("reduce_scatter", numRanks, options.chunks ?? 1, options);
}
/** Part j of rank i's input becomes part i of rank j's output. */
export function allToAll(numRanks: number, options: CollectiveOptions = {}): PlanCollective {
  needOptions(options);
  return make("all_to_all", numRanks, options.chunks ?? 1, options);
}
/** Every rank gets the root's input. */
export function broadcast(
  numRanks: number,
  options: CollectiveOptions & { readonly root?: number } = {},
): PlanCollective {
  needOptions(options);
  return make("broadcast", numRanks, options.chunks ?? 1, { root: 0, ...options });
}
/** The root gets the reduction of all inputs. */
export function reduce(numRanks: number, options: ReducingOptions & { readonly root?: number } = {}): PlanCollective {
  needOptions(options);
  return make("reduce", numRanks, options.chunks ?? 1, { root: 0, ...options });
}
/** The root gets all inputs, in rank order. */
export function gather(numRanks: number, options: CollectiveOptions & { readonly root?: number } = {}): PlanCollective {
  needOptions(options);
  return make("gather", numRanks, options.chunks ?? 1, { root: 0, ...options });
}
/** Rank r gets part r of the root's input. */
export function scatter(
  numRanks: number,
  options: CollectiveOptions & { readonly root?: number } = {},
): PlanCollective {
  needOptions(options);
  return make("scatter", numRanks, options.chunks ?? 1, { root: 0, ...options });
}
/** Nobody leaves before everybody came. Moves no data of the caller's. */
export function barrier(numRanks: number): PlanCollective {
  return make("barrier", numRanks, 1, {});
}
/** Rank r's input goes to the output of rank `sendTo[r]`; null: it sends nothing. */
export function sendRecv(sendTo: readonly (number | null)[], options: CollectiveOptions = {}): PlanCollective {
  needOptions(options);
  if (!Array.isArray(sendTo))
    throw new InvalidArgumentError("sendTo", sendTo, "a list, of one rank or null for each rank");
  for (const [rank, to] of sendTo.entries())
    if (to !== null && !(Number.isInteger(to) && to >= 0 && to < sendTo.length))
      throw new InvalidArgumentError(`sendTo[${rank}]`, to, `a rank from 0 to ${sendTo.length - 1}, or null`);
  return Object.freeze({ ...make("send_recv", sendTo.length, options.chunks ?? 1, options), sendTo: [...sendTo] });
}
/** All-to-all with a matrix of sizes: rank i sends `sendCounts[i][j]` chunks to rank j. */
export function allToAllV(sendCounts: readonly (readonly number[])[]): PlanCollective {
  if (!Array.isArray(sendCounts))
    throw new InvalidArgumentError("sendCounts", sendCounts, "a list of lists of counts, one for each rank");
  for (const [rank, row] of sendCounts.entries()) {
    needCounts(`sendCounts[${rank}]`, row);
    if (row.length !== sendCounts.length)
      throw new InvalidArgumentError("sendCounts", row.length, `${sendCounts.length} counts in each row`);
  }
  return Object.freeze({
    ...make("all_to_all_v", sendCounts.length, 1, {}),
    sendCounts: sendCounts.map((row) => [...row]),
  });
}
/** All-gather of parts of different sizes: rank r contributes `counts[r]` chunks. */
export function allGatherV(counts: readonly number[], options: { readonly inPlace?: boolean } = {}): PlanCollective {
  needOptions(options);
  needCounts("counts", counts);
  return Object.freeze({ ...make("all_gather_v", counts.length, 1, options), counts: [...counts] });
}
/** Reduce-scatter of parts of different sizes: rank r gets `counts[r]` chunks. */
export function reduceScatterV(counts: readonly number[], options: ReducingOptions = {}): PlanCollective {
  needOptions(options);
  needCounts("counts", counts);
  return Object.freeze({ ...make("reduce_scatter_v", counts.length, 1, options), counts: [...counts] });
}

/** MSCCL++'s test collective: buffers of any size and no meaning. */
export function testCollective(numRanks: number, inputChunks: number, outputChunks: number): PlanCollective {
  const each = (count: number) => new Array<number>(numRanks).fill(count);
  return Object.freeze({
    ...make("test", numRanks, 1, {}),
    custom: {
      name: "test",
      inputChunks: each(inputChunks),
      outputChunks: each(outputChunks),
      post: each(0).map(() => []),
    },
  });
}

/** What a custom collective asks for: sizes, and for each output chunk what it must hold (null: anything). */
export interface CustomOptions {
  readonly inputChunks: (rank: number) => number;
  readonly outputChunks: (rank: number) => number;
  readonly post: (rank: number, chunk: number) => ChunkValue | null;
  /** Output chunks that share memory with input chunks. */
  readonly aliases?: readonly { readonly rank: number; readonly output: number; readonly input: number }[];
  readonly op?: PlanReduceOp;
}

/**
 * A collective of the user's own.
 * @throws InvalidArgumentError for sizes that are no counts, and for a condition that asks for an input chunk that no
 * rank has
 */
export function customCollective(name: string, numRanks: number, options: CustomOptions): PlanCollective {
  const base = make("custom", numRanks, 1, {
    inPlace: options.aliases !== undefined,
    ...(options.op === undefined ? {} : { op: options.op }),
  });
  const ranks = Array.from({ length: numRanks }, (_, rank) => rank);
  const sizes = (argument: string, count: (rank: number) => number) =>
    ranks.map((rank) => {
      const size = count(rank);
      if (!Number.isInteger(size) || size < 0)
        throw new InvalidArgumentError(`${argument}(${rank}) of ${name}`, size, "a whole number of chunks");
      return size;
    });
  const inputChunks = sizes("inputChunks", options.inputChunks);
  const outputChunks = sizes("outputChunks", options.outputChunks);
  const post = (rank: number, chunk: number): ChunkValue | null => {
    const value = options.post(rank, chunk);
    for (const from of value === null ? [] : value.kind === "copy" ? [value.from] : value.from) {
      const has = inputChunks[from.rank] ?? 0;
      if (!Number.isInteger(from.chunk) || from.chunk < 0 || from.chunk >= has) {
        throw new InvalidArgumentError(
          `post(${rank}, ${chunk}) of ${name}`,
          described(`input[${from.chunk}] of rank ${from.rank}`),
          has === 0 ? "a rank that has input" : `a chunk below ${has}, which rank ${from.rank} has as input`,
        );
      }
    }
    return value;
  };
  return Object.freeze({
    ...base,
    custom: {
      name,
      inputChunks,
      outputChunks,
      post: ranks.map((rank) => Array.from({ length: outputChunks[rank] ?? 0 }, (_, chunk) => post(rank, chunk))),
      ...(options.aliases === undefined ? {} : { aliases: options.aliases }),
    },
  });
}

/** The input chunks `refs` combined, as a value for `post`. */
export function reduced(refs: readonly { readonly rank: number; readonly chunk: number }[]): ChunkValue {
  return { kind: "reduce", from: refs };
}
/** A copy of an input chunk, as a value for `post`. */
export function copied(rank: number, chunk: number): ChunkValue {
  return { kind: "copy", from: { rank, chunk } };
}
