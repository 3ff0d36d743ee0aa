/** Findings as text for a terminal: what, where, the operations around it on both sides, and how to mend it. */
import type { ExecutionPlan, Op } from "../plan/index.ts";
import { formatOp } from "../plan/index.ts";
import type { Finding, OpRef } from "./findings.ts";

/** Operations shown before and after the one at fault. */
const CONTEXT = 2;
/** Longer operations (dozens of destinations) are cut in the middle. */
const WIDTH = 150;

function clip(text: string): string {
  return text.length <= WIDTH ? text : `${text.slice(0, WIDTH - 45)} ... ${text.slice(-40)}`;
}

/** A cycle of waits reads better with a line for each. */
function spread(message: string): string {
  const [head, ...rest] = message.split(/(?<=^wait cycle): |; (?=rank \d+ strand)/);
  return rest.length < 2 ? message : [`${head}:`, ...rest.map((line) => `      ${line}`)].join("\n");
}

function sourceOf(ref: OpRef): string {
  return ref.source === undefined ? "" : `  (${ref.source.file}:${ref.source.line}:${ref.source.column})`;
}

function around(plan: ExecutionPlan, ref: OpRef): string[] {
  const strand = plan.ranks[ref.rank]?.strands[ref.strand];
  if (strand === undefined || ref.op < 0) return [];
  const outer = strand.ops[ref.op];
  const inner = ref.body !== undefined && outer?.kind === "pipeline" ? outer.body : undefined;
  const ops: readonly Op[] = inner ?? strand.ops;
  const at = inner === undefined ? ref.op : (ref.body ?? 0);
  const loop = inner === undefined ? "" : `, loop at op ${ref.op}`;
  const iteration = ref.iteration === undefined ? "" : `, iteration ${ref.iteration}`;
  const title = `    rank ${ref.rank} strand ${ref.strand}${loop}${iteration}:${sourceOf(ref)}`;
  const lines = [title];
  for (let i = Math.max(0, at - CONTEXT); i <= Math.min(ops.length - 1, at + CONTEXT); i++) {
    lines.push(`    ${i === at ? ">" : " "} ${String(i).padStart(4)}  ${clip(formatOp(ops[i]!))}`);
  }
  return lines;
}

/** Renders findings, errors first, each with the operations around it. No colours, no trailing newline. */
export function renderFindings(plan: ExecutionPlan, findings: readonly Finding[]): string {
  const sorted = [...findings].sort((a, b) => Number(b.severity === "error") - Number(a.severity === "error"));
  return sorted
    .map((finding) => {
      const where =
        finding.rank < 0
          ? "plan"
          : finding.op < 0
            ? `rank ${finding.rank}`
            : `rank ${finding.rank} strand ${finding.strand} op ${finding.op}${finding.body === undefined ? "" : `.${finding.body}`}`;
      return [
        `${finding.severity} ${finding.code} at ${where}: ${spread(finding.message)}`,
        ...around(plan, finding),
        ...(finding.related ?? []).slice(0, 6).flatMap((ref) => around(plan, ref)),
        `    hint: ${finding.hint}`,
      ].join("\n");
    })
    .join("\n\n");
}
