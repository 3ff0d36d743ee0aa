/** What serves calls of a collective by a slot in NCCL's place: what all that do so have in common. */
import type { LoadedPlan } from "../../executor/cuda/internal.ts";
import type { Choice } from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget, NcclCall, Serving } from "./nccl-calls.ts";
import type { PlanSlot } from "./plan-slot.ts";

export interface SlotServingParts {
  readonly slot: PlanSlot;
  readonly choice: Choice;
  readonly member: number;
  /** Is told why no member can open the slot. */
  readonly refused: (why: string) => void;
}

/** @typeParam C what members tell each other of a call, and what is launched of it */
export abstract class SlotServing<P extends SlotServingParts = SlotServingParts, C = unknown> implements Serving {
  readonly slot: PlanSlot;
  abstract readonly meets: Serving["meets"];
  protected readonly its: P;
  /** The call that is next: it may be looked at many times before it goes. */
  #next: { readonly of: NcclCall; readonly described: C } | undefined;

  constructor(its: P) {
    this.slot = its.slot;
    this.its = its;
  }

  abstract get reachesPeers(): boolean;

  get kinds(): readonly CallKind[] {
    return this.slot.kinds;
  }

  get isRefused(): boolean {
    return this.slot.refusal !== undefined;
  }

  launch(call: NcclCall, target: CallTarget): boolean {
    const { loaded, refusal } = this.slot;
    if (loaded === undefined) {
      if (refusal !== undefined) this.its.refused(refusal.message);
      return false;
    }
    this.its.choice.calls++;
    this.put(call, loaded, target);
    this.#next = undefined;
    return true;
  }

  /** Puts a call on the stream. */
  protected abstract put(call: NcclCall, loaded: LoadedPlan, target: CallTarget): void;

  /** Says what a call is. */
  protected abstract describe(call: NcclCall): C;

  /** What `describe` says of a call, the same from the first look at it until it is launched. */
  protected described(call: NcclCall): C {
    if (this.#next?.of !== call) this.#next = { of: call, described: this.describe(call) };
    return this.#next.described;
  }
}
