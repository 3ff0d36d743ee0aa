/**
 * Limits (`executor-limits.ts` of plan/) and defects of the executor that a plan is meant for. Source of the defects: microsoft/mscclpp
 * 0.9, `src/core/executor/execution_plan.cpp` and `src/core/include/execution_kernel.hpp`.
 */
import { bodyOf, type ExecutionPlan, limitViolations, type Op, type SimpleOp } from "../plan/index.ts";
import type { Findings } from "./findings.ts";
import { movesPackets } from "./strand-state.ts";

export const TARGETS = ["mscclpp"] as const;
export type Target = (typeof TARGETS)[number];

/** Checks a plan against an executor's limits and known defects. */
export function checkTarget(plan: ExecutionPlan, target: Target, findings: Findings): void {
  if (target === "mscclpp") checkMscclpp(plan, findings);
}

function checkMscclpp(plan: ExecutionPlan, findings: Findings): void {
  for (const { rank, strand, op, limit, message } of limitViolations(plan)) {
    // What it does not do is said below, with more words.
    if (limit === "unsupported") continue;
    findings.at(plan, [rank, strand, op ?? -1], {
      code: "limit-exceeded",
      severity: "error",
      message,
      hint: "split the work over more strands or operations",
    });
  }
  for (const rank of plan.ranks) {
    rank.strands.forEach((strand, s) => {
      strand.ops.forEach((outer, o) => {
        bodyOf(outer).forEach((op, b) => {
          const defect = defectOf(op, outer, plan.options.protocol);
          if (defect === undefined) return;
          const place = [rank.rank, s, o, outer.kind === "pipeline" ? b : undefined] as const;
          findings.at(plan, place, { code: "target-defect", severity: "error", ...defect });
        });
      });
    });
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
