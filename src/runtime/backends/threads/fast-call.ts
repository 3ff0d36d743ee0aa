/** What the fast path keeps of the last call of an operation, by which it knows the same call when it comes again. */
import type { DType, ReduceOp, Tensor } from "../../../core/index.ts";
import {
  type Data,
  type OpCounter,
  PLAIN_OPTIONS,
  type ReduceOptions,
  type RootOptions,
  type UncheckedOptions,
  type WireOp,
} from "../../comm/index.ts";
import type { CallKind } from "./done-work.ts";
import type { Task } from "./eager-rings.ts";
import type { Arena, SharedStorage } from "./storage.ts";
import type { ExchangeCounts, Parts, RunningPlan } from "./threads-work.ts";

/**
 * A call on its way: what a `ThreadsWork` has of it, should it have to wait. One object serves all calls of an operation in a
 * group, of which none begins before the last one was done or left to the engine. What was checked of the last one stays.
 */
export class FastCall {
  readonly kind: CallKind;
  readonly counter: OpCounter;
  seq = 0;
  op: WireOp = "barrier";
  code = 0;
  /** The fingerprint: see comm/call-fingerprint.ts. */
  call = 0;
  count = 0;
  extra = 0;
  input = 0;
  output = 0;
  /** Bytes of a part. */
  bytes = 0;
  root = 0;
  kernel = 0;
  tensor: Tensor | undefined;
  redop: ReduceOp | undefined;
  issuedAt = -1;
  parts: Parts | undefined;
  counts: ExchangeCounts | undefined;
  detail = "";
  choice: { calls: number } | undefined;
  run: RunningPlan | undefined;

  /** Whether the same call may be made again without being checked again. Its tensors are told by their places: none is kept. */
  isRepeatable = false;
  /** The bits of its options' names. */
  given = 0;
  reportedBytes = 0;
  /** What this member does in it, where it goes as messages, and as of which setting up. */
  task: Task | undefined;
  version = 0;
  #givenRoot: number | undefined;
  #givenOp: ReduceOp | undefined;
  #inputAt = -1;
  #inputSize = -1;
  #inputDtype: DType | undefined;
  #resultAt = -1;
  #resultSize = -1;
  #resultDtype: DType | undefined;

  constructor(kind: CallKind, counter: OpCounter) {
    this.kind = kind;
    this.counter = counter;
  }

  /** Notes a call that is checked. */
  remember(
    input: Tensor,
    result: Tensor,
    options: ReduceOptions & RootOptions,
    given: number,
    reportedBytes: number,
  ): void {
    this.given = given;
    this.reportedBytes = reportedBytes;
    this.#givenRoot = options.root;
    this.#givenOp = options.op;
    this.#inputAt = input.byteOffset;
    this.#inputSize = input.size;
    this.#inputDtype = input.dtype;
    this.#resultAt = result.byteOffset;
    this.#resultSize = result.size;
    this.#resultDtype = result.dtype;
    this.task = undefined;
    // The divisor of an average is a setting that other calls change.
    this.isRepeatable = options.algorithm === undefined && options.op !== "avg";
  }

  /** Whether the call that was noted had options like these, and tensors of the arena in the same places. */
  isLike(arena: Arena, data: Data, options: UncheckedOptions, given: number): boolean {
    if (!this.isRepeatable || given !== this.given || given < 0 || arena.closed !== undefined) return false;
    if ((given & PLAIN_OPTIONS.root) !== 0 && options.root !== this.#givenRoot) return false;
    if ((given & PLAIN_OPTIONS.op) !== 0 && options.op !== this.#givenOp) return false;
    if ((given & PLAIN_OPTIONS.algorithm) !== 0 && options.algorithm !== undefined) return false;
    if (!isOfArena(arena, data) || data.byteOffset !== this.#inputAt) return false;
    if (data.size !== this.#inputSize || data.dtype !== this.#inputDtype) return false;
    const result = resultOf(data, options, given);
    if (result === data) return this.#resultAt === this.#inputAt;
    return (
      isOfArena(arena, result) &&
      result.byteOffset === this.#resultAt &&
      result.size === this.#resultSize &&
      result.dtype === this.#resultDtype
    );
  }
}

/** Whether it is a tensor of the arena's world that was not freed: nothing else has such a storage. */
function isOfArena(arena: Arena, data: Data | undefined): data is Tensor {
  const storage = (data as Partial<Tensor> | null | undefined)?.storage as SharedStorage | undefined;
  return storage !== undefined && storage.arena === arena && storage.freed === undefined;
}

/** Where the result of a call goes whose options have names of these bits. */
export function resultOf(input: Tensor, options: UncheckedOptions, given: number): Tensor {
  return (given & PLAIN_OPTIONS.output) === 0 ? input : ((options.output ?? input) as Tensor);
}
