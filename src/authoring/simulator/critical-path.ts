/**
 * The critical path: from the operation that ended last back to the launch, each step the one that held up the next.
 * Told in words, with what the time went to.
 */
import { wordTable } from "../../core/index.ts";
import { type ExecutionPlan, formatOp, type Op } from "../plan/index.ts";
import type { OpRecord } from "./run-state.ts";
import type { Simulation } from "./simulate.ts";

export interface PathStep {
  readonly record: OpRecord;
  /** The part of the operation's time that lies on the path. */
  readonly fromUs: number;
  readonly toUs: number;
}

/** The steps of the critical path, the first first. */
export function criticalPath(result: Simulation): readonly PathStep[] {
  const { records } = result;
  let at = -1;
  for (let i = 0; i < records.length; i++) if (at < 0 || records[i]!.endUs > records[at]!.endUs) at = i;
  const steps: PathStep[] = [];
  let until = at < 0 ? 0 : records[at]!.endUs;
  for (let guard = 0; at >= 0 && guard <= records.length; guard++) {
    const record = records[at]!;
    // An operation that waited for another strand's is on the path only from when that one had ended.
    const cause = record.cause >= 0 ? records[record.cause] : undefined;
    const from = Math.min(until, cause === undefined ? record.startUs : cause.endUs);
    if (until > from) steps.push({ record, fromUs: from, toUs: until });
    until = from;
    at = cause === undefined ? record.previous : record.cause;
  }
  return steps.reverse();
}

function opOf(plan: ExecutionPlan, record: OpRecord): Op | undefined {
  const op = plan.ranks[record.rank]?.strands[record.strand]?.ops[record.op];
  return record.body >= 0 && op?.kind === "pipeline" ? op.body[record.body] : op;
}

const GROUPS: Readonly<Record<string, string>> = wordTable({
  put: "moving data",
  get: "moving data",
  copy: "copying on the device",
  reduce: "reducing and moving",
  "switch-reduce": "the switch",
  "switch-broadcast": "the switch",
  "switch-reduce-broadcast": "the switch",
});

/**
 * Tells the critical path in words: where the time went, and its longest steps.
 * @param top steps that are told one by one
 */
export function describeCriticalPath(plan: ExecutionPlan, result: Simulation, top = 5): string {
  const steps = criticalPath(result);
  const { launchUs, endUs } = result.parameters;
  const byGroup = new Map<string, number>([["launch and completion", launchUs + endUs]]);
  for (const { record, fromUs, toUs } of steps) {
    const group = GROUPS[opOf(plan, record)?.kind ?? ""] ?? "synchronising";
    byGroup.set(group, (byGroup.get(group) ?? 0) + toUs - fromUs);
  }
  const total = Math.max(result.timeUs, 1e-9);
  const shares = [...byGroup]
    .filter(([, us]) => us > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([group, us]) => `${us.toFixed(2)} us ${group} (${((100 * us) / total).toFixed(0)} %)`);
  const longest = [...steps].sort((a, b) => b.toUs - b.fromUs - (a.toUs - a.fromUs)).slice(0, top);
  const lines = longest
    .sort((a, b) => a.fromUs - b.fromUs)
    .map(({ record, fromUs, toUs }) => {
      const op = opOf(plan, record);
      return `  at ${fromUs.toFixed(2)} us: rank ${record.rank} strand ${record.strand} op ${record.op}, ${(toUs - fromUs).toFixed(2)} us: ${op === undefined ? "?" : formatOp(op)}`;
    });
  const busiest = result.links[0];
  const link =
    busiest === undefined
      ? ""
      : `; the busiest link is ${busiest.link}, in use for ${(100 * busiest.utilization).toFixed(0)} % of its capacity`;
  return [`${steps.length} operations in a row: ${shares.join(", ")}${link}.`, ...lines].join("\n");
}
