/**
 * Programs. `program` runs the callback once and keeps what it recorded; the compiler makes plans of that, as often as
 * it is asked. Nothing is global: any number of programs may be built, also within each other.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { type AutoSyncMode, compile, type Program, Recorder } from "../compiler/index.ts";
import {
  type ChannelKind,
  collectiveChunks,
  DEFAULT_PLAN_OPTIONS,
  type ExecutionPlan,
  MAX_INSTANCES,
  type PlanCollective,
  type PlanOptions,
  type SourceLocation,
} from "../plan/index.ts";
import { Builder } from "./builder.ts";
import { CALLS } from "./call-signatures.ts";
import { callSite, MAX_LOCATED } from "./call-site.ts";
import { needCollective } from "./program-collectives.ts";

/**
 * Options of a program; all but name and collective have MSCCL++'s defaults. A name that is written out is also the mark
 * on the types of the program's values: those of another program are refused.
 */
export interface ProgramOptions<Name extends string = string> {
  readonly name: Name;
  readonly collective: PlanCollective;
  readonly instances?: number;
  readonly protocol?: PlanOptions["protocol"];
  /** Join neighbouring operations. */
  readonly fusion?: boolean;
  /**
   * `strand` (default): block-wide synchronisation by dependences. `full`: also between strands and ranks, by the order
   * in which the program is written. `none`: only what the program says.
   */
  readonly autoSync?: AutoSyncMode;
  readonly reuseResources?: boolean;
  readonly numThreadsPerBlock?: number;
  readonly useDoubleScratchBuffer?: boolean;
  readonly bufferAlignment?: number;
  readonly minMessageSizeBytes?: number | bigint;
  readonly maxMessageSizeBytes?: number | bigint;
  /** How `Builder.copy` reaches another rank; memory by default. */
  readonly links?: (from: number, to: number) => ChannelKind;
  /** Free words for whoever chooses among programs. Not part of the plan. */
  readonly tags?: Readonly<Record<string, string | number>>;
  readonly ranksPerNode?: number;
}

/** Type of a program file's default export, and of every entry of the library. */
export type ProgramFactory<Args = Record<string, never>> = (args: Args) => Program;

const OPTION_NAMES: readonly string[] = [
  "name",
  "collective",
  "instances",
  "protocol",
  "fusion",
  "autoSync",
  "reuseResources",
  "numThreadsPerBlock",
  "useDoubleScratchBuffer",
  "bufferAlignment",
  "minMessageSizeBytes",
  "maxMessageSizeBytes",
  "links",
  "tags",
  "ranksPerNode",
] satisfies readonly (keyof ProgramOptions)[];
const PROTOCOLS: readonly PlanOptions["protocol"][] = ["Simple", "LL"];
const AUTO_SYNC: readonly AutoSyncMode[] = ["none", "strand", "full"];

function sizeOption(argument: string, value: number | bigint): bigint {
  const big = typeof value === "bigint" ? value : Number.isSafeInteger(value) ? BigInt(value) : -1n;
  if (big < 0n || big >= 2n ** 64n)
    throw new InvalidArgumentError(argument, value, "a number of bytes from 0 to 2^64 - 1");
  return big;
}
function countOption(argument: string, value: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  const expected = most === Number.MAX_SAFE_INTEGER ? "an integer, 1 or more" : `an integer from 1 to ${most}`;
  throw new InvalidArgumentError(argument, value, expected);
}

/**
 * Builds a program: runs `build` once and records what it calls.
 * @throws InvalidArgumentError at the wrong call, with its place in the file
 * @example
 * import { allGather, compile, program } from "chorale/language";
 *
 * const direct = program({ name: "direct all-gather", collective: allGather(2), autoSync: "full" }, (p) => {
 *   for (const from of p.ranks) for (const to of p.ranks) p.copy(to.output.at(from.id), from.input.at(0));
 * });
 * compile(direct).ranks.length; // 2
 */
