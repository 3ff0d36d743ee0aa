/** What could not be, once for the same axes: with the ZeRO stage, micro-batch and recomputation that came nearest to fitting. */
import { axesKey, type PlanAxisSizes, type Rejected } from "../plan.ts";
import type { Infeasible } from "./evaluate.ts";

/** A layout that cannot be, with the objective's value that it would have at best. */
interface Known {
  readonly axes: PlanAxisSizes;
  readonly why: Infeasible;
  readonly score: number;
}

/** What fits its devices and only lacks host memory is nearer than what lacks device memory. */
function isNearer(a: Infeasible, b: Infeasible): boolean {
  if (a.fitsDevices !== b.fitsDevices) return a.fitsDevices === true;
  return (a.neededBytes ?? 0) < (b.neededBytes ?? 0);
}

export class Infeasibles {
  readonly #known = new Map<string, Known>();

  note(axes: PlanAxisSizes, why: Infeasible, score: number): void {
    const name = axesKey(axes);
    const known = this.#known.get(name);
    if (known === undefined || isNearer(why, known.why)) this.#known.set(name, { axes, why, score });
  }

  /** The first of them in words. */
  rejected(most: number): readonly Rejected[] {
    return [...this.#known.values()].slice(0, Math.max(0, most)).map(({ axes, why, score }) => ({
      axes,
      kind: why.kind,
      reason: why.reason(),
      score,
      ...(why.neededBytes === undefined ? {} : { neededBytes: Math.ceil(why.neededBytes) }),
    }));
  }
}
