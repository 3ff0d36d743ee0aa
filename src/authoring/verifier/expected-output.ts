/**
 * What an output chunk must hold, chunk by chunk and without listing all of it: a collective of 256 ranks has millions
 * of contributions. The meaning is `planPostcondition`'s; a test compares the two.
 */
import { bodyOf, type ExecutionPlan, type PlanReduceOp, planPostcondition } from "../plan/index.ts";

export type Expectation =
  | { readonly kind: "copy"; readonly rank: number; readonly chunk: number }
  /** The same input chunk of every rank. */
  | { readonly kind: "reduce-all"; readonly chunk: number }
  | { readonly kind: "reduce"; readonly from: readonly { readonly rank: number; readonly chunk: number }[] };

/** Returns what chunk `chunk` of the output of `rank` must hold, or undefined where anything will do. */
export function expectationOf(plan: ExecutionPlan): (rank: number, chunk: number) => Expectation | undefined {
  const c = plan.collective;
  const instances = plan.options.instances;
  switch (c.operation) {
    case "all_reduce":
      return (_, chunk) => ({ kind: "reduce-all", chunk });
    case "reduce":
      return (rank, chunk) => (rank === (c.root ?? 0) ? { kind: "reduce-all", chunk } : undefined);
    case "reduce_scatter":
    case "reduce_scatter_v": {
      const starts = [0];
      for (let r = 0; r < c.numRanks; r++) {
        starts.push(starts[r]! + (c.counts?.[r] ?? c.chunksPerPart) * instances);
      }
      return (rank, chunk) => ({ kind: "reduce-all", chunk: starts[rank]! + chunk });
    }
    default: {
      const table = planPostcondition(plan);
      return (rank, chunk) => {
        const value = table?.[rank]?.[chunk];
        if (value === undefined || value === null) return undefined;
        return value.kind === "copy" ? { kind: "copy", ...value.from } : { kind: "reduce", from: value.from };
      };
    }
  }
}

/** The operator of the collective: the one it names, or the one that most of the plan's reductions use. */
export function collectiveOperator(plan: ExecutionPlan): PlanReduceOp {
  if (plan.collective.reduceOp !== undefined) return plan.collective.reduceOp;
  const votes = new Map<PlanReduceOp, number>();
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      for (const outer of strand.ops) {
        for (const op of bodyOf(outer)) if ("op" in op) votes.set(op.op, (votes.get(op.op) ?? 0) + 1);
      }
    }
  }
  let best: PlanReduceOp = "sum";
  for (const [op, count] of votes) if (count > (votes.get(best) ?? 0)) best = op;
  return best;
}