export function program<const Name extends string>(
  options: ProgramOptions<Name>,
  build: (p: Builder<Name>) => void,
): Program {
  if (typeof options !== "object" || options === null)
    throw new InvalidArgumentError("options", options, `an object, as in ${CALLS.program}`);
  if (typeof build !== "function")
    throw new InvalidArgumentError("callback", build, `a function, as in ${CALLS.program}`);
  const unknown = Object.keys(options).find((key) => !OPTION_NAMES.includes(key));
  if (unknown !== undefined)
    throw new InvalidArgumentError(
      `option ${unknown}`,
      options[unknown as "name"],
      `one of ${OPTION_NAMES.join(", ")}`,
    );
  const { name, collective, links = () => "memory" as const, autoSync = "strand" } = options;
  if (typeof name !== "string") throw new InvalidArgumentError("name", name, "a string");
  if (options.protocol !== undefined && !PROTOCOLS.includes(options.protocol))
    throw new InvalidArgumentError("protocol", options.protocol, PROTOCOLS.join(", "));
  needCollective(collective);
  if (!AUTO_SYNC.includes(autoSync)) throw new InvalidArgumentError("autoSync", autoSync, AUTO_SYNC.join(", "));
  const planOptions: PlanOptions = {
    protocol: options.protocol ?? DEFAULT_PLAN_OPTIONS.protocol,
    instances: countOption("instances", options.instances ?? 1, MAX_INSTANCES),
    reuseResources: options.reuseResources ?? false,
    numThreadsPerBlock: countOption(
      "numThreadsPerBlock",
      options.numThreadsPerBlock ?? DEFAULT_PLAN_OPTIONS.numThreadsPerBlock,
    ),
    useDoubleScratchBuffer: options.useDoubleScratchBuffer ?? false,
    bufferAlignment: countOption("bufferAlignment", options.bufferAlignment ?? DEFAULT_PLAN_OPTIONS.bufferAlignment),
    minMessageSizeBytes: sizeOption(
      "minMessageSizeBytes",
      options.minMessageSizeBytes ?? DEFAULT_PLAN_OPTIONS.minMessageSizeBytes,
    ),
    maxMessageSizeBytes: sizeOption(
      "maxMessageSizeBytes",
      options.maxMessageSizeBytes ?? DEFAULT_PLAN_OPTIONS.maxMessageSizeBytes,
    ),
  };
  const { minMessageSizeBytes, maxMessageSizeBytes } = planOptions;
  if (minMessageSizeBytes > maxMessageSizeBytes)
    throw new InvalidArgumentError("maxMessageSizeBytes", maxMessageSizeBytes, `${minMessageSizeBytes} or more`);
  const chunks = collectiveChunks(collective) ?? [];
  const located: { recorder?: Recorder } = {};
  const locate = (failing: boolean): SourceLocation | undefined =>
    failing || (located.recorder?.numOps ?? 0) < MAX_LOCATED ? callSite() : undefined;
  const recorder = new Recorder({
    numRanks: collective.numRanks,
    instances: planOptions.instances,
    inputChunks: (rank) => chunks[rank]?.input ?? 0,
    outputChunks: (rank) => chunks[rank]?.output ?? 0,
    strict: true,
    locate,
  });
  located.recorder = recorder;
  // An average is a sum that whoever runs the plan divides once, at the end.
  const op = collective.reduceOp ?? "sum";
  // A function that returns nothing may also be async: what it called after its first await would be lost.
  const returned: unknown = build(new Builder<Name>(recorder, op === "avg" ? "sum" : op, links, collective));
  if (returned instanceof Promise) {
    returned.catch(() => undefined);
    throw new InvalidArgumentError(
      "what the callback of program returns",
      described("a promise"),
      "a callback that is not async",
    );
  }
  recorder.close();
  let plan: ExecutionPlan | undefined;
  const made: Program = Object.freeze({
    name,
    collective,
    options: Object.freeze(planOptions),
    fusion: options.fusion ?? true,
    autoSync,
    tags: options.tags ?? {},
    ranksPerNode: options.ranksPerNode ?? collective.numRanks,
    recorder,
    plan: () => {
      plan ??= compile(made);
      return plan;
    },
  });
  return made;
}
