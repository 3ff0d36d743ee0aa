/** Whether some split of the layers fits a pipeline of stages that are alike: every stage in turn takes as many as it holds. */
import type { StageModel } from "./stage.ts";

export function fitsEvenly(stage: StageModel): boolean {
  const { numLayers } = stage.model;
  const { pp } = stage.candidate.axes;
  const available = stage.blockClass.kind.availableBytes;
  let first = 0;
  for (let at = 0; at < pp; at++) {
    if (at === pp - 1) return stage.memoryBytes(first, numLayers, at) <= available;
    const most = numLayers - (pp - at - 1);
    let [low, high] = [first, most + 1];
    // The most layers that fit: memory grows with them.
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (stage.memoryBytes(first, middle, at) <= available) low = middle;
      else high = middle;
    }
    if (low === first) return false;
    first = low;
  }
  return true;
}
