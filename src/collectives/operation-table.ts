/**
 * What each collective is, as a table: who gives, who receives, how large the buffers are, which in-place form exists.
 * `comm/` validates calls with it, the schedule verifier and the language take their buffers from it, the bench its
 * factors. Nothing here moves a byte.
 *
 * Sizes are told in *parts*: `part` is the `count` elements that an operation's count names, `parts` is one part per
 * rank. Variants ending in `_v` have parts of different sizes.
 */
import { InvalidArgumentError } from "../core/index.ts";

/** How long a buffer is: one part, one part per rank in rank order, or absent. */
export type Extent = "part" | "parts" | "none";
/** Which ranks have the buffer. `root`: the root alone, `peer`: one end of a send and its receive. */
export type Holder = "every" | "root" | "peer" | "none";
/**
 * Where a result may lie on top of the input. `same`: exactly the same memory. `own part of output` / `own part of
 * input`: the rank's own part of the larger buffer. `never`: any overlap is an error.
 */
export type InPlace = "same" | "own part of output" | "own part of input" | "never";

export interface OperationInfo {
  /** Name of the Communicator's method. */
  readonly method: string;
  readonly input: Extent;
  readonly inputAt: Holder;
  readonly output: Extent;
  readonly outputAt: Holder;
  readonly reduces: boolean;
  readonly rooted: boolean;
  /** Parts differ in size: the call carries counts. */
  readonly variable: boolean;
  readonly pointToPoint: boolean;
  readonly inPlace: InPlace;
}

const plain = { reduces: false, rooted: false, variable: false, pointToPoint: false } as const;
const everyPart = { input: "part", inputAt: "every", output: "part", outputAt: "every" } as const;

/** The operations that move data, by their name in files and on the command line. */
export const OPERATIONS = {
  all_reduce: { ...plain, ...everyPart, method: "allReduce", reduces: true, inPlace: "same" },
  broadcast: { ...plain, ...everyPart, method: "broadcast", inputAt: "root", rooted: true, inPlace: "same" },
  reduce: { ...plain, ...everyPart, method: "reduce", outputAt: "root", reduces: true, rooted: true, inPlace: "same" },
  all_gather: { ...plain, ...everyPart, method: "allGather", output: "parts", inPlace: "own part of output" },
  all_gather_v: {
    ...plain,
    ...everyPart,
    method: "allGatherV",
    output: "parts",
    variable: true,
    inPlace: "own part of output",
  },
  reduce_scatter: {
    ...plain,
    ...everyPart,
    method: "reduceScatter",
    input: "parts",
    reduces: true,
    inPlace: "own part of input",
  },
  reduce_scatter_v: {
    ...plain,
    ...everyPart,
    method: "reduceScatterV",
    input: "parts",
    reduces: true,
    variable: true,
    inPlace: "own part of input",
  },
  all_to_all: { ...plain, ...everyPart, method: "allToAll", input: "parts", output: "parts", inPlace: "never" },
  all_to_all_v: {
    ...plain,
    ...everyPart,
    method: "allToAllV",
    input: "parts",
    output: "parts",
    variable: true,
    inPlace: "never",
  },
  gather: {
    ...plain,
    ...everyPart,
    method: "gather",
    output: "parts",
    outputAt: "root",
    rooted: true,
    inPlace: "own part of output",
  },
  scatter: {
    ...plain,
    ...everyPart,
    method: "scatter",
    input: "parts",
    inputAt: "root",
    rooted: true,
    inPlace: "own part of input",
  },
  barrier: {
    ...plain,
    method: "barrier",
    input: "none",
    inputAt: "none",
    output: "none",
    outputAt: "none",
    inPlace: "never",
  },
  send: {
    ...plain,
    method: "send",
    input: "part",
    inputAt: "peer",
    output: "none",
    outputAt: "none",
    pointToPoint: true,
    inPlace: "never",
  },
  recv: {
    ...plain,
    method: "recv",
    input: "none",
    inputAt: "none",
    output: "part",
    outputAt: "peer",
    pointToPoint: true,
    inPlace: "never",
  },
} as const satisfies Record<string, OperationInfo>;

export type OperationName = keyof typeof OPERATIONS;
export const OPERATION_NAMES = Object.keys(OPERATIONS) as readonly OperationName[];
/** Operations that every rank of the group calls. */
export type CollectiveName = Exclude<OperationName, "send" | "recv">;
export const COLLECTIVE_NAMES = OPERATION_NAMES.filter(
  (name) => !OPERATIONS[name].pointToPoint,
) as readonly CollectiveName[];
export type ReducingName = {
  [K in OperationName]: (typeof OPERATIONS)[K]["reduces"] extends true ? K : never;
}[OperationName];

/** What an operation is, with the table's literal types widened. */
export function operationInfo(op: OperationName): OperationInfo {
  return OPERATIONS[op];
}

/** @returns the one of `names` that `text` means, however it is spelt: `all_reduce`, `allReduce`, `all-reduce` */
export function findOperation<N extends OperationName>(text: string, names: readonly N[]): N | undefined {
  const normal = text
    .replace(/([a-z])([A-Z])/g, "$1_$2")
    .replaceAll("-", "_")
    .toLowerCase();
  return names.find((name) => name === normal || name.replaceAll("_", "") === normal);
}

/**
 * Reads an operation's name, `all_reduce` or `allReduce` or `all-reduce`.
 * @throws InvalidArgumentError naming the operations
 * @example
 * parseOperation("all-reduce") // "all_reduce"
 */
export function parseOperation(text: string, argument = "operation"): OperationName {
  const found = findOperation(text, OPERATION_NAMES);
  if (found === undefined) throw new InvalidArgumentError(argument, text, `one of ${OPERATION_NAMES.join(", ")}`);
  return found;
}

/**
 * What algorithm bandwidth is multiplied by to get bus bandwidth: how many bytes the busiest link of a rank must carry
 * per byte of the size that nccl-tests prints, whatever the algorithm. Source: nccl-tests doc/PERFORMANCE.md.
 * @example
 * busFactor("all_reduce", 4) // 1.5
 */
export function busFactor(op: OperationName, numRanks: number): number {
  switch (op) {
    case "all_reduce":
      return (2 * (numRanks - 1)) / numRanks;
    case "all_gather":
    case "all_gather_v":
    case "reduce_scatter":
    case "reduce_scatter_v":
    case "all_to_all":
    case "all_to_all_v":
    case "gather":
    case "scatter":
      return (numRanks - 1) / numRanks;
    case "broadcast":
    case "reduce":
    case "send":
    case "recv":
      return 1;
    case "barrier":
      return 0;
  }
}

/**
 * The size that nccl-tests prints, in elements: the larger of a rank's two buffers. For all-gather, reduce-scatter,
 * all-to-all, gather and scatter that is one part per rank.
 * @param count elements of one part
 * @example
 * reportedCount("all_gather", 4, 10) // 40
 */
export function reportedCount(op: OperationName, numRanks: number, count: number): number {
  const info = operationInfo(op);
  return info.input === "parts" || info.output === "parts"
    ? numRanks * count
    : info.input === "none" && info.output === "none"
      ? 0
      : count;
}

/** Elements of one part for a printed size of `reported` elements: the inverse of `reportedCount`, rounded down. */
export function partCount(op: OperationName, numRanks: number, reported: number): number {
  const info = operationInfo(op);
  return info.input === "parts" || info.output === "parts" ? Math.floor(reported / numRanks) : reported;
}
