/**
 * From a checked run of a plan to addresses on the device: what it reads and writes, and what the caller gets. Buffers in host
 * memory are staged like those of any call.
 */
import {
  type ChoraleError,
  DTYPES,
  type DType,
  decodeFloat,
  encodeFloat,
  InvalidArgumentError,
  isSmallFloat,
  type ReduceOp,
  sizeOf,
  type Tensor,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { asTensor, hashNumbers, type Operand, type PlanCall, packCall } from "../../comm/index.ts";
import type { DeviceStorage } from "../../device/index.ts";
import type { TunedRun } from "../../executor/internal.ts";
import type { Arrival } from "../../progress/index.ts";
import { copiesOfProgram, keptShape, toldOfCopies } from "./copy-serving.ts";
import type { GroupPlans } from "./group-plans.ts";
import type { CallTarget } from "./nccl-calls.ts";
import type { EntryParts } from "./nccl-entry.ts";
import type { PlanSlot } from "./plan-slot.ts";
import type { PrepareContext } from "./prepare.ts";
import { launchReaching, toldOfKernel } from "./reaching-kernels.ts";
import { freshOperand, type Staged, stage } from "./staging.ts";

/** A run of a plan that may be put on the stream. */
interface PreparedRun {
  readonly slot: PlanSlot;
  readonly arrival: Arrival;
  readonly storages: readonly DeviceStorage[];
  readonly parts: EntryParts;
  /** Puts it on the stream. Nothing when a member could not open the plan. */
  readonly launch: (target: CallTarget) => void;
}

/**
 * Brings the buffers of a run to the device; nothing is published or issued yet.
 * @param target where the run goes, once the communicator is open
 * @throws UnsupportedError, InvalidArgumentError for a plan that cannot run here, OutOfMemoryError
 */
export function prepareRun(
  context: PrepareContext,
  plans: GroupPlans,
  { call, choice }: TunedRun,
  target: () => CallTarget,
): PreparedRun {
  const { plan, hash, dtype, op, partBytes, opinion } = call;
  const { rank } = context;
  const size = sizeOf(dtype);
  const bytes = Math.max(call.inputCount, call.outputCount) * size;
  const named = typeof op === "string" ? op : ("preMulSum" as const);
  const copies = copiesOfProgram(plan, choice, partBytes);
  const shape = { dtype, op: named, ...plans.kernelShape(choice, plan, partBytes) };
  const slot = copies === undefined ? plans.program(plan, hash, shape, partBytes) : plans.meeting(false);
  const staged: Staged[] = [];
  try {
    const { input, output, result } = buffersOf(context, call, staged);
    const scalar = typeof op === "string" ? undefined : scalarBits(op, dtype);
    const extra = Number.parseInt(hash.slice(0, 8), 16) ^ Number.parseInt(hash.slice(8), 16);
    const arrival = {
      ...context.sequence.collective(
        packCall("run", dtype, op, 0),
        (partBytes / size) | 0,
        (extra ^ hashNumbers([typeof op === "string" ? 1 : op.scalar])) | 0,
      ),
      hashed: () => `plan ${plan.name ?? ""} (${hash}), ${opinion}`,
    };
    const label = choice?.served.label ?? plan.name ?? "the plan";
    const { told } = plans;
    const place = { label, hash: extra | 0, input, output, partBytes };
    const kept = keptShape(choice?.served);
    const copied = copies && toldOfCopies(copies, rank, { ...place, kept });
    const reaches = copied === undefined && slot.kernel.shiftsAddresses;
    const toldCall = () => copied ?? toldOfKernel(slot, rank, place);
    // Of this call: the next one tries to open the plan again.
    let refusal: ChoraleError | undefined;
    const launch = (at: CallTarget) => {
      const { loaded } = slot;
      if (loaded === undefined) {
        refusal = slot.refusal;
        return;
      }
      if (choice !== undefined) choice.calls++;
      if (scalar !== undefined && copied === undefined) loaded.scalar = scalar;
      const copiesBack = staged.some(({ after }) => after !== undefined);
      const ends = copiesBack ? undefined : at.ends;
      if (copied !== undefined) plans.copies.launch(copied, loaded, { ...at, ends });
      else if (reaches) launchReaching(told, loaded, partBytes, { ...at, ends });
      else loaded.launch(at.owner, input, output, partBytes, ends);
      for (const { after } of staged) after?.();
    };
    const storages = staged.flatMap(({ storage }) => storage ?? []);
    const parts: EntryParts = {
      op: "run",
      arrivals: [arrival],
      kinds: slot.kinds,
      storages: [...new Set(storages)],
      run: () => {
        launch(target());
        return 0;
      },
      // What was not opened is not run.
      meets:
        copied !== undefined || reaches
          ? (isCaptured) => slot.loaded === undefined || told.meets(toldCall, isCaptured)
          : undefined,
      reachesPeers: copied !== undefined || slot.kernel.reachesBuffers,
      refusal: () => refusal,
      finish: staged.flatMap(({ finish }) => finish ?? []),
      value: () => result,
      sizeBytes: bytes,
    };
    return { slot, arrival, storages, parts, launch };
  } catch (error) {
    for (const { finish } of staged) finish?.(false);
    throw error;
  }
}

/** Where the plan finds its buffers, and what the caller gets. */
function buffersOf(
  { at, stream, rank, registers }: PrepareContext,
  { plan, input, output, inputCount, outputCount, shared, dtype }: PlanCall,
  staged: Staged[],
): { readonly input: number; readonly output: number; readonly result: Tensor | undefined } {
  const bring = (operand: Operand, use: { readonly reads: boolean; readonly writes: boolean }) => {
    const one = stage(operand, at, stream, use);
    staged.push(one);
    if (registers && one.storage !== undefined && one.storage.pool !== at.pool) {
      throw new InvalidArgumentError(
        "tensor",
        described("one of a memory pool of its own"),
        "with registerBuffers, a tensor of the world",
      );
    }
    return one;
  };
  if (shared !== undefined) {
    const whole = (shared.in === "input" ? input : output) as Operand;
    const { address } = bring(whole, { reads: true, writes: true });
    const inner = address + shared.at * sizeOf(dtype);
    const result = asTensor(whole);
    if (shared.in === "output") return { input: inner, output: address, result };
    return { input: address, output: inner, result: result.slice(shared.at, shared.at + outputCount) };
  }
  const source = input === undefined || inputCount === 0 ? 0 : bring(input, { reads: true, writes: false }).address;
  if (plan.ranks[rank]?.output.chunks === 0) return { input: source, output: 0, result: undefined };
  const target = output ?? freshOperand(input as Operand, outputCount, at, stream);
  const to = bring(target, { reads: false, writes: true });
  return { input: source, output: to.address, result: output === undefined ? to.tensor : asTensor(output) };
}

/** What preMulSum multiplies with, as the bits of the type that elements are combined in. */
function scalarBits(op: Exclude<ReduceOp, string>, dtype: DType): bigint {
  const words = new DataView(new ArrayBuffer(8));
  if (!DTYPES[dtype].isFloat) return BigInt.asUintN(64, BigInt(op.scalar));
  const value = Number(op.scalar);
  if (dtype === "f64") words.setFloat64(0, value, true);
  else words.setFloat32(0, isSmallFloat(dtype) ? decodeFloat(dtype, encodeFloat(dtype, value)) : value, true);
  return words.getBigUint64(0, true);
}
