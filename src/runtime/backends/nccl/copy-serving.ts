/** One plan, by copy engines, in place of NCCL's calls of a collective, of any size. */
import { chunkBytesOf, type ExecutionPlan, proofOf, shapeOf } from "../../../authoring/plan/index.ts";
import { sizeOf, UnsupportedError } from "../../../core/index.ts";
import { hashNumbers } from "../../comm/index.ts";
import {
  bufferBytes,
  type LoadedPlan,
  type LocalCopyShape,
  PlanCopies,
  usesPortsAlone,
} from "../../executor/cuda/internal.ts";
import type { Served } from "../../executor/index.ts";
import type { Choice } from "../../executor/internal.ts";
import type { CopiedCall, GroupCopies } from "./group-copies.ts";
import type { CallTarget, NcclCall } from "./nccl-calls.ts";
import { SlotServing, type SlotServingParts } from "./slot-serving.ts";
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

interface CopyServingParts extends SlotServingParts {
  readonly group: GroupCopies;
  readonly told: ToldBuffers;
  readonly copies: PlanCopies;
}

/** The slot is that of the group's meeting. */
export class CopyServing extends SlotServing<CopyServingParts, CopiedCall> {
  readonly meets: SlotServing["meets"];
  /** What is the same of all its calls. */
  readonly #common: Pick<CopiedCall, "label" | "hash" | "kept">;

  constructor(its: CopyServingParts) {
    super(its);
    const { choice, told } = its;
    const { label } = choice.served;
    this.#common = { label, hash: hashNumbers([...Buffer.from(label)]), kept: keptShape(choice.served) };
    // What is not opened NCCL serves.
    this.meets = (call, isCaptured) =>
      this.slot.loaded === undefined || told.meets(() => this.described(call), isCaptured);
  }

  get reachesPeers(): boolean {
    return true;
  }

  protected put(call: NcclCall, loaded: LoadedPlan, target: CallTarget): void {
    this.its.group.launch(this.described(call), loaded, target);
  }

  protected describe({ dtype, count, send, recv, root }: NcclCall): CopiedCall {
    const { copies, member } = this.its;
    const place = { input: send, output: recv, partBytes: count * sizeOf(dtype) };
    const hash = (this.#common.hash + root) | 0;
    return toldOfCopies(copies, member, { ...this.#common, ...place, hash });
  }
}
