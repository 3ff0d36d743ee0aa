/**
 * From a caller's arguments to one checked call: element types, lengths, roots, aliasing. Shared by all backends, so
 * that all refuse the same things with the same words, before anything moves.
 */
import {
  type Call,
  checkCall,
  checkPlacement,
  checkTimeout,
  type OperationName,
  operationInfo,
  outputCount,
  ownOffset,
  type Region,
} from "../../collectives/index.ts";
import {
  AbortedError,
  ClosedError,
  type DType,
  dtypeOf,
  holds,
  InvalidArgumentError,
  type ReduceOp,
  show,
  sizeOf,
  Tensor,
  type TypedArray,
  tensor,
  UnsupportedError,
} from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { CallOptions, Capabilities, Data, OutputOptions } from "./contract.ts";

/** A caller's buffer, whatever it came as. */
export interface Operand {
  readonly dtype: DType;
  readonly count: number;
  readonly tensor: Tensor | undefined;
  readonly array: TypedArray | undefined;
  readonly region: Region;
}

/**
 * Reads an argument as a buffer.
 * @throws InvalidArgumentError for what is neither tensor nor typed array, and for arrays that need a dtype
 * @throws ClosedError for a tensor that was freed
 */
export function operand(data: Data, dtype: DType | undefined, argument: string): Operand {
  if (data instanceof Tensor) {
    if (dtype !== undefined && dtype !== data.dtype) {
      throw new InvalidArgumentError(
        `${argument}'s dtype`,
        data.dtype,
        `the dtype option, ${dtype}, or no such option`,
      );
    }
    if (data.storage.closed !== undefined) throw new ClosedError("tensor", data.storage.closed);
    const region = {
      storage: data.storage.buffer ?? data.storage,
      byteOffset: data.byteOffset,
      sizeBytes: data.sizeBytes,
    };
    return { dtype: data.dtype, count: data.size, tensor: data, array: undefined, region };
  }
  if (!ArrayBuffer.isView(data) || data instanceof DataView) {
    throw new InvalidArgumentError(argument, data, "a tensor or a typed array");
  }
  const resolved = dtype ?? dtypeOf(data);
  if (resolved === undefined || !holds(resolved, data)) {
    throw new InvalidArgumentError(
      argument,
      described(`a ${data.constructor.name}`),
      resolved === undefined
        ? "an array whose class tells its element type, or the dtype option (f16 or bf16)"
        : `an array that holds ${resolved}, as the dtype option says`,
    );
  }
  checkLasting(data, argument);
  const region = { storage: data.buffer, byteOffset: data.byteOffset, sizeBytes: data.byteLength };
  return { dtype: resolved, count: data.length, tensor: undefined, array: data, region };
}

/** Refuses memory that is gone, or that its owner may make smaller while a call is under way. @throws InvalidArgumentError */
function checkLasting(data: TypedArray, argument: string): void {
  const buffer: ArrayBufferLike & { readonly resizable?: boolean } = data.buffer;
  if (buffer.resizable === true)
    throw new InvalidArgumentError(argument, described("a view of a resizable buffer"), "memory of a fixed size");
  if (data.length > 0) return;
  try {
    new Uint8Array(buffer);
  } catch (cause) {
    const detached = described("an array whose buffer was transferred");
    throw new InvalidArgumentError(argument, detached, "an array that has its memory", { cause });
  }
}

/** What a caller passes, before it is checked. */
export interface CallArguments {
  readonly op: OperationName;
  readonly numRanks: number;
  readonly rank: number;
  readonly data: Data;
  readonly options: OutputOptions;
  readonly root?: number;
  readonly peer?: number;
  readonly redop?: ReduceOp;
  readonly counts?: readonly number[];
  readonly sendCounts?: readonly number[];
  readonly recvCounts?: readonly number[];
}

export interface CheckedCall {
  readonly call: Call;
  readonly input: Operand;
  /** What the caller passed for the result; absent when it passed none. */
  readonly output: Operand | undefined;
  /** Elements of this rank's result; 0 where it has none. */
  readonly outputCount: number;
}

/**
 * Checks everything one rank can know about its call.
 * @throws InvalidArgumentError, UnsupportedError, ClosedError, AbortedError (a signal that was already raised)
 */
export function checkArguments(args: CallArguments): CheckedCall {
  const { op, numRanks, rank, options } = args;
  checkOptions(options);
  const input = operand(args.data, options.dtype, op === "recv" ? "output" : "input");
  const output =
    options.output === undefined ? undefined : operand(options.output, outputDType(options, input), "output");
  const call: Call = {
    op,
    numRanks,
    rank,
    dtype: input.dtype,
    inputCount: input.count,
    outputCount: output?.count,
    outputDtype: output?.dtype,
    root: args.root,
    peer: args.peer,
    redop: args.redop,
    counts: args.counts,
    sendCounts: args.sendCounts,
    recvCounts: args.recvCounts,
  };
  checkCall(call);
  const info = operationInfo(op);
  const mine = outputCount(call);
  const isRoot = rank === (args.root ?? 0);
  if (output !== undefined && (info.outputAt !== "root" || isRoot)) {
    const part = info.input === "parts" && (info.inputAt === "every" || isRoot) ? input.count / numRanks : input.count;
    const own = ownOffset(rank, part, args.counts) * sizeOf(input.dtype);
    checkPlacement(op, input.region, output.region, own);
  }
  return { call, input, output, outputCount: mine };
}

/** What one rank does with its buffers in a checked call, and where its result goes. */
export interface Roles {
  /** This rank's data is read. */
  readonly reads: boolean;
  /** This rank has a result. */
  readonly writes: boolean;
  /** A result without an output replaces the input; otherwise it goes to fresh memory. */
  readonly inPlace: boolean;
}

