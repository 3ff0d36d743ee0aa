/** The sizes that a row of a table is for, cut into classes: windows grow with the sizes they are for, and each class has its own. */
import type { Choice } from "../../executor/internal.ts";
import type { SlotServing } from "./slot-serving.ts";

/** The largest size of a class, times that of the one before. */
const SIZE_CLASS = 4;
const FIRST_CLASS_BYTES = 1 << 20;
/** Nobody has tried plans on more than that: NCCL serves it. */
const MOST_BYTES = 4 * 2 ** 30;

/** Sizes of one collective, element type and operator. */
export interface Range {
  readonly choice: Choice;
  readonly fromBytes: number;
  readonly toBytes: number;
  /** Made when a call first needs it; `null` where NCCL serves. */
  serving: SlotServing | null | undefined;
}

export function rangesOf(choices: readonly Choice[]): readonly Range[] {
  return choices.flatMap((choice) => {
    const { fromBytes, toBytes, served } = choice;
    if (served.kind === "kernel") return [{ choice, fromBytes, toBytes, serving: null }];
    const cut: Range[] = [];
    for (let from = fromBytes; from < toBytes; ) {
      const to = from >= MOST_BYTES ? toBytes : Math.min(toBytes, classOf(from + 1) + 1);
      cut.push({ choice, fromBytes: from, toBytes: to, serving: from >= MOST_BYTES ? null : undefined });
      from = to;
    }
    return cut;
  });
}

/** The largest size of the class that a size is in. */
export function classOf(bytes: number): number {
  let most = FIRST_CLASS_BYTES;
  while (most < bytes) most *= SIZE_CLASS;
  return most;
}
