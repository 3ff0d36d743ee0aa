/** From a checked call to addresses on the device: what a collective reads, what it writes, and what the caller gets. */
import { agreedCount, type OperationName, operationInfo, reportedCount } from "../../../authoring/collectives/index.ts";
import { type DType, type ReduceOp, sizeOf, type Tensor, UnsupportedError } from "../../../core/index.ts";
import type { Capabilities, CheckedCall, Operand, WireOp } from "../../comm/index.ts";
import type { RankDevice } from "../cuda/rank-device.ts";
import type { CudaStream } from "../cuda/stream.ts";
import type { NcclCall } from "./calls.ts";
import type { Arrival } from "./queue.ts";
import type { CallSequence, Extras } from "./sequence.ts";
import { freshOperand, type Staged, stage } from "./staging.ts";
import { NCCL_REDOP } from "./symbols.ts";

/** One call of a batch, or the only call of an operation. */
export interface Prepared {
  readonly op: WireOp;
  readonly call: NcclCall;
  readonly arrival: Arrival;
  /** Calls of one kind are connected by NCCL together: operation, power of two of the size, peer. */
  readonly kind: string;
  /** Of a PreMulSum, whose operator needs the open communicator. */
  readonly scalar: number | bigint | undefined;
  readonly staged: readonly Staged[];
  readonly result: Tensor | undefined;
  readonly sizeBytes: number;
}

export interface PrepareContext {
  readonly at: RankDevice;
  readonly stream: CudaStream;
  readonly sequence: CallSequence;
  readonly rank: number;
  readonly size: number;
}

/** @throws UnsupportedError for a dtype or operator that NCCL does not have here */
export function checkSupported(has: Capabilities, dtype: DType, redop: ReduceOp | undefined): void {
  if (!has.dtypes.includes(dtype)) {
    throw new UnsupportedError(
      `${dtype} with NCCL ${has.engineVersion} on this device`,
      `use one of ${has.dtypes.join(", ")}`,
    );
  }
  if (typeof redop === "string" && NCCL_REDOP[redop] === undefined) {
    throw new UnsupportedError(`${redop} with NCCL`, `use one of ${Object.keys(NCCL_REDOP).join(", ")}, preMulSum`);
  }
}

/** Brings buffers to the device and resolves addresses; nothing is published or issued yet. @throws OutOfMemoryError */
export function prepareCall(
  context: PrepareContext,
  op: OperationName,
  checked: CheckedCall,
  extras: Extras,
): Prepared {
  const { at, stream, rank, size } = context;
  const { call, input } = checked;
  const info = operationInfo(op);
  const root = extras.root ?? 0;
  const reads = op !== "recv" && (info.inputAt !== "root" || rank === root);
  const gives = op !== "send" && (info.outputAt !== "root" || rank === root);
  const staged: Staged[] = [];
  const bring = (operand: Operand, use: { reads: boolean; writes: boolean }) => {
    const one = stage(operand, at, stream, use);
    staged.push(one);
    return one;
  };
  try {
    const target = gives ? targetOf(context, op, checked, root) : undefined;
    const same = target === input;
    const from = reads || same ? bring(input, { reads, writes: same }) : undefined;
    const to = target === undefined ? undefined : same ? from : bring(target, { reads: false, writes: true });
    const part = agreedCount(call);
    const arrival = context.sequence.of(op, call.dtype, part, extras);
    return {
      op,
      call: {
        op,
        dtype: input.dtype,
        count: part,
        send: from?.address ?? to?.address ?? 0n,
        recv: to?.address ?? from?.address ?? 0n,
        root: extras.peer ?? root,
        redop: typeof extras.redop === "string" ? (NCCL_REDOP[extras.redop] ?? 0) : 0,
        counts: extras.counts ?? [],
        sendCounts: extras.sendCounts ?? [],
        recvCounts: extras.recvCounts ?? [],
      },
      arrival,
      kind: `${op} ${32 - Math.clz32(part)} ${extras.peer ?? ""}`,
      scalar: typeof extras.redop === "object" ? extras.redop.scalar : undefined,
      staged,
      result: to?.tensor,
      sizeBytes: reportedCount(op, size, part) * sizeOf(call.dtype),
    };
  } catch (error) {
    for (const { finish } of staged) finish?.(false);
    throw error;
  }
}

/** Where this rank's result goes: what the caller gave, in place, or fresh memory where the sizes differ. */
function targetOf(
  { at, stream, rank }: PrepareContext,
  op: OperationName,
  { input, output, outputCount }: CheckedCall,
  root: number,
): Operand {
  if (output !== undefined) return output;
  const inPlace = op === "recv" || (op === "scatter" && rank !== root) || operationInfo(op).inPlace === "same";
  return inPlace ? input : freshOperand(input, outputCount, at, stream);
}
