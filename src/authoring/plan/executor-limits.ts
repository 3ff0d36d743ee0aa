/**
 * What the MSCCL++ 0.9 executor can hold (constants of `src/core/include/execution_common.hpp`), and where a plan goes
 * beyond it. Chorale's own executors have none of these limits; they matter for `--target mscclpp`.
 */
import type { ExecutionPlan, Op } from "./execution-plan.ts";

export const EXECUTOR_LIMITS = {
  opsPerStrand: 64,
  channelsPerKindPerStrand: 16,
  remoteBuffersPerKindPerStrand: 16,
  channelIdsPerOp: 8,
  rangesPerOp: 10,
  barriers: 16,
  semaphoresPerOp: 16,
  threadsPerBlock: 1024,
  /** One block a multiprocessor has to fit at once; 132 on H100. */
  strandsPerRank: 132,
} as const;

/** One place where a plan exceeds the executor, as data. */
export interface LimitViolation {
  readonly rank: number;
  readonly strand: number;
  /** Index of the operation in the strand; absent when the strand as a whole is too large. */
  readonly op?: number;
  readonly limit: keyof typeof EXECUTOR_LIMITS | "unsupported";
  readonly message: string;
  readonly source?: number;
}

function channelIds(op: Op): readonly number[] {
  return "channels" in op ? op.channels : [];
}

/** Where a plan exceeds the MSCCL++ executor, or asks for what it cannot do. Empty: it runs there. */
export function limitViolations(plan: ExecutionPlan): LimitViolation[] {
  const found: LimitViolation[] = [];
  for (const rank of plan.ranks) {
    const barriers = new Set<number>();
    for (const strand of rank.strands) {
      const report = (limit: LimitViolation["limit"], message: string, index?: number, op?: Op) => {
        found.push({
          rank: rank.rank,
          strand: strand.id,
          ...(index === undefined ? {} : { op: index }),
          limit,
          message,
          ...(op?.source === undefined ? {} : { source: op.source }),
        });
      };
      const over = (limit: keyof typeof EXECUTOR_LIMITS, count: number, what: string, index?: number, op?: Op) => {
        if (count > EXECUTOR_LIMITS[limit])
          report(limit, `${count} ${what}, the executor holds ${EXECUTOR_LIMITS[limit]}`, index, op);
      };
      const channels = { memory: new Set<number>(), port: new Set<number>(), switch: new Set<number>() };
      const remotes = { memory: new Set<string>(), port: new Set<string>() };
      let count = 0;
      const visit = (op: Op, index: number): void => {
        if (op.kind === "pipeline") {
          count++;
          for (const inner of op.body) visit(inner, index);
          return;
        }
        count++;
        over("channelIdsPerOp", channelIds(op).length, "channels in one operation", index, op);
        if (op.kind === "acquire" || op.kind === "release")
          over("semaphoresPerOp", op.semaphores.length, "semaphores in one operation", index, op);
        if (op.kind === "barrier") barriers.add(op.barrier);
        if (op.kind === "switch-reduce")
          report("unsupported", "the executor has no switch-reduce into a local buffer (glre)", index, op);
        if (op.kind === "put" || op.kind === "get")
          over("rangesPerOp", Math.max(op.src.length, op.dst.length), "ranges on one side of an operation", index, op);
        if (op.kind === "reduce") {
          const dst = 1 + (op.packetDst === undefined ? 0 : 1) + op.remoteDst.length;
          over(
            "rangesPerOp",
            Math.max(op.src.length + op.remoteSrc.length, dst),
            "ranges on one side of an operation",
            index,
            op,
          );
        }
        if ((op.kind === "reduce" || op.kind === "switch-reduce-broadcast") && op.op !== "sum") {
          report("unsupported", `the executor sums whatever the plan says: ${op.op} would be wrong`, index, op);
        }
        if ("channelKind" in op && op.channelKind !== undefined) {
          for (const id of channelIds(op)) channels[op.channelKind].add(id);
          const ranges =
            op.kind === "put"
              ? op.dst
              : op.kind === "get"
                ? op.src
                : op.kind === "reduce"
                  ? [...op.remoteSrc, ...op.remoteDst]
                  : [];
          for (const r of ranges) remotes[op.channelKind].add(`${r.rank} ${r.buffer}`);
        }
      };
      strand.ops.forEach(visit);
      over("opsPerStrand", count, "operations in a strand");
      for (const kind of ["memory", "port", "switch"] as const)
        over("channelsPerKindPerStrand", channels[kind].size, `${kind} channels in a strand`);
      for (const kind of ["memory", "port"] as const)
        over("remoteBuffersPerKindPerStrand", remotes[kind].size, `remote buffers over ${kind} channels in a strand`);
    }
    if (rank.strands.length > EXECUTOR_LIMITS.strandsPerRank) {
      found.push({
        rank: rank.rank,
        strand: 0,
        limit: "strandsPerRank",
        message: `${rank.strands.length} strands on rank ${rank.rank}, which must all run at once: a device has room for ${EXECUTOR_LIMITS.strandsPerRank}`,
      });
    }
    // Barriers are places in a table, whichever of them a plan uses.
    const numBarriers = Math.max(...barriers, -1) + 1;
    if (numBarriers > EXECUTOR_LIMITS.barriers) {
      found.push({
        rank: rank.rank,
        strand: 0,
        limit: "barriers",
        message: `${numBarriers} barriers on rank ${rank.rank}, the executor holds ${EXECUTOR_LIMITS.barriers}`,
      });
    }
  }
  if (plan.options.numThreadsPerBlock > EXECUTOR_LIMITS.threadsPerBlock) {
    found.push({
      rank: 0,
      strand: 0,
      limit: "threadsPerBlock",
      message: `${plan.options.numThreadsPerBlock} threads a block, the executor launches at most ${EXECUTOR_LIMITS.threadsPerBlock}`,
    });
  }
  return found;
}
