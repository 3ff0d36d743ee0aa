/** The sizes that a row of a table is for, cut into classes: windows grow with the sizes they are for, and each class has its own. */
import type { Choice } from "../../executor/internal.ts";
import { JointServing } from "./joint-serving.ts";
import type { Serving } from "./nccl-calls.ts";
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
  /** As `serving`, of captured calls, where another algorithm serves those; `null` where none does. */
  captured: SlotServing | null | undefined;
  /** What opens both. */
  joint: JointServing | undefined;
}

/** @param hasEpilogue of calls with one: captured ones are served alike, as a kernel that ends with it is better than two */
export function rangesOf(choices: readonly Choice[], hasEpilogue: boolean): readonly Range[] {
  return choices.flatMap((choice) => {
    const { fromBytes, toBytes, served } = choice;
    const of = (from: number, to: number): Range => {
      const isServed = from < MOST_BYTES;
      return {
        choice,
        fromBytes: from,
        toBytes: to,
        serving: isServed && served.kind === "plan" ? undefined : null,
        captured: isServed && !hasEpilogue && choice.captured !== undefined ? undefined : null,
        joint: undefined,
      };
    };
    const whole = of(fromBytes, toBytes);
    if (whole.serving === null && whole.captured === null) return [whole];
    const cut: Range[] = [];
    for (let from = fromBytes; from < toBytes; ) {
      const to = from >= MOST_BYTES ? toBytes : Math.min(toBytes, classOf(from + 1) + 1);
      cut.push(of(from, to));
      from = to;
    }
    return cut;
  });
}

/**
 * What serves a call of a range's sizes: another plan if it is captured, where members have that open.
 * @param serve makes what serves by a choice, if something does
 */
export function servingIn(
  range: Range,
  isCaptured: boolean,
  serve: (choice: Choice) => SlotServing | undefined,
): Serving | undefined {
  const { choice } = range;
  if (range.serving === undefined) range.serving = serve(choice) ?? null;
  if (range.captured === undefined) range.captured = (choice.captured && serve(choice.captured)) ?? null;
  const direct = range.serving?.isRefused === false ? range.serving : undefined;
  const { captured } = range;
  if (isCaptured && captured?.slot.loaded !== undefined) return captured;
  if (!isCaptured && captured?.slot.isSettled === false) {
    if (range.joint?.isRefused !== false) range.joint = new JointServing(direct, captured, choice);
    return range.joint;
  }
  if (choice.served.kind === "kernel") choice.calls++;
  return direct;
}

/** The largest size of the class that a size is in. */
export function classOf(bytes: number): number {
  let most = FIRST_CLASS_BYTES;
  while (most < bytes) most *= SIZE_CLASS;
  return most;
}
