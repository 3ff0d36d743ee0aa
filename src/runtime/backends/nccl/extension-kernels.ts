/** Kernels that an extension puts among a communicator's calls, and what members must agree on of them. */
import type { DType, NamedReduceOp } from "../../../core/index.ts";
import { packCall } from "../../comm/index.ts";
import type { CudaStream, DeviceStorage } from "../../device/index.ts";
import type { Arrival, CallSequence } from "../../progress/index.ts";

/** What all members say of a call, and what a mismatch tells of what stands there as a hash. */
export interface AgreedCall {
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly count: number;
  readonly hash: number;
  readonly text: string;
}

export interface ExtensionKernels {
  /** Puts kernels on the communicator's stream: once the calls made before are there. */
  readonly launch: (stream: CudaStream) => void;
  /** Asked until it says yes, before the kernels are launched: for what loads them. */
  readonly ready?: (() => boolean) | undefined;
  /** Of kernels that open a call of all members; absent for those behind them. */
  readonly agreed: AgreedCall | undefined;
  /** The tensors' memory that they use. */
  readonly storages: readonly DeviceStorage[];
  /** The result. */
  readonly value: unknown;
  readonly timeoutMs: number | undefined;
}

/** The place of such a call among the group's. */
export function arrivalOf(sequence: CallSequence, { dtype, op, count, hash, text }: AgreedCall): Arrival {
  return { ...sequence.collective(packCall("run", dtype, op, 0), count | 0, hash), hashed: () => text };
}
