/**
 * Limits and defects of the executor that a plan is meant for. Source of the numbers: microsoft/mscclpp 0.9,
 * `src/core/executor/execution_plan.cpp`, `src/core/include/execution_common.hpp` and `execution_kernel.hpp`.
 */
import type { ExecutionPlan, Op, SimpleOp, Strand } from "../ir.ts";
import type { Findings } from "./findings.ts";
import { movesPackets } from "./strand-state.ts";

export const TARGETS = ["mscclpp"] as const;
export type Target = (typeof TARGETS)[number];

export const MSCCLPP_LIMITS = {
  opsPerStrand: 64,
  channelsPerKindPerStrand: 16,
  remoteBuffersPerKindPerStrand: 16,
  channelsPerOp: 8,
  rangesPerOp: 10,
  barriers: 16,
  semaphoresPerOp: 16,
  threadsPerBlock: 1024,
  /** One block a multiprocessor has to fit at once; 132 on H100. */
  strandsPerRank: 132,
} as const;

const bodyOf = (op: Op): readonly SimpleOp[] => (op.kind === "pipeline" ? op.body : [op]);

/** Checks a plan against an executor's limits and known defects. */
export function checkTarget(plan: ExecutionPlan, target: Target, findings: Findings): void {
  if (target === "mscclpp") for (const rank of plan.ranks) checkMscclpp(plan, rank.rank, findings);
}

function checkMscclpp(plan: ExecutionPlan, r: number, findings: Findings): void {
  const rank = plan.ranks[r]!;
  const limit = (
    place: readonly [number, number, number, (number | undefined)?],
    what: string,
    actual: number,
    max: number,
  ) => {
    if (actual <= max) return;
    findings.at(plan, place, {
      code: "limit-exceeded",
      severity: "error",
      message: `${what}: ${actual}, the executor has room for ${max}`,
      hint: "split the work over more strands or operations",
    });
  };
  limit([r, -1, -1], "threads of a block", plan.options.numThreadsPerBlock, MSCCLPP_LIMITS.threadsPerBlock);
  limit(
    [r, -1, -1],
    "strands of a rank, which must all run at once",
    rank.strands.length,
    MSCCLPP_LIMITS.strandsPerRank,
  );
  const barriers = new Set<number>();
  rank.strands.forEach((strand, s) => {
    const use = new StrandUse(strand);
    limit([r, s, -1], "operations of a strand", use.ops, MSCCLPP_LIMITS.opsPerStrand);
    for (const [kind, ids] of use.channels) {
      limit([r, s, -1], `${kind} channels of a strand`, ids.size, MSCCLPP_LIMITS.channelsPerKindPerStrand);
    }
    for (const [kind, buffers] of use.remote) {
      limit(
        [r, s, -1],
        `remote buffers of a strand (${kind})`,
        buffers.size,
        MSCCLPP_LIMITS.remoteBuffersPerKindPerStrand,
      );
    }
    strand.ops.forEach((outer, o) => {
      bodyOf(outer).forEach((op, b) => {
        const place = [r, s, o, outer.kind === "pipeline" ? b : undefined] as const;
        if (op.kind === "barrier") barriers.add(op.barrier);
        if ("channels" in op)
          limit(place, "channels of an operation", op.channels.length, MSCCLPP_LIMITS.channelsPerOp);
        if ("semaphores" in op)
          limit(place, "semaphores of an operation", op.semaphores.length, MSCCLPP_LIMITS.semaphoresPerOp);
        if (op.kind === "put" || op.kind === "get") {
          limit(place, "ranges of an operation", Math.max(op.src.length, op.dst.length), MSCCLPP_LIMITS.rangesPerOp);
        }
        if (op.kind === "reduce") {
          const sources = op.src.length + op.remoteSrc.length;
          const targets = 1 + op.remoteDst.length + (op.packetDst === undefined ? 0 : 1);
          limit(place, "ranges of an operation", Math.max(sources, targets), MSCCLPP_LIMITS.rangesPerOp);
        }
        const defect = defectOf(op, outer, plan.options.protocol);
        if (defect !== undefined) {
          findings.at(plan, place, { code: "target-defect", severity: "error", ...defect });
        }
      });
    });
  });
  limit([r, -1, -1], "barriers of a rank", barriers.size, MSCCLPP_LIMITS.barriers);
}

