/** From a checked call to addresses on the device: what a collective reads, what it writes, and what the caller gets. */
import { agreedCount, type OperationName, reportedCount } from "../../../collectives/index.ts";
import {
  type DType,
  InvalidArgumentError,
  invariant,
  type NamedReduceOp,
  type ReduceOp,
  sizeOf,
  Tensor,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { NCCL_REDOP } from "../../../foreign/nccl/index.ts";
import {
  asTensor,
  type CallEpilogue,
  type CheckedCall,
  type Data,
  type Operand,
  type OutputOptions,
  rolesOf,
  type WireOp,
} from "../../comm/index.ts";
import type { CudaStream, DeviceStorage, RankDevice } from "../../device/index.ts";
import { usableAddress } from "../../device/internal.ts";
import { type Arrival, type CallKind, type CallSequence, type Extras, IN_PLACE } from "../../progress/index.ts";
import type { GroupEpilogues } from "./epilogue-slot.ts";
import type { CallPlans, CallStep, NcclCall, Serving } from "./nccl-calls.ts";
import { type EntryParts, partsOfCall } from "./nccl-entry.ts";
import { freshOperand, type Staged, stage } from "./staging.ts";

/** Operation, element type and operator in the first word of a fingerprint. */
const CALL_MASK = 0x3fff;

/**
 * Kind of a call: operation, element type, operator, power of two of the size, and the other end where there is one.
 * NCCL chooses its algorithm, which it connects on first use, by the size in bytes and by what its kernels have for
 * type and operator (NVLS has fewer of them).
 * @param call first word of the fingerprint
 * @param part elements of a part
 */
export function kindOf(call: number, part: number, peer = -1): CallKind {
  const log2 = part < 2 ** 32 ? 32 - Math.clz32(part) : 64 - Math.clz32(part / 2 ** 32);
  const kind = (call & CALL_MASK) * 64 + log2;
  return peer < 0 ? kind : kind + (peer + 1) * 2 ** 20;
}

const NONE: readonly never[] = Object.freeze([]);

/** One call of a batch, or the only call of an operation. */
export interface Prepared {
  readonly op: WireOp;
  readonly call: NcclCall;
  readonly arrival: Arrival;
  /** What must fit between pairs of ranks, beside what all ranks agree on. */
  readonly pairs?: readonly Arrival[];
  readonly kind: CallKind;
  /** Of a PreMulSum, whose operator needs the open communicator. */
  readonly scalar: number | bigint | undefined;
  readonly staged: readonly Staged[];
  /** What is to be opened beside it, and the kind of its epilogue. */
  readonly otherKinds?: readonly CallKind[] | undefined;
  /** Memory of device tensors that it reads and writes. */
  readonly source: DeviceStorage | undefined;
  readonly target: DeviceStorage | undefined;
  /** Of device tensors of its epilogue. */
  readonly others?: readonly DeviceStorage[];
  readonly result: Tensor | undefined;
  readonly sizeBytes: number;
}

/** All that has to be ready for a call. */
export const kindsOf = ({ kind, otherKinds }: Prepared): readonly CallKind[] =>
  otherKinds === undefined ? [kind] : [kind, ...otherKinds];

/** The kinds of a call that a plan serves, or that NCCL does, which has a kind of its own for it. */
function kindsBy(plan: Serving | undefined, ofNccl: CallKind): readonly CallKind[] {
  if (plan === undefined || plan.isRefused) return [ofNccl];
  return plan.leavesToNccl === true ? [ofNccl, ...plan.kinds] : plan.kinds;
}

export interface PrepareContext {
  readonly at: RankDevice;
  readonly stream: CudaStream;
  readonly sequence: CallSequence;
  readonly rank: number;
  readonly size: number;
  /** Whether the pool's memory is registered with NCCL (registrations.ts). */
  readonly registers: boolean;
  /** What NCCL has here. */
  readonly dtypes: ReadonlySet<DType>;
  /** What may serve calls in NCCL's place; nothing does in batches, which NCCL runs as one. */
  readonly plans: CallPlans | undefined;
  /** Where epilogues are. */
  readonly epilogues: GroupEpilogues;
  /** The call that was prepared quickly last. */
  readonly quick: LastCall;
}

/**
 * What calls of one operation, element type, size and operator have in common: programs make many alike in a row. One object, which
 * each call unlike the last one is written into: sizes may come by chance.
 */
export class LastCall {
  #op: WireOp | undefined;
  #dtype: DType | undefined;
  #part = 0;
  #redop: NamedReduceOp | undefined;
  #mark = 0;
  #arrival: Arrival | undefined;
  plan: Serving | undefined;
  kinds: readonly CallKind[] = NONE;

  /** The next call, if it is like the last one. @param mark as `CallSequence.plain` has it */
  again(
    { sequence, plans }: PrepareContext,
    op: WireOp,
    dtype: DType,
    part: number,
    redop: NamedReduceOp | undefined,
    mark: number,
  ): Arrival | undefined {
    const isAlike =
      this.#op === op &&
      this.#part === part &&
      this.#dtype === dtype &&
      this.#redop === redop &&
      this.#mark === mark &&
      // Calls of NCCL that a table chose are counted where that is asked.
      (plans === undefined || this.plan?.isRefused === false);
    return isAlike && this.#arrival !== undefined ? sequence.again(this.#arrival) : undefined;
  }

  /** The next call, as the first of its form. */
  first(
    { sequence, plans }: PrepareContext,
    op: WireOp,
    dtype: DType,
    part: number,
    redop: NamedReduceOp | undefined,
    mark: number,
  ): Arrival {
    const plan = plans?.serving({ op, dtype, part, redop, root: 0 });
    const arrival = sequence.plain(op, dtype, part, redop, mark);
    this.#op = op;
    this.#dtype = dtype;
    this.#part = part;
    this.#redop = redop;
    this.#mark = mark;
    this.#arrival = arrival;
    this.plan = plan;
    const kinds = kindsBy(plan, kindOf(arrival.print.call, part));
    // Calls that are alike share one list.
    const isSame = kinds.length === this.kinds.length && kinds.every((kind, i) => kind === this.kinds[i]);
    if (!isSame) this.kinds = kinds;
    return arrival;
  }
}

/** Brings buffers to the device and resolves addresses; nothing is published or issued yet. @throws OutOfMemoryError */
export function prepareCall(
  context: PrepareContext,
  op: OperationName,
  checked: CheckedCall,
  extras: Extras & { readonly epilogue?: CallEpilogue | undefined },
): Prepared {
  const { at, stream, rank, size, plans } = context;
  const { epilogue } = extras;
  const { call, input } = checked;
  const root = extras.root ?? 0;
  const { reads, writes } = rolesOf(call);
  const staged: Staged[] = [];
  const bring = (operand: Operand, use: { reads: boolean; writes: boolean }) => {
    const one = stage(operand, at, stream, use);
    staged.push(one);
    return one;
  };
  try {
    const target = writes ? targetOf(context, checked) : undefined;
    const same = target !== undefined && isSameMemory(target, input);
    const from = same
      ? bring(target, { reads, writes: true })
      : reads
        ? bring(input, { reads, writes: false })
        : undefined;
    const to = target === undefined ? undefined : same ? from : bring(target, { reads: false, writes: true });
    for (const operand of [from, to]) refuseUnregistered(context, operand?.storage);
    const part = agreedCount(call);
    const { redop, algorithm } = extras;
    const fused = epilogue?.fuses === true ? epilogue : undefined;
    const asked = {
      op,
      dtype: call.dtype,
      part,
      redop: typeof redop === "object" ? undefined : redop,
      root,
      epilogue: fused,
    };
    const plan =
      plans === undefined || typeof redop === "object"
        ? undefined
        : algorithm === undefined
          ? plans.serving(asked)
          : plans.named(asked, algorithm);
    const output = to?.address ?? from?.address ?? 0;
    const step = epilogue && stepOf(epilogue, call.dtype, context, output, bring);
    const inPlace = context.registers && op === "all_reduce" && part > 0 && from?.address === to?.address;
    const arrival = context.sequence.of(op, call.dtype, part, inPlace ? { ...extras, inPlace } : extras);
    const { sendCounts, recvCounts } = extras;
    const [kind, ...beside] = kindsBy(plan, kindOf(arrival.print.call, part, extras.peer)) as [CallKind];
    const otherKinds = step === undefined ? beside : [...beside, step.kind];
    const varies = sendCounts !== undefined && recvCounts !== undefined;
    const pairs = varies ? context.sequence.pairs(call.dtype, rank, sendCounts, recvCounts) : NONE;
    return {
      op,
      call: {
        op,
        dtype: input.dtype,
        count: part,
        send: from?.address ?? to?.address ?? 0,
        recv: output,
        root: extras.peer ?? root,
        redop: typeof redop === "string" ? (NCCL_REDOP[redop] ?? 0) : 0,
        counts: extras.counts ?? [],
        sendCounts: extras.sendCounts ?? [],
        recvCounts: extras.recvCounts ?? [],
        plan,
        step: step?.call,
      },
      arrival,
      pairs,
      kind,
      otherKinds: otherKinds.length === 0 ? undefined : otherKinds,
      scalar: typeof redop === "object" ? redop.scalar : undefined,
      staged,
      source: from?.storage,
      target: to?.storage,
      others: step?.storages ?? NONE,
      result: op === "send" ? undefined : (to?.tensor ?? asTensor(checked.output ?? input)),
      sizeBytes: reportedCount(op, size, part) * sizeOf(call.dtype),
    };
  } catch (error) {
    for (const { finish } of staged) finish?.(false);
    throw error;
  }
}

/** What is behind the call: its buffers brought to the device, and how it is put there as a kernel of its own. */
function stepOf(
  { kernel, operands, words, numUnits, unitBytes }: CallEpilogue,
  dtype: DType,
  { epilogues }: PrepareContext,
  output: number,
  bring: (operand: Operand, use: { reads: boolean; writes: boolean }) => Staged,
) {
  const slot = epilogues.of(kernel, dtype);
  const staged = operands.map(({ operand, reads, writes }) => bring(operand, { reads, writes }));
  const given = words(
    output,
    staged.map(({ address }) => address),
  );
  const call: CallStep = {
    words: given,
    unitBytes,
    get refusal() {
      return slot.refusal;
    },
    launch: (stream, result) => {
      const { loaded } = slot;
      invariant(loaded !== undefined, "an epilogue is loaded before the first call that has it");
      loaded.launch(stream, result, given, numUnits);
    },
  };
  return { kind: slot.kind, call, storages: staged.flatMap(({ storage }) => storage ?? []) };
}

/** @throws InvalidArgumentError for memory that NCCL does not know where it knows that of other ranks: they would hang */
function refuseUnregistered({ at, registers }: PrepareContext, storage: DeviceStorage | undefined): void {
  if (!registers || storage === undefined || storage.pool === at.pool) return;
  throw new InvalidArgumentError(
    "tensor",
    described("one of a memory pool of its own"),
    "with registerBuffers, a tensor of the world",
  );
}

/** Whether a call is in place: host memory is staged once then, as device memory is there once. */
function isSameMemory({ region: a }: Operand, { region: b }: Operand): boolean {
  return a === b || (a.storage === b.storage && a.byteOffset === b.byteOffset && a.sizeBytes === b.sizeBytes);
}

/** Where this rank's result goes: what the caller gave, in place, or fresh memory where the sizes differ. */
function targetOf({ at, stream }: PrepareContext, checked: CheckedCall): Operand {
  const { call, input, output, outputCount } = checked;
  return output ?? (rolesOf(call).inPlace ? input : freshOperand(input, outputCount, at, stream));
}

/** Whether the call's result goes to memory that is made for it. */
export function makesMemory({ call, output }: CheckedCall): boolean {
  const { writes, inPlace } = rolesOf(call);
  return writes && output === undefined && !inPlace;
}

/**
 * The short way for what programs call in their inner loops: device tensors, a named operator, no options but the
 * output. It checks the same things with fewer objects.
 * @returns undefined when the call is not of that form, or something is wrong with it: the long way then says what
 */
export function prepareQuickly(
  context: PrepareContext,
  op: "all_reduce" | "all_gather" | "reduce_scatter",
  input: Data | undefined,
  options: OutputOptions,
  redop: ReduceOp | undefined,
): EntryParts | undefined {
  const { at, size, stream, dtypes, quick } = context;
  const { output = input, dtype, signal, timeoutMs, algorithm } = options;
  if (
    algorithm !== undefined ||
    dtype !== undefined ||
    signal !== undefined ||
    timeoutMs !== undefined ||
    typeof redop === "object"
  )
    return undefined;
  if (!(input instanceof Tensor) || !(output instanceof Tensor)) return undefined;
  const ncclOp = redop === undefined ? 0 : NCCL_REDOP[redop];
  const fits =
    op === "all_reduce"
      ? output.size === input.size
      : op === "all_gather"
        ? output.size === input.size * size
        : output.size * size === input.size;
  const apart = input.storage !== output.storage || (op === "all_reduce" && input.byteOffset === output.byteOffset);
  if (!fits || !apart || output.dtype !== input.dtype || ncclOp === undefined || !dtypes.has(input.dtype))
    return undefined;
  const send = usableAddress(input, at.device, at.generation);
  const recv = output === input ? send : usableAddress(output, at.device, at.generation);
  if (send === undefined || recv === undefined) return undefined;
  // They are genuine, or there would be no address.
  const source = input.storage as DeviceStorage;
  const target = output.storage as DeviceStorage;
  if (context.registers && (source.pool !== at.pool || target.pool !== at.pool)) return undefined;
  source.pool.recordUse(source.allocation, stream);
  if (target !== source) target.pool.recordUse(target.allocation, stream);
  const part = op === "reduce_scatter" ? output.size : input.size;
  const largest = op === "all_gather" ? output : input;
  const mark = context.registers && op === "all_reduce" && send === recv && part > 0 ? IN_PLACE : 0;
  const { dtype: type } = input;
  const arrival =
    quick.again(context, op, type, part, redop, mark) ?? quick.first(context, op, type, part, redop, mark);
  const { plan, kinds } = quick;
  const call: NcclCall = {
    op,
    dtype: type,
    count: part,
    send,
    recv,
    root: 0,
    redop: ncclOp,
    counts: NONE,
    sendCounts: NONE,
    recvCounts: NONE,
    plan,
    step: undefined,
  };
  return partsOfCall(call, arrival, kinds, source, target, output, largest.sizeBytes);
}
