/**
 * Direct calls where another algorithm serves captured ones. A capture can open no plan, so direct calls open both; once
 * they have, or no member can, what serves them is asked for without this.
 */
import type { Choice } from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget, NcclCall, Serving } from "./nccl-calls.ts";
import type { SlotServing } from "./slot-serving.ts";

export class JointServing implements Serving {
  readonly kinds: readonly CallKind[];
  readonly meets: Serving["meets"];
  readonly leavesToNccl: boolean;
  readonly reachesPeers: boolean;
  readonly #choice: Choice;
  readonly #direct: SlotServing | undefined;
  readonly #captured: SlotServing;

  /** @param direct absent where NCCL serves direct calls @param choice what says so */
  constructor(direct: SlotServing | undefined, captured: SlotServing, choice: Choice) {
    this.#direct = direct;
    this.#captured = captured;
    this.#choice = choice;
    this.kinds = [...(direct?.kinds ?? []), ...captured.kinds];
    this.meets = direct?.meets;
    this.leavesToNccl = direct === undefined;
    this.reachesPeers = direct?.reachesPeers === true;
  }

  get isRefused(): boolean {
    return this.#captured.slot.isSettled || this.#direct?.isRefused === true;
  }

  launch(call: NcclCall, target: CallTarget): boolean {
    if (this.#direct !== undefined) return this.#direct.launch(call, target);
    if (this.#choice.served.kind === "kernel") this.#choice.calls++;
    return false;
  }
}
