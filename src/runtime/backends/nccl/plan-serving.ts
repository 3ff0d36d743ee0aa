/** One plan in place of NCCL's calls of a collective, for sizes up to the largest of its slot. */
import type { BufferPlan, RankPlan } from "../../../authoring/plan/index.ts";
import { sizeOf } from "../../../core/index.ts";
import type { Allocation } from "../../device/index.ts";
import type { Choice } from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget, NcclCall, Serving } from "./nccl-calls.ts";
import type { PlanSlot } from "./plan-slot.ts";

/** What serves calls by a slot. */
export interface SlotServing extends Serving {
  readonly slot: PlanSlot;
}

interface PlanServingParts {
  readonly slot: PlanSlot;
  readonly choice: Choice;
  /** The plan, as this rank has it. */
  readonly rank: RankPlan;
  readonly worksInPlace: () => boolean;
  /** Is told why no member can open the slot. */
  readonly refused: (why: string) => void;
  /** Memory for a result that may not go where the call wants it before the plan has ended: `held`, where that is enough. */
  readonly apart: (sizeBytes: number, held: Allocation | undefined) => Allocation;
}

export class PlanServing implements SlotServing {
  readonly slot: PlanSlot;
  readonly #its: PlanServingParts;
  /** Parts of this rank's buffers. */
  readonly #parts: readonly [input: number, output: number];
  #apart: Allocation | undefined;

  constructor(its: PlanServingParts) {
    this.slot = its.slot;
    this.#its = its;
    this.#parts = [partsOf(its.rank.input), partsOf(its.rank.output)];
  }

  get kinds(): readonly CallKind[] {
    return this.slot.kinds;
  }

  get isRefused(): boolean {
    return this.slot.refusal !== undefined;
  }

  launch({ dtype, count, send, recv }: NcclCall, target: CallTarget): boolean {
    const { loaded, refusal } = this.slot;
    const { choice, refused, worksInPlace, apart } = this.#its;
    if (loaded === undefined) {
      if (refusal !== undefined) refused(refusal.message);
      return false;
    }
    choice.calls++;
    const part = count * sizeOf(dtype);
    const [inBytes, outBytes] = [part * this.#parts[0], part * this.#parts[1]];
    const lies = send < recv + outBytes && recv < send + inBytes;
    const stream = target.owner;
    if (!lies || worksInPlace()) {
      loaded.launch(stream, send, recv, part, target.ends);
      return true;
    }
    // The plan is the same on all ranks, and out of place: a rank that is not gets its result by way of another buffer.
    this.#apart = apart(outBytes, this.#apart);
    const { address } = this.#apart;
    loaded.launch(stream, send, address, part);
    target.copy(recv, Number(address), outBytes);
    return true;
  }
}

/** Parts of a rank's buffer; none where the collective gives it no such buffer. */
function partsOf({ chunks, segments }: BufferPlan): number {
  return chunks === 0 ? 0 : segments;
}
