/** One plan, by copy engines, in place of NCCL's calls of a collective, of any size. */
import { chunkBytesOf, type ExecutionPlan, proofOf, shapeOf } from "../../../authoring/plan/index.ts";
import { sizeOf, UnsupportedError } from "../../../core/index.ts";
import { hashNumbers } from "../../comm/index.ts";
import { bufferBytes, type LocalCopyShape, PlanCopies, usesPortsAlone } from "../../executor/cuda/internal.ts";
import type { Served } from "../../executor/index.ts";
import type { Choice } from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CopiedCall, GroupCopies } from "./group-copies.ts";
import type { CallTarget, NcclCall, Serving } from "./nccl-calls.ts";
import type { PlanSlot } from "./plan-slot.ts";
import type { ToldBuffers } from "./told-buffers.ts";

/** Bytes of a chunk from which on copy engines do a program's plan that sends through port channels; kernels are faster below. */
const ENOUGH_BYTES = 4 << 20;

/** The plan that a choice names, as copies. @throws UnsupportedError for one that does more than copy */
export function copiesOf({ label }: Pick<Served, "label">, plan: ExecutionPlan): PlanCopies {
  const copies = PlanCopies.of(plan);
  if (copies !== undefined) return copies;
  const instead = "name one that copies from inputs to outputs and does nothing else, such as direct-all-gather";
  throw new UnsupportedError(`${label} (by copy engines)`, instead);
}

/** What copy engines do of a program's own plan, on all ranks alike; `undefined` where a kernel does it. */
export function copiesOfProgram(
  plan: ExecutionPlan,
  choice: Choice | undefined,
  partBytes: number,
): PlanCopies | undefined {
  if (choice?.served.shape?.copies === true) return copiesOf(choice.served, plan);
  if (choice !== undefined || proofOf(plan)?.ok !== true) return undefined;
  const pays = usesPortsAlone(plan) && chunkBytesOf(shapeOf(plan), partBytes) >= ENOUGH_BYTES;
  const copies = pays ? PlanCopies.of(plan) : undefined;
  return copies?.reachesPeers === true ? copies : undefined;
}

/** What a label says of how a kernel copies what a rank keeps to itself: nothing where a copy engine does. */
export function keptShape(served: Served | undefined): LocalCopyShape | undefined {
  const threads = served?.shape?.threads;
  return served === undefined || threads === undefined ? undefined : { blocks: served.instances, threads };
}

/** What members tell each other of a call. */
export function toldOfCopies(
  copies: PlanCopies,
  member: number,
  call: Pick<CopiedCall, "label" | "hash" | "input" | "output" | "partBytes" | "kept">,
): CopiedCall {
  const { plan, reached } = copies;
  const { partBytes } = call;
  const bytesOf = (buffer: "input" | "output") => bufferBytes(plan, member, buffer, partBytes);
  return { ...call, copies, reached, inputBytes: bytesOf("input"), outputBytes: bytesOf("output") };
}

interface CopyServingParts {
  /** Of the group's meeting. */
  readonly slot: PlanSlot;
  readonly group: GroupCopies;
  readonly told: ToldBuffers;
  readonly member: number;
  readonly choice: Choice;
  readonly copies: PlanCopies;
  /** Is told why no member can serve a call so. */
  readonly refused: (why: string) => void;
}

export class CopyServing implements Serving {
  readonly slot: PlanSlot;
  readonly #parts: CopyServingParts;
  /** What is the same of all its calls. */
  readonly #common: Pick<CopiedCall, "label" | "hash" | "kept">;
  /** The call that was looked at last, which may be looked at many times before it goes. */
  #last: { readonly of: NcclCall; readonly copied: CopiedCall } | undefined;

  constructor(parts: CopyServingParts) {
    const { slot, choice } = parts;
    const { label } = choice.served;
    this.slot = slot;
    this.#parts = parts;
    this.#common = { label, hash: hashNumbers([...Buffer.from(label)]), kept: keptShape(choice.served) };
  }

  get kinds(): readonly CallKind[] {
    return this.slot.kinds;
  }

  get isRefused(): boolean {
    return this.slot.refusal !== undefined;
  }

  meets(call: NcclCall, isCaptured: boolean): boolean {
    // NCCL serves it then.
    return this.slot.loaded === undefined || this.#parts.told.meets(this.#copied(call), isCaptured);
  }

  launch(call: NcclCall, target: CallTarget): boolean {
    const { group, choice, refused } = this.#parts;
    const { loaded, refusal } = this.slot;
    if (loaded === undefined) {
      if (refusal !== undefined) refused(refusal.message);
      return false;
    }
    choice.calls++;
    group.launch(this.#copied(call), loaded, target);
    return true;
  }

  #copied(call: NcclCall): CopiedCall {
    if (this.#last?.of !== call) {
      const { dtype, count, send, recv, root } = call;
      const { copies, member } = this.#parts;
      const place = { input: send, output: recv, partBytes: count * sizeOf(dtype) };
      const hash = (this.#common.hash + root) | 0;
      const copied = toldOfCopies(copies, member, { ...this.#common, ...place, hash });
      this.#last = { of: call, copied };
    }
    return this.#last.copied;
  }
}