/** Says what this rank does in `call`. */
export function rolesOf({ op, rank, root = 0 }: Pick<Call, "op" | "rank" | "root">): Roles {
  const { inputAt, outputAt, inPlace } = operationInfo(op);
  const isRoot = rank === root;
  const reads = op !== "recv" && (inputAt !== "root" || isRoot);
  const writes = op !== "send" && (outputAt !== "root" || isRoot);
  return { reads, writes, inPlace: inPlace === "same" || !reads };
}

/** The tensor that a caller gave, or one over the array that it gave. */
export function asTensor(given: Operand): Tensor {
  return given.tensor ?? (tensor(given.dtype, [given.count], given.array as never) as Tensor);
}

/**
 * Refuses what a backend cannot do here.
 * @throws UnsupportedError for an operation, dtype or operator that it does not have, and for memory that it cannot reach
 */
export function checkSupported(has: Capabilities, { call, input, output }: CheckedCall): void {
  const { op, dtype, redop } = call;
  const where = has.engineVersion === undefined ? `the ${has.backend} backend` : `${has.backend} ${has.engineVersion}`;
  if (!has.operations.includes(op)) {
    throw new UnsupportedError(`${op} on ${where}`, `it has ${has.operations.join(", ")}`);
  }
  if (!has.dtypes.includes(dtype)) {
    throw new UnsupportedError(`${dtype} on ${where} here`, `use one of ${has.dtypes.join(", ")}`);
  }
  if (redop !== undefined) {
    const legal = has.reduceOps[dtype] ?? [];
    const name = typeof redop === "string" ? redop : redop.kind;
    if (!legal.includes(name)) {
      throw new UnsupportedError(`${name} of ${dtype} on ${where}`, `use one of ${legal.join(", ")}`);
    }
  }
  for (const given of [input, output]) {
    const kind = given?.tensor?.storage.kind;
    if (given === undefined) continue;
    if (kind === "device" && !has.deviceTensors) {
      throw new UnsupportedError(`a device tensor on ${where}`, "copy it to the host first");
    }
    if (kind !== "device" && !has.hostTensors) {
      throw new UnsupportedError(`host memory on ${where}`, "use a tensor of the world");
    }
  }
}

/** @throws ClosedError for a tensor of another generation than the group's */
export function checkGeneration(
  { input, output }: { readonly input: Operand | undefined; readonly output: Operand | undefined },
  generation: number,
): void {
  for (const given of [input, output]) {
    const from = given?.tensor?.storage.generation ?? 0;
    if (from === 0 || from === generation) continue;
    throw new ClosedError("tensor", `belongs to generation ${from}; this world is generation ${generation}`);
  }
}

/** Typed arrays of an ambiguous class take the input's element type. */
function outputDType(options: OutputOptions, input: Operand): DType | undefined {
  if (options.output instanceof Tensor) return undefined;
  return options.dtype ?? (holds(input.dtype, options.output) ? input.dtype : undefined);
}

/**
 * A caller's options as they are, once they are known to be an object: for what reads one of them before `checkOptions`
 * looks at all.
 * @throws InvalidArgumentError
 */
export function optionsOf<T extends object>(options: T): T {
  if (typeof options !== "object" || options === null) {
    throw new InvalidArgumentError("options", options, "an object, such as { timeoutMs: 1000 }");
  }
  return options;
}

/**
 * Refuses what no call can have, before it takes its number: a signal that cannot be listened to would stop it half-way.
 * @throws InvalidArgumentError for invalid options, an invalid deadline or signal, AbortedError for a signal that was
 * raised before the call
 */
export function checkOptions(options: CallOptions): void {
  const { timeoutMs, signal } = optionsOf(options);
  checkTimeout(timeoutMs);
  if (signal === undefined) return;
  if (!(signal instanceof AbortSignal)) throw new InvalidArgumentError("signal", signal, "an AbortSignal");
  if (signal.aborted) throw new AbortedError(abortReason(signal));
}

/** Checks the options of a `wait`. @throws InvalidArgumentError */
export function checkWait(options: { readonly timeoutMs?: number }): void {
  checkTimeout(optionsOf(options).timeoutMs);
}

/** @throws InvalidArgumentError for what no group can be called */
export function checkGroupName(name: string): void {
  if (typeof name !== "string" || name === "") throw new InvalidArgumentError("name", name, "a text, not empty");
}

/**
 * Checks what a backend opens a group from.
 * @param rank the caller's rank of the world
 * @throws InvalidArgumentError
 */
export function checkGroup(name: string, ranks: readonly number[], worldSize: number, rank: number): void {
  checkGroupName(name);
  const isRank = (r: number) => Number.isInteger(r) && r >= 0 && r < worldSize;
  const isGroup = Array.isArray(ranks) && ranks.every(isRank) && new Set(ranks).size === ranks.length;
  if (isGroup && ranks.includes(rank)) return;
  const accepted = `distinct ranks of the world, 0 to ${worldSize - 1}, with the caller's own (${rank}) among them`;
  throw new InvalidArgumentError("ranks", ranks, accepted);
}

/** @throws InvalidArgumentError for a number that is not a rank of the world */
export function checkWorldRank(rank: number, worldSize: number): void {
  if (Number.isInteger(rank) && rank >= 0 && rank < worldSize) return;
  throw new InvalidArgumentError("rank", rank, `a rank of the world, 0 to ${worldSize - 1}`);
}

export function abortReason(signal: AbortSignal): string {
  return signal.reason instanceof Error ? signal.reason.message : show(signal.reason);
}
