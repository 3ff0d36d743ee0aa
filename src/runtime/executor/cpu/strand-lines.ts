/** What the strands of a rank wait for, as text: for reports of a run that hangs. */
import { bodyOf, type ExecutionPlan, formatOp, type Op, type SimpleOp } from "../../../authoring/plan/index.ts";
import type { StrandPosition } from "./prepared-plan.ts";

/** One line for each strand that has not ended, with the program's line. */
export function strandLines(plan: ExecutionPlan, rank: number, positions: readonly StrandPosition[]): string[] {
  return positions.flatMap(({ strand, op, body }) => {
    if (op === undefined) return [];
    const ops = plan.ranks[rank]?.strands[strand]?.ops ?? [];
    const outer = ops[op];
    const inner = outer?.kind === "pipeline" && body !== undefined ? outer.body[body] : outer;
    if (inner === undefined) return [`strand ${strand} at its end`];
    return [`strand ${strand} at op ${op}, ${formatOp(inner)}${lineOf(plan, ops, op, inner)}`];
  });
}

/** The program's line of an operation. What the compiler put in stands before the operation that needs it. */
function lineOf(plan: ExecutionPlan, ops: readonly Op[], at: number, op: SimpleOp | Op): string {
  const numbered = (list: readonly Op[]) => list.flatMap((one) => bodyOf(one)).find((one) => one.source !== undefined);
  const found = op.source === undefined ? numbered(ops.slice(at)) : op;
  const source = plan.sources[found?.source ?? numbered([...ops.slice(0, at)].reverse())?.source ?? -1];
  if (source === undefined) return "";
  return ` (${op.source === undefined ? "near " : ""}${source.file}:${source.line}:${source.column})`;
}
