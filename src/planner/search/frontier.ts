/**
 * Candidates from the best bound up. Groups of candidates wait with a bound of their own, and are taken apart when it is their
 * turn: on a thousand devices most never are.
 */
import type { PlanAxisSizes } from "../plan.ts";
import type { AxesGroup } from "./enumerate.ts";
import type { Bounded } from "./variants.ts";

interface Waiting {
  readonly bound: number;
  readonly axes: PlanAxisSizes;
  readonly group?: AxesGroup;
  readonly item?: Bounded;
}

export class Frontier {
  /** A binary heap: no item's bound is above its children's. */
  readonly #heap: Waiting[] = [];
  readonly #expand: (group: AxesGroup) => readonly Bounded[];
  /** Candidates that were made. */
  numCandidates = 0;

  constructor(
    groups: readonly AxesGroup[],
    boundOf: (group: AxesGroup) => number,
    expand: (group: AxesGroup) => readonly Bounded[],
  ) {
    this.#expand = expand;
    for (const group of groups) this.#push({ bound: boundOf(group), axes: group.axes, group });
  }

  get size(): number {
    return this.#heap.length;
  }

  /** Takes the candidate of the best bound; undefined where none is left whose bound is at most `limit`. */
  take(limit: number): Bounded | undefined {
    for (;;) {
      const [first] = this.#heap;
      if (first === undefined || first.bound > limit) return undefined;
      this.#pop();
      if (first.item !== undefined) return first.item;
      for (const item of first.group === undefined ? [] : this.#expand(first.group)) {
        this.numCandidates++;
        this.#push({ bound: Math.max(item.bound, first.bound), axes: item.candidate.axes, item });
      }
    }
  }

  /** Axes and bounds of what is left, best first. */
  rest(): readonly { readonly axes: PlanAxisSizes; readonly bound: number }[] {
    return [...this.#heap].sort((a, b) => a.bound - b.bound);
  }

  #push(waiting: Waiting): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(waiting);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || above.bound <= waiting.bound) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = waiting;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      const right = heap[child + 1];
      if (right !== undefined && right.bound < (heap[child]?.bound ?? Number.POSITIVE_INFINITY)) child++;
      const below = heap[child];
      if (below === undefined || below.bound >= last.bound) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }
}
