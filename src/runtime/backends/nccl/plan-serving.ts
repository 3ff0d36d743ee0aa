/** One plan in place of NCCL's calls of a collective, for sizes up to the largest of its slot. */
import type { BufferPlan, RankPlan } from "../../../authoring/plan/index.ts";
import { sizeOf } from "../../../core/index.ts";
import { hashNumbers } from "../../comm/index.ts";
import type { Allocation } from "../../device/index.ts";
import type { Choice } from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget, NcclCall, Serving } from "./nccl-calls.ts";
import type { PlanSlot } from "./plan-slot.ts";
import { launchReaching, toldOfKernel } from "./reaching-kernels.ts";
import type { ToldBuffers } from "./told-buffers.ts";

/** What serves calls by a slot. */
export interface SlotServing extends Serving {
  readonly slot: PlanSlot;
}

interface PlanServingParts {
  readonly slot: PlanSlot;
  readonly choice: Choice;
  readonly member: number;
  /** The plan, as this rank has it. */
  readonly rank: RankPlan;
  readonly worksInPlace: () => boolean;
  /** Is told why no member can open the slot. */
  readonly refused: (why: string) => void;
  /** Memory for a result that may not go where the call wants it before the plan has ended: `held`, where that is enough. */
  readonly apart: (sizeBytes: number, held: Allocation | undefined) => Allocation;
  /** Of a kernel that reaches buffers of other processes: where members' buffers are. */
  readonly told: ToldBuffers | undefined;
}

export class PlanServing implements SlotServing {
  readonly slot: PlanSlot;
  readonly meets: SlotServing["meets"];
  readonly #its: PlanServingParts;
  /** Parts of this rank's buffers. */
  readonly #parts: readonly [input: number, output: number];
  #apart: Allocation | undefined;

  constructor(its: PlanServingParts) {
    this.slot = its.slot;
    this.#its = its;
    this.#parts = [partsOf(its.rank.input), partsOf(its.rank.output)];
    this.meets = its.told && this.#meetingBy(its.told);
  }

  get kinds(): readonly CallKind[] {
    return this.slot.kinds;
  }

  get isRefused(): boolean {
    return this.slot.refusal !== undefined;
  }

  launch(call: NcclCall, target: CallTarget): boolean {
    const { loaded, refusal } = this.slot;
    const { choice, refused, told } = this.#its;
    if (loaded === undefined) {
      if (refusal !== undefined) refused(refusal.message);
      return false;
    }
    choice.calls++;
    const { dtype, count, send, recv } = call;
    const part = count * sizeOf(dtype);
    const output = this.#outputOf(call);
    // What is told to the host is the end of the launch: something may be behind it.
    const ends = output === recv ? target.ends : undefined;
    if (told === undefined) loaded.launch(target.owner, send, output, part, ends);
    else launchReaching(told, loaded, part, { ...target, ends });
    if (output !== recv) target.copy(recv, output, part * this.#parts[1]);
    return true;
  }

  /**
   * Where the kernel writes. The plan is the same on all ranks, and out of place: a rank that is not gets its result by way of another
   * buffer.
   */
  #outputOf({ dtype, count, send, recv }: NcclCall): number {
    const part = count * sizeOf(dtype);
    const [inBytes, outBytes] = [part * this.#parts[0], part * this.#parts[1]];
    const lies = send < recv + outBytes && recv < send + inBytes;
    const { worksInPlace, apart } = this.#its;
    if (!lies || worksInPlace()) return recv;
    this.#apart = apart(outBytes, this.#apart);
    return Number(this.#apart.address);
  }

  #meetingBy(told: ToldBuffers): SlotServing["meets"] {
    const { slot } = this;
    const { choice, member } = this.#its;
    const { label } = choice.served;
    const hash = hashNumbers([...Buffer.from(label)]);
    return (call, isCaptured) => {
      // NCCL serves it then.
      if (slot.loaded === undefined || told.hasMet) return true;
      const { dtype, count, send, root } = call;
      const place = { input: send, output: this.#outputOf(call), partBytes: count * sizeOf(dtype) };
      const kernel = { ...place, label, hash: (hash + root) | 0 };
      return told.meets(toldOfKernel(slot, member, kernel), isCaptured);
    };
  }
}

/** Parts of a rank's buffer; none where the collective gives it no such buffer. */
function partsOf({ chunks, segments }: BufferPlan): number {
  return chunks === 0 ? 0 : segments;
}