class StrandUse {
  ops = 0;
  readonly channels = new Map<string, Set<number>>();
  readonly remote = new Map<string, Set<string>>();
  constructor(strand: Strand) {
    for (const outer of strand.ops) {
      if (outer.kind === "pipeline") this.ops++;
      for (const op of bodyOf(outer)) {
        this.ops++;
        if ("channels" in op && op.channelKind !== undefined) {
          const ids = this.channels.get(op.channelKind) ?? new Set();
          for (const id of op.channels) ids.add(id);
          this.channels.set(op.channelKind, ids);
        }
        const remote =
          op.kind === "get" ? op.src : op.kind === "put" ? op.dst : op.kind === "reduce" ? op.remoteDst : [];
        const more = op.kind === "reduce" ? op.remoteSrc : [];
        for (const range of [...remote, ...more]) {
          const kind = ("channelKind" in op ? op.channelKind : undefined) ?? "memory";
          const buffers = this.remote.get(kind) ?? new Set();
          buffers.add(`${range.rank} ${range.buffer}`);
          this.remote.set(kind, buffers);
        }
      }
    }
  }
}

/** What MSCCL++ 0.9's kernels do otherwise than the operation says. */
function defectOf(
  op: SimpleOp,
  outer: Op,
  protocol: ExecutionPlan["options"]["protocol"],
): { message: string; hint: string } | undefined {
  if (protocol === "Simple" && movesPackets(op)) {
    return {
      message:
        "moves packets in a plan of protocol Simple: the executor makes room for them (twice the scratch) only with LL",
      hint: "declare the protocol LL",
    };
  }
  if ("op" in op && op.op !== "sum") {
    return {
      message: `reduces with ${op.op}; the executor never reads the operator and sums`,
      hint: "only sums run on this executor",
    };
  }
  if (op.kind === "switch-reduce") {
    return {
      message: "the executor does not know this operation (glre)",
      hint: "follow it with a broadcast of the same range, which fuses",
    };
  }
  if (op.kind === "switch-reduce-broadcast" && (op.src.index !== op.dst.index || op.src.channel !== op.dst.channel)) {
    return {
      message: "the executor stores at the offset it reduced from",
      hint: "broadcast to the place that was reduced",
    };
  }
  if (op.kind === "get" && op.src.some((range, i) => range.index !== op.dst[i]?.index)) {
    return {
      message: "the executor swaps the offsets of source and destination of a get",
      hint: "use equal offsets on both sides, or a put of the peer",
    };
  }
  if (op.kind === "flush") {
    return {
      message: "the executor's flush does nothing (it counts no channels)",
      hint: "use put with signal and flush",
    };
  }
  if (op.kind === "put" && op.channelKind === "memory" && new Set(op.src.map((range) => range.buffer)).size > 1) {
    return {
      message: "the executor takes every source from the buffer of the first",
      hint: "do not put from different buffers in one operation",
    };
  }
  if (op.kind === "put" && op.channelKind === "port" && op.format === "pack") {
    return { message: "the executor sends the source as it is, as packets", hint: "copy it to packets first" };
  }
  if (outer.kind === "pipeline" && !movesPackets(op)) {
    const size = sizeOf(op);
    if (size !== undefined && size < outer.numChunks) {
      return {
        message: `handles ${size} chunk${size === 1 ? "" : "s"} in a loop over ${outer.numChunks}: the executor runs past its end`,
        hint: "give the loop as many chunks as its operations have",
      };
    }
  }
  if (outer.kind === "pipeline" && "tbg" in op && op.tbg !== undefined) {
    return {
      message: "a part of a thread-block group inside a pipeline runs past its part",
      hint: "use a pipeline for each strand",
    };
  }
  return undefined;
}

/** Chunks of a data operation's ranges. */
function sizeOf(op: SimpleOp): number | undefined {
  switch (op.kind) {
    case "copy":
    case "switch-broadcast":
      return op.src.size;
    case "get":
    case "put":
      return op.src[0]?.size;
    case "reduce":
    case "switch-reduce":
    case "switch-reduce-broadcast":
      return op.dst.size;
    default:
      return undefined;
  }
}
