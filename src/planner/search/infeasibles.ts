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

  /** The one that came nearest to fitting and the first of the others, in words. */
  rejected(most: number): readonly Rejected[] {
    const known = [...this.#known.values()];
    const nearest = known
      .filter(({ why }) => why.kind === "memory")
      .reduce<Known | undefined>(
        (best, one) => (best === undefined || isNearer(one.why, best.why) ? one : best),
        undefined,
      );
    const sorted = nearest === undefined ? known : [nearest, ...known.filter((one) => one !== nearest)];
    return sorted.slice(0, Math.max(0, most)).map(({ axes, why, score }) => ({
      axes,
      kind: why.kind,
      reason: why.reason(),
      score,
      ...(why.neededBytes === undefined ? {} : { neededBytes: Math.ceil(why.neededBytes) }),
    }));
  }
}
