/** One plan in place of NCCL's calls of a collective, for sizes up to the largest of its slot. */
import type { BufferPlan, RankPlan } from "../../../authoring/plan/index.ts";
import { sizeOf } from "../../../core/index.ts";
import { hashNumbers } from "../../comm/index.ts";
import type { LoadedPlan } from "../../executor/cuda/internal.ts";
import type { CallTarget, NcclCall } from "./nccl-calls.ts";
import { launchReaching, toldOfKernel } from "./reaching-kernels.ts";
import { SlotServing, type SlotServingParts } from "./slot-serving.ts";
import type { ToldBuffers, ToldCall } from "./told-buffers.ts";

interface PlanServingParts extends SlotServingParts {
  /** The plan, as this rank has it. */
  readonly rank: RankPlan;
  readonly worksInPlace: () => boolean;
  /** Of a kernel with an epilogue: blocks make whole units of the result, and need not meet. */
  readonly isApart: boolean;
  /** Where there is memory for a result that may not go where the call wants it before the plan has ended. */
  readonly apart: (sizeBytes: number) => number;
  /** Of a kernel that reaches buffers of other processes: where members' buffers are. */
  readonly told: ToldBuffers | undefined;
}

export class PlanServing extends SlotServing<PlanServingParts, ToldCall> {
  readonly meets: SlotServing["meets"];
  /** Parts of this rank's buffers. */
  readonly #parts: readonly [input: number, output: number];
  readonly #hash: number;

  constructor(its: PlanServingParts) {
    super(its);
    const { rank, choice, told } = its;
    this.#parts = [partsOf(rank.input), partsOf(rank.output)];
    this.#hash = hashNumbers([...Buffer.from(choice.served.label)]);
    // What is not opened NCCL serves.
    this.meets =
      told &&
      ((call, isCaptured) => this.slot.loaded === undefined || told.meets(() => this.described(call), isCaptured));
  }

  get reachesPeers(): boolean {
    return this.slot.kernel.reachesBuffers;
  }

  protected put(call: NcclCall, loaded: LoadedPlan, target: CallTarget): void {
    const { dtype, count, send, recv, step } = call;
    const { told } = this.its;
    const part = count * sizeOf(dtype);
    const output = told === undefined ? this.#outputOf(call) : this.described(call).output;
    const hasStep = step !== undefined && loaded.kernel.epilogueWords > 0;
    if (hasStep) loaded.epilogue = { words: step.words, unitBytes: this.its.isApart ? step.unitBytes : 0 };
    // What is told to the host is the end of the launch: something may be behind it. A step reads the result where it is.
    const ends = hasStep || (step === undefined && output === recv) ? target.ends : undefined;
    if (told === undefined) loaded.launch(target.owner, send, output, part, ends);
    else launchReaching(told, loaded, part, { ...target, ends });
    if (step === undefined) {
      if (output !== recv) target.copy(recv, output, part * this.#parts[1]);
    } else if (!hasStep) step.launch(target.owner, output);
  }

  protected describe(call: NcclCall): ToldCall {
    const { choice, member } = this.its;
    const { dtype, count, send, root } = call;
    const place = { input: send, output: this.#outputOf(call), partBytes: count * sizeOf(dtype) };
    return toldOfKernel(this.slot, member, {
      ...place,
      label: choice.served.label,
      hash: (this.#hash + root) | 0,
    });
  }

  /**
   * Where the kernel writes. The plan is the same on all ranks, and out of place: a rank that is not gets its result by way of another
   * buffer.
   */
  #outputOf({ dtype, count, send, recv }: NcclCall): number {
    const part = count * sizeOf(dtype);
    const [inBytes, outBytes] = [part * this.#parts[0], part * this.#parts[1]];
    const lies = send < recv + outBytes && recv < send + inBytes;
    const { worksInPlace, apart } = this.its;
    return !lies || worksInPlace() ? recv : apart(outBytes);
  }
}

/** Parts of a rank's buffer; none where the collective gives it no such buffer. */
function partsOf({ chunks, segments }: BufferPlan): number {
  return chunks === 0 ? 0 : segments;
}
