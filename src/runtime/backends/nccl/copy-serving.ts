/** One plan, by copy engines, in place of NCCL's calls of a collective, of any size. */
import { sizeOf } from "../../../core/index.ts";
import { hashNumbers } from "../../comm/index.ts";
import type { PlanCopies } from "../../executor/index.ts";
import type { Choice } from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CopiedCall, GroupCopies } from "./group-copies.ts";
import type { CallTarget, NcclCall, Serving } from "./nccl-calls.ts";
import type { PlanSlot } from "./plan-slot.ts";

export interface CopyServingParts {
  /** Of the group's meeting. */
  readonly slot: PlanSlot;
  readonly group: GroupCopies;
  readonly choice: Choice;
  readonly copies: PlanCopies;
  /** Is told why no member can serve a call so. */
  readonly refused: (why: string) => void;
}

export class CopyServing implements Serving {
  readonly slot: PlanSlot;
  readonly #parts: CopyServingParts;
  readonly #hash: number;

  constructor(parts: CopyServingParts) {
    this.slot = parts.slot;
    this.#parts = parts;
    this.#hash = hashNumbers([...Buffer.from(parts.choice.served.label)]);
  }

  get kind(): CallKind {
    return this.slot.kind;
  }

  get isRefused(): boolean {
    return this.slot.refusal !== undefined;
  }

  meets(call: NcclCall): boolean {
    // NCCL serves it then.
    return this.slot.loaded === undefined || this.#parts.group.meets(this.#copied(call));
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

  #copied({ dtype, count, send, recv }: NcclCall): CopiedCall {
    const { copies, choice } = this.#parts;
    const { label } = choice.served;
    return { copies, label, hash: this.#hash, input: send, output: recv, partBytes: count * sizeOf(dtype) };
  }
}
