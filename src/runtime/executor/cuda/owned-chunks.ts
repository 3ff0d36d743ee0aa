/**
 * Plans whose strands each make one chunk of the result, alone and from the same chunk of the inputs, and reach nobody's buffers: one-shot
 * algorithms in packets. What is behind such a strand in its kernel need not wait for the others where the chunk is all that it takes.
 */
import { type ExecutionPlan, shapeOf } from "../../../authoring/plan/index.ts";
import type { BufferReach } from "./buffer-reach.ts";
import { DATA_NUMBERS, isUser, type RankSteps } from "./strand-steps.ts";

/** The chunk of each strand, the same on all ranks. @returns undefined for any other plan */
export function ownedChunks(
  plan: ExecutionPlan,
  ranks: readonly RankSteps[],
  reached: readonly BufferReach[],
): readonly number[] | undefined {
  const { exact, needsWhole } = shapeOf(plan);
  if (exact || needsWhole || reached.some(({ input, output, writesInput }) => input || output || writesInput))
    return undefined;
  const [first, ...others] = ranks.map(({ strands }) => strands.map(chunkOf));
  const isKnown = (chunks: readonly (number | undefined)[] | undefined): chunks is readonly number[] =>
    chunks?.every((chunk) => chunk !== undefined) === true && new Set(chunks).size === chunks.length;
  if (!isKnown(first)) return undefined;
  return others.every((own) => own.length === first.length && own.every((chunk, i) => chunk === first[i]))
    ? first
    : undefined;
}

/** The one chunk of its own buffers that a strand touches, where it writes that of the output. */
function chunkOf(steps: RankSteps["strands"][number]): number | undefined {
  const { from, to, places: first, perPlace } = DATA_NUMBERS;
  const touched = new Set<number>();
  let writes = false;
  for (const step of steps) {
    if (step.kind === "loop") return undefined;
    if (step.kind !== "data") continue;
    const { ins, outs, numbers, parts } = step;
    for (const [i, place] of [...ins, ...outs].entries()) {
      if (!isUser(place)) continue;
      if (parts !== 1 || (numbers[to] as number) - (numbers[from] as number) !== 1) return undefined;
      touched.add(numbers[first + perPlace * i + 2] as number);
      writes ||= i >= ins.length && place.buffer === "output";
    }
  }
  const [chunk] = touched;
  return writes && touched.size === 1 ? chunk : undefined;
}
