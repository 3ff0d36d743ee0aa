/**
 * A run as a trace for Perfetto or chrome://tracing (Trace Event Format, Google): one process a rank, one track a strand,
 * one slice an operation. The slices of a track never overlap: an operation begins when the one before it has ended.
 */
import { type ExecutionPlan, formatOp } from "../plan/index.ts";
import type { Simulation } from "./simulate.ts";

export interface TraceEvent {
  readonly ph: "X" | "M";
  readonly name: string;
  readonly cat?: string;
  readonly pid: number;
  readonly tid: number;
  /** Microseconds. */
  readonly ts?: number;
  readonly dur?: number;
  readonly args: Readonly<Record<string, unknown>>;
}

/** Makes the trace document of a run. */
export function toTrace(
  plan: ExecutionPlan,
  result: Simulation,
): { readonly traceEvents: readonly TraceEvent[]; readonly displayTimeUnit: "ns" } {
  const traceEvents: TraceEvent[] = [];
  for (const rank of plan.ranks) {
    traceEvents.push({ ph: "M", name: "process_name", pid: rank.rank, tid: 0, args: { name: `rank ${rank.rank}` } });
    for (const strand of rank.strands)
      traceEvents.push({
        ph: "M",
        name: "thread_name",
        pid: rank.rank,
        tid: strand.id,
        args: { name: `strand ${strand.id}` },
      });
  }
  const reached = new Map<string, number>();
  const ordered = result.records
    .map((record, index) => ({ record, index }))
    .sort((a, b) => a.record.startUs - b.record.startUs || a.index - b.index);
  for (const { record } of ordered) {
    const outer = plan.ranks[record.rank]?.strands[record.strand]?.ops[record.op];
    const op = record.body >= 0 && outer?.kind === "pipeline" ? outer.body[record.body] : outer;
    if (op === undefined) continue;
    const track = `${record.rank} ${record.strand}`;
    const ts = Math.max(record.startUs, reached.get(track) ?? 0);
    const end = Math.max(ts, record.endUs);
    reached.set(track, end);
    traceEvents.push({
      ph: "X",
      name: op.kind,
      cat: record.bytes > 0 ? "data" : "sync",
      pid: record.rank,
      tid: record.strand,
      ts,
      dur: end - ts,
      args: {
        op: record.op,
        text: formatOp(op),
        ...(record.body >= 0 ? { body: record.body, iteration: record.iteration } : {}),
        ...(record.bytes > 0 ? { bytes: record.bytes } : {}),
        ...(record.peers.length > 0 ? { peers: record.peers } : {}),
      },
    });
  }
  return { traceEvents, displayTimeUnit: "ns" };
}
