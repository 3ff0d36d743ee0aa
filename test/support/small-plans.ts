/** Small plans written by hand, operation by operation, and what the verifier says of them in a word. */
import {
  DEFAULT_PLAN_OPTIONS,
  type ExecutionPlan,
  type Op,
  type PlanCollective,
  type Range,
} from "../../src/authoring/plan/execution-plan.ts";
import { segmentsOf } from "../../src/authoring/plan/plan-conditions.ts";
import { type FindingCode, type VerifyOptions, verifyPlan } from "../../src/authoring/verifier/index.ts";

export const at = (buffer: Range["buffer"], index: number, size = 1): Range => ({ buffer, index, size });
export const far = (rank: number, buffer: Range["buffer"], index: number, size = 1) => ({ rank, buffer, index, size });
export const nop: Op = { kind: "nop" };
export const copy = (dst: Range, src: Range, format: "plain" | "pack" | "unpack" = "plain"): Op => ({
  kind: "copy",
  format,
  src,
  dst,
});
export const put = (dst: ReturnType<typeof far>, src: Range, format: "plain" | "pack" = "plain"): Op => ({
  kind: "put",
  format,
  notify: "none",
  channelKind: "memory",
  channels: [0],
  src: [src],
  dst: [dst],
});
export const signal = (relaxed = false, channel = 0): Op => ({
  kind: "signal",
  relaxed,
  channelKind: "memory",
  channels: [channel],
});
export const wait = (relaxed = false, channel = 0): Op => ({
  kind: "wait",
  relaxed,
  channelKind: "memory",
  channels: [channel],
});
export const acquire = (id: number): Op => ({ kind: "acquire", semaphores: [id] });
export const release = (id: number): Op => ({ kind: "release", semaphores: [id] });
export const sum = (dst: Range, ...src: Range[]): Op => ({
  kind: "reduce",
  op: "sum",
  packets: false,
  src,
  remoteSrc: [],
  dst,
  remoteDst: [],
  channels: [],
});

/** Two ranks (or as many as `ops` has) joined by one channel each way, or by `port` channels; ops by rank and strand. */
export function planOf(
  ops: readonly (readonly (readonly Op[])[])[],
  chunks: { input: number; output: number; scratch?: number; semaphores?: readonly number[] },
  collective: Partial<PlanCollective> = {},
): ExecutionPlan {
  const n = ops.length;
  const whole: PlanCollective = {
    operation: "test",
    numRanks: n,
    chunksPerPart: 1,
    inPlace: false,
    ...collective,
  };
  const peers = (rank: number) => Array.from({ length: n }, (_, r) => r).filter((r) => r !== rank);
  return {
    schemaVersion: 1,
    name: "test",
    mode: "imported",
    collective: whole,
    options: DEFAULT_PLAN_OPTIONS,
    ranks: ops.map((strands, rank) => ({
      rank,
      input: { chunks: chunks.input, segments: segmentsOf(whole, rank).input },
      output: { chunks: chunks.output, segments: segmentsOf(whole, rank).output },
      scratch: { chunks: chunks.scratch ?? 0, segments: 1 },
      channels: { memory: peers(rank), port: peers(rank), switch: [] },
      semaphores: (chunks.semaphores ?? []).map((initialValue) => ({ initialValue })),
      strands: strands.map((list, id) => ({ id, ops: list })),
    })),
    sources: [],
  };
}
export const codes = (plan: ExecutionPlan, options: VerifyOptions = { lint: false }): FindingCode[] => [
  ...new Set(
    verifyPlan(plan, options)
      .findings.filter((f) => f.severity === "error")
      .map((f) => f.code),
  ),
];
export const broadcast = { operation: "broadcast", root: 0 } as const;
export const allReduce = { operation: "all_reduce" } as const;
/** Rank 0 copies its input to its own and rank 1's output. */
export const send = (between: readonly Op[], receiver: readonly Op[]) => {
  const plan = planOf(
    [[[copy(at("output", 0), at("input", 0)), put(far(1, "output", 0), at("input", 0)), ...between]], [receiver]],
    { input: 1, output: 1 },
    broadcast,
  );
  return { ...plan, ranks: plan.ranks.map((r) => (r.rank === 1 ? { ...r, input: { chunks: 0, segments: 1 } } : r)) };
};
