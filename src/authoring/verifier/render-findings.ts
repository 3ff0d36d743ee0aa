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
function spread({ message, waits = [] }: Finding): string {
  return waits.length < 2 ? message : ["wait cycle:", ...waits.map((wait) => `      ${wait}`)].join("\n");
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

/** Places of a group that are listed. */
const MAX_ALSO = 8;

/**
 * What findings have in common that are told as one: the code, and the line of the program (or the operation) where it
 * began. A line that runs on every rank makes a finding for each.
 */
function groupKey({ cause, ...finding }: Finding): string {
  const at = cause ?? finding;
  // Findings without an operation say different things, unless they are about outputs.
  const place =
    at.source === undefined
      ? at.op < 0
        ? finding.chunk === undefined
          ? `${at.rank} ${finding.message}`
          : ""
        : `${at.rank} ${at.strand} ${at.op} ${at.body ?? ""}`
      : `${at.source.file}:${at.source.line}`;
  return `${finding.severity} ${finding.code} ${place}`;
}

/** Findings that one line of the program (or one operation) is behind, errors first, otherwise in the order given. */
function groupFindings(findings: readonly Finding[]): readonly (readonly [Finding, ...Finding[]])[] {
  const groups = new Map<string, [Finding, ...Finding[]]>();
  const sorted = [...findings].sort((a, b) => Number(b.severity === "error") - Number(a.severity === "error"));
  for (const finding of sorted) {
    const key = groupKey(finding);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [finding]);
    else group.push(finding);
  }
  return [...groups.values()];
}

function nameOf({ rank, strand, op, body }: OpRef): string {
  return rank < 0
    ? "plan"
    : op < 0
      ? `rank ${rank}`
      : `rank ${rank} strand ${strand} op ${op}${body === undefined ? "" : `.${body}`}`;
}

/** One line for all findings of a group but its first. */
function also(rest: readonly Finding[]): string[] {
  if (rest.length === 0) return [];
  const named = rest.slice(0, MAX_ALSO).map((finding) => {
    const { chunk } = finding;
    return chunk === undefined ? nameOf(finding) : `${chunk.buffer}[${chunk.index}] of rank ${chunk.rank}`;
  });
  const more = rest.length > MAX_ALSO ? ` and ${rest.length - MAX_ALSO} more` : "";
  return [`    the same at ${[...new Set(named)].join(", ")}${more}`];
}

/**
 * Renders findings, errors first, each with the operations around it; findings with one source line behind them are one
 * entry. No colours, no trailing newline.
 * @param most entries that are rendered. All by default
 */
export function renderFindings(
  plan: ExecutionPlan,
  findings: readonly Finding[],
  most: number = Number.POSITIVE_INFINITY,
): string {
  return groupFindings(findings)
    .slice(0, most)
    .map(([finding, ...rest]) =>
      [
        `${finding.severity} ${finding.code} at ${nameOf(finding)}: ${spread(finding)}`,
        ...(finding.cause === undefined ? [] : ["    it went wrong first at", ...around(plan, finding.cause)]),
        ...(finding.cause === undefined ? around(plan, finding) : []),
        ...(finding.related ?? []).slice(0, 6).flatMap((ref) => around(plan, ref)),
        ...also(rest),
        `    hint: ${finding.hint}`,
      ].join("\n"),
    )
    .join("\n\n");
}
