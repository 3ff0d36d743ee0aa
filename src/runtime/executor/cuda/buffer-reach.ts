/** What kernels of a plan do to buffers of other ranks: the ranks tell each other where those are. */
import { chunkBytesOf, type ExecutionPlan, shapeOf } from "../../../authoring/plan/index.ts";
import { DATA_NUMBERS, isUser, type RankSteps } from "./strand-steps.ts";

/** What a call does to a rank's buffers. */
export interface BufferReach {
  /** Whether peers read or write the rank's input, and its output. */
  readonly input: boolean;
  readonly output: boolean;
  /** Whether any rank writes the rank's input. */
  readonly writesInput: boolean;
}

/** What kernels do to the buffers of every rank. */
export function reachOf(ranks: readonly RankSteps[]): readonly BufferReach[] {
  const { places: first, perPlace } = DATA_NUMBERS;
  const found = ranks.map(() => ({ input: false, output: false, writesInput: false }));
  for (const { strands } of ranks) {
    for (const step of strands.flat()) {
      if (step.kind !== "data") continue;
      [...step.ins, ...step.outs].forEach((place, i) => {
        const of = found[step.numbers[first + perPlace * i] as number];
        if (of === undefined || !isUser(place)) return;
        if (!place.own) of[place.buffer as "input" | "output"] = true;
        if (place.buffer === "input" && i >= step.ins.length) of.writesInput = true;
      });
    }
  }
  return found;
}

/** Bytes of a rank's buffer, of parts of `partBytes`. */
export function bufferBytes(plan: ExecutionPlan, rank: number, buffer: "input" | "output", partBytes: number): number {
  const shape = shapeOf(plan);
  const { chunks = 0, segments = 0 } = plan.ranks[rank]?.[buffer] ?? {};
  if (chunks === 0) return 0;
  return shape.exact ? chunks * chunkBytesOf(shape, partBytes) : segments * partBytes;
}
