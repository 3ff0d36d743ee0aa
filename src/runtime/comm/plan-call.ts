/**
 * From the arguments of `Communicator.run` to one checked call: a plan of the caller's own, its buffers and its operator.
 * Refuses plans that nobody has proved, before anything moves.
 */
import {
  type BufferPlan,
  type ExecutionPlan,
  hashPlan,
  partBytesOf,
  placeOf,
  proofOf,
  type RankPlan,
  shapeOf,
} from "../../authoring/plan/index.ts";
import { checkReduceOp, overlaps } from "../../collectives/index.ts";
import { type DType, holds, InvalidArgumentError, PlanError, type ReduceOp, sizeOf, Tensor } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { checkOptions, type Operand, operand } from "./call.ts";
import type { Runnable, RunOptions } from "./contract.ts";

/** A run of a plan, with every argument checked. */
export interface PlanCall {
  readonly kind: "plan";
  readonly plan: ExecutionPlan;
  /** 16 hexadecimal digits: part of the fingerprint. */
  readonly hash: string;
  readonly dtype: DType;
  readonly op: ReduceOp;
  /** Bytes of a part of the collective's buffers, the same on all ranks: see `partBytesOf`. */
  readonly partBytes: number;
  readonly input: Operand | undefined;
  readonly output: Operand | undefined;
  /** Elements that the plan uses; where in place, of the smaller buffer within the larger one. */
  readonly inputCount: number;
  readonly outputCount: number;
  /** In place: which buffer the other one lies in, and from which element on. */
  readonly shared: { readonly in: "input" | "output"; readonly at: number } | undefined;
  /** The ranks need not meet when one of them is done. */
  readonly endsAlone: boolean;
  /** What is known of the plan, in words: for reports of a run that hangs. */
  readonly opinion: string;
  /** Absent: the driver's own deadline. */
  readonly timeoutMs: number | undefined;
}

const hashes = new WeakMap<ExecutionPlan, string>();

function hashOf(plan: ExecutionPlan): string {
  const known = Object.isFrozen(plan) ? hashes.get(plan) : undefined;
  if (known !== undefined) return known;
  const hash = hashPlan(plan);
  hashes.set(plan, hash);
  return hash;
}

/** @throws InvalidArgumentError for what is neither a plan nor a program, PlanError for a program that is wrong */
function planOf(given: Runnable, force: boolean): ExecutionPlan {
  if (typeof given !== "object" || given === null) {
    throw new InvalidArgumentError("plan", given, "a program, or a plan that compile() made");
  }
  const plan = "plan" in given && typeof given.plan === "function" ? given.plan() : (given as ExecutionPlan);
  if (!Array.isArray(plan.ranks) || typeof plan.collective !== "object") {
    throw new InvalidArgumentError("plan", given, "a program, or a plan that compile() made");
  }
  const proof = proofOf(plan);
  if (proof?.ok === true || force) return plan;
  const name = plan.name ?? "the plan";
  if (proof === undefined) {
    const accepted =
      "a program, a plan of compile() or one that provePlan() passed, or force: true to run it all the same";
    throw new InvalidArgumentError("plan", described(`${name}, which was not verified`), accepted);
  }
  throw new PlanError(`${name}, which force: true would run all the same`, [], proof.opinion);
}

/** Checks everything one rank can know about a run of a plan. @throws InvalidArgumentError, PlanError, UnsupportedError */
export function checkPlanCall(
  given: Runnable,
  options: RunOptions,
  place: { readonly rank: number; readonly numRanks: number },
): Omit<PlanCall, "timeoutMs"> {
  checkOptions(options);
  const { rank, numRanks } = place;
  const { algorithm } = options as { readonly algorithm?: unknown };
  if (algorithm !== undefined) {
    throw new InvalidArgumentError("algorithm", algorithm, "nothing: run() takes the plan itself");
  }
  if (options.force !== undefined && typeof options.force !== "boolean") {
    throw new InvalidArgumentError("force", options.force, "true or false");
  }
  const plan = planOf(given, options.force === true);
  if (plan.ranks.length !== numRanks) {
    throw new InvalidArgumentError(
      "plan",
      described(`for ${plan.ranks.length} ranks`),
      `one for the group's ${numRanks} ranks`,
    );
  }
  const input = options.input === undefined ? undefined : operand(options.input, options.dtype, "input");
  const output =
    options.output === undefined ? undefined : operand(options.output, outputDType(options, input), "output");
  const dtype = input?.dtype ?? output?.dtype ?? options.dtype ?? "u8";
  if (output !== undefined && output.dtype !== dtype) {
    throw new InvalidArgumentError("output's dtype", output.dtype, `${dtype}, the input's`);
  }
  const op = operatorOf(plan, options.op, dtype);
  const buffers = buffersOf(plan, rank, input, output);
  const size = sizeOf(dtype);
  const named = input === undefined ? "output" : "input";
  const partBytes = partBytesOf(plan, rank, buffers.inputCount * size, buffers.outputCount * size);
  if (partBytes % size !== 0) {
    throw new InvalidArgumentError(
      named,
      described(`cut into parts of ${partBytes} bytes`),
      `whole elements of ${dtype}, ${size} bytes`,
    );
  }
  const { minMessageSizeBytes: least, maxMessageSizeBytes: most } = plan.options;
  const message = Math.max(buffers.inputCount, buffers.outputCount) * size;
  // Plans that only synchronise have no message.
  const isEmpty = plan.ranks[rank]?.input.chunks === 0 && plan.ranks[rank]?.output.chunks === 0;
  if (!isEmpty && (message < least || message > most)) {
    throw new InvalidArgumentError(
      named,
      described(`${message} bytes`),
      `${least} to ${most} bytes, which the plan is for`,
    );
  }
  const proof = proofOf(plan);
  return {
    kind: "plan",
    plan,
    hash: hashOf(plan),
    dtype,
    op,
    partBytes,
    input,
    output,
    ...buffers,
    endsAlone: proof?.ok === true && proof.endsAlone(),
    opinion:
      proof === undefined
        ? "which was not verified"
        : proof.ok
          ? "which is proved"
          : `which is wrong (${proof.opinion})`,
  };
}

/** Typed arrays of an ambiguous class take the input's element type. */
function outputDType(options: RunOptions, input: Operand | undefined): DType | undefined {
  if (options.output instanceof Tensor || options.output === undefined) return undefined;
  return options.dtype ?? (input !== undefined && holds(input.dtype, options.output) ? input.dtype : undefined);
}

/** Operators that do not mind an operand that comes twice. */
const FORGIVING: readonly ReduceOp[] = ["min", "max", "band", "bor"];

/** The operator that takes the place of the plan's. @throws InvalidArgumentError, UnsupportedError */
function operatorOf(plan: ExecutionPlan, wanted: ReduceOp | undefined, dtype: DType): ReduceOp {
  const made = plan.collective.reduceOp ?? "sum";
  const op = wanted ?? made;
  checkReduceOp(op, dtype);
  // Such a plan may combine an operand twice, which its own operator does not mind.
  if (FORGIVING.includes(made) && !FORGIVING.includes(op)) {
    throw new InvalidArgumentError("op", op, `${made}, for which the plan is right, or one of ${FORGIVING.join(", ")}`);
  }
  return op;
}

type Buffers = Pick<PlanCall, "inputCount" | "outputCount" | "shared">;

/** How many elements the plan uses of what was given, and how the two lie. @throws InvalidArgumentError */
function buffersOf(
  plan: ExecutionPlan,
  rank: number,
  input: Operand | undefined,
  output: Operand | undefined,
): Buffers {
  const own = plan.ranks[rank] as RankPlan;
  const { exact } = shapeOf(plan);
  const partsOf = (buffer: BufferPlan) => (exact ? buffer.chunks : buffer.segments);
  const place = plan.collective.inPlace ? sharedPlace(plan, own) : undefined;
  const given = { input, output };
  for (const name of ["input", "output"] as const) {
    const uses = own[name].chunks > 0;
    const isInner = place !== undefined && place.in !== name;
    if (!uses && (given[name]?.count ?? 0) > 0 && !isInner) {
      throw new InvalidArgumentError(
        name,
        described(`${given[name]?.count} elements`),
        `none: the plan uses no ${name} of rank ${rank}`,
      );
    }
    // An output is made where the input tells its size.
    const isMade = name === "output" && own.input.chunks > 0;
    if (uses && given[name] === undefined && !isInner && !isMade) {
      throw new InvalidArgumentError(
        name,
        undefined,
        `a tensor or a typed array: the plan uses the ${name} of rank ${rank}`,
      );
    }
  }
  if (place === undefined) {
    // The plan is proved for buffers that are apart: what it writes would change what it, or a peer, has yet to read.
    if (input !== undefined && output !== undefined && overlaps(input.region, output.region)) {
      const accepted = "memory apart from the input: the plan is not in place";
      throw new InvalidArgumentError("output", described("memory that overlaps the input"), accepted);
    }
    const inputCount = input?.count ?? 0;
    const made = own.output.chunks === 0 ? 0 : (inputCount / partsOf(own.input)) * partsOf(own.output);
    return { inputCount, outputCount: output?.count ?? made, shared: undefined };
  }
  const inner = place.in === "input" ? "output" : "input";
  const whole = given[place.in];
  if (whole === undefined) throw new InvalidArgumentError(place.in, undefined, `a tensor or a typed array, in place`);
  const count = whole.count;
  const part = count / partsOf(own[place.in]);
  const chunksPerPart = exact ? 1 : own[place.in].chunks / own[place.in].segments;
  const at = (place.chunk / chunksPerPart) * part;
  const innerCount = part * partsOf(own[inner]);
  const other = given[inner];
  if (other !== undefined) {
    const begin = whole.region.byteOffset + at * sizeOf(whole.dtype);
    const lies = other.region.storage === whole.region.storage && other.region.byteOffset === begin;
    if (!lies || other.count !== innerCount) {
      const accepted = `elements ${at} to ${at + innerCount} of the ${place.in}, or none: the plan is in place`;
      throw new InvalidArgumentError(inner, described("another buffer"), accepted);
    }
  }
  const shared = { in: place.in, at };
  return place.in === "input"
    ? { inputCount: count, outputCount: innerCount, shared }
    : { inputCount: innerCount, outputCount: count, shared };
}

/** Which buffer the other one lies in, and at which chunk; undefined where they are apart on this rank. */
function sharedPlace(plan: ExecutionPlan, own: RankPlan): { in: "input" | "output"; chunk: number } | undefined {
  if (plan.collective.operation === "custom") {
    if ((plan.collective.custom?.aliases ?? []).length === 0) return undefined;
    throw new InvalidArgumentError(
      "plan",
      described("a custom collective in place"),
      "one whose input and output are apart",
    );
  }
  if (own.input.chunks > 0) {
    const place = placeOf(plan, own.rank, "input", 0);
    if (place.buffer === "output") return { in: "output", chunk: place.index };
  }
  if (own.output.chunks > 0) {
    const place = placeOf(plan, own.rank, "output", 0);
    if (place.buffer === "input") return { in: "input", chunk: place.index };
  }
  return undefined;
}
