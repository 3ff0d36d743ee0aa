/**
 * Limits (`executor-limits.ts` of plan/) and defects of the executor that a plan is meant for. Source of the defects: microsoft/mscclpp
 * 0.9, `src/core/executor/execution_plan.cpp` and `src/core/include/execution_kernel.hpp`.
 */
import {
  bodyOf,
  type ExecutionPlan,
  limitViolations,
  type Op,
  type PipelineOp,
  type RankPlan,
  type SimpleOp,
} from "../plan/index.ts";
import type { Findings } from "./findings.ts";
import { missesHalf, outgrowsSharedScratch, packetsOverPlain } from "./scratch-places.ts";
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
  for (const { place, owner, packets, plain } of packetsOverPlain(plan)) {
    findings.at(plan, place, {
      code: "target-defect",
      severity: "error",
      message: `moves packets of scratch[${packets}] of rank ${owner}, which lie over plain data of scratch[${plain}] on this executor (packets of chunk i take up the room of chunks 2i and 2i+1): they destroy each other, and plain data that looks like the number of a launch passes for packets`,
      hint: "give plain data chunks of scratch behind those that packets take up: with packets in n chunks from 0, from chunk 2n",
    });
  }
  for (const { place, inLoop, shareBytes, maxMessageBytes } of outgrowsSharedScratch(plan)) {
    const share = `reuse_resources gives each chunk of scratch ${shareBytes} bytes on this executor, too few for messages above ${maxMessageBytes} bytes`;
    findings.at(plan, place, {
      code: inLoop ? "undecided" : "target-defect",
      severity: "error",
      message: inLoop
        ? `${share}: the loop uses them again from their beginning, and nothing here proves that what lay there was read`
        : `${share}: this operation reads or writes on in the next chunk`,
      hint: `set max_message_size to at most ${maxMessageBytes}, or leave reuse_resources off`,
    });
  }
  for (const rank of plan.ranks) {
    const empty = (["input", "output"] as const).find((buffer) => rank[buffer].chunks === 0);
    if (empty !== undefined)
      findings.atRank(rank.rank, {
        code: "target-defect",
        severity: "error",
        message: `rank ${rank.rank} has no chunks of ${empty}: the executor divides by their number as it loads the plan, and ends there`,
        hint: `give it as many chunks of ${empty} as others have; nobody need use them`,
      });
    const contested = contestedSemaphores(rank);
    rank.strands.forEach((strand, s) => {
      strand.ops.forEach((outer, o) => {
        const problem = outer.kind === "pipeline" ? tooLong(outer, plan, rank) : undefined;
        if (problem !== undefined)
          findings.at(plan, [rank.rank, s, o], { code: "limit-exceeded", severity: "error", ...problem });
        bodyOf(outer).forEach((op, b) => {
          const defect =
            defectOf(op, outer, plan.options.protocol) ??
            leftover(op, outer, plan.options.bufferAlignment) ??
            greedyAcquire(op, contested) ??
            otherHalf(op, plan, rank.rank);
          if (defect === undefined) return;
          const place = [rank.rank, s, o, outer.kind === "pipeline" ? b : undefined] as const;
          findings.at(plan, place, { code: "target-defect", severity: "error", ...defect });
        });
      });
    });
  }
}

/** Sizes and offsets have 32 bits on the executor, the number of iterations of a loop 16: it runs the remainder only. */
const MAX_BYTES = 2n ** 32n - 1n;
const MAX_ITERATIONS = 2n ** 16n - 1n;

/** A loop that runs too often at the largest message of a plan: its chunks, of input or else of output, make up the message. */
function tooLong(
  { numChunks, unitBytes }: PipelineOp,
  { collective, options }: ExecutionPlan,
  { input, output }: RankPlan,
): { message: string; hint: string } | undefined {
  const [first, second] = collective.operation === "all_gather" ? [output, input] : [input, output];
  const messageChunks = BigInt(first.chunks === 0 ? second.chunks : first.chunks);
  if (BigInt(unitBytes) > MAX_BYTES)
    return { message: `has units of ${unitBytes} bytes, the executor holds ${MAX_BYTES}`, hint: "use smaller units" };
  if (messageChunks === 0n || numChunks === 0) return undefined;
  // ceil(numChunks * message / messageChunks / unit), at most so many: the message, rounded down.
  const most = (MAX_ITERATIONS * BigInt(unitBytes) * messageChunks) / BigInt(numChunks);
  const largest = options.maxMessageSizeBytes < MAX_BYTES ? options.maxMessageSizeBytes : MAX_BYTES;
  if (largest <= most) return undefined;
  return {
    message: `runs more than ${MAX_ITERATIONS} times for messages above ${most} bytes, of which the executor counts the lower 16 bits only`,
    hint: `use larger units, or set max_message_size to at most ${most}`,
  };
}

/** Semaphores that more than one strand of a rank acquires. */
function contestedSemaphores(rank: RankPlan): ReadonlySet<number> {
  const takers = new Map<number, number>();
  for (const { ops } of rank.strands) {
    const own = ops.flatMap(bodyOf).flatMap((op) => (op.kind === "acquire" ? op.semaphores : []));
    for (const id of new Set(own)) takers.set(id, (takers.get(id) ?? 0) + 1);
  }
  return new Set([...takers].flatMap(([id, count]) => (count > 1 ? [id] : [])));
}

function greedyAcquire(op: SimpleOp, contested: ReadonlySet<number>): { message: string; hint: string } | undefined {
  if (op.kind !== "acquire" || op.semaphores.length < 2 || !op.semaphores.some((id) => contested.has(id)))
    return undefined;
  return {
    message:
      "takes several semaphores, for one of which other strands compete: the executor takes each as soon as it is there",
    hint: "acquire them one by one, in the same order in every strand",
  };
}

function otherHalf(op: SimpleOp, plan: ExecutionPlan, rank: number): { message: string; hint: string } | undefined {
  if (!missesHalf(op, plan, rank)) return undefined;
  return {
    message:
      "reaches plain data of scratch over a channel, in a plan with two halves of scratch: the executor uses the first half there in every launch, and takes turns elsewhere",
    hint: "leave use_double_scratch_buffer off, and synchronise the ranks at the end of the plan",
  };
}

/** Bytes that a thread of a reduction moves at once, and bytes of data in a packet. */
const REDUCED_AT_ONCE = 16;
const PACKET_BYTES = 8;
const WORD_BYTES = 4;

/**
 * Sizes that are no multiple of what threads move at once. The executor takes messages only whose chunks are multiples of the
 * buffer alignment, and cuts parts of groups at multiples of it; so an operation's size and offsets are multiples of the
 * alignment, and inside a pipeline of the unit, too. Where both are multiples of 16 bytes nothing is left over. Where not:
 * reductions round offsets of 16 bytes down (`handleReduceSend`, `handleReadReduceSend`), and what is left over at the end they
 * look up at the offset of the source in every buffer, added to that buffer's own (and, with remote sources, in input and
 * output whatever the buffers are), so only an operation whose ranges all begin at 0 would be right; reductions through the
 * switch add bytes to a pointer to elements. Packets that are not full are not sent. Copies move words of 4 bytes.
 */
function leftover(op: SimpleOp, outer: Op, bufferAlignment: number): { message: string; hint: string } | undefined {
  const packets = movesPackets(op);
  const multiple = packets
    ? PACKET_BYTES
    : op.kind === "reduce" || op.kind === "switch-reduce-broadcast"
      ? REDUCED_AT_ONCE
      : op.kind === "copy" || op.kind === "get" || op.kind === "put" || op.kind === "switch-broadcast"
        ? WORD_BYTES
        : 1;
  const what = packets ? "packets" : multiple === REDUCED_AT_ONCE ? "reductions" : "copies";
  if (bufferAlignment % multiple !== 0)
    return {
      message: `is done on chunks that are multiples of ${bufferAlignment} bytes; ${what} of the executor are right for multiples of ${multiple} only`,
      hint: `make buffer_alignment a multiple of ${multiple}; 16 is what it is by default`,
    };
  // Packets ignore the unit.
  if (outer.kind === "pipeline" && !packets && outer.unitBytes % multiple !== 0)
    return {
      message: `is done in units of ${outer.unitBytes} bytes; ${what} of the executor are right for multiples of ${multiple} only`,
      hint: `make the unit a multiple of ${multiple}`,
    };
  return undefined;
}

/** Which sides of a reduction MSCCL++'s kernels of other names have: they leave out what the name does not say. */
const WRITES_REMOTE: readonly string[] = ["res", "rres", "respkt", "recspkt"];
const READS_REMOTE: readonly string[] = ["rre", "rres"];

/**
 * What MSCCL++ 0.9's kernels do otherwise than the operation says. That signals and waits are done by one thread each, and
 * that threads move fewer bytes of packets than of plain data, is no operation's own: `verify-plan.ts` runs the plan so.
 */
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
  if (op.kind === "put" && op.format === "forward" && op.src.length > 1) {
    return {
      message: `forwards packets from ${op.src.length} sources; the executor reads the first and sends it to every destination`,
      hint: "forward each source by an operation of its own",
    };
  }
  if (op.kind === "reduce" && op.statedName !== undefined) {
    const { statedName: name } = op;
    if (op.remoteDst.length > 0 && !WRITES_REMOTE.includes(name))
      return {
        message: `has a remote destination, which the executor's ${name} does not write`,
        hint: "call it res (rres, respkt, recspkt)",
      };
    if (op.remoteSrc.length > 0 && !READS_REMOTE.includes(name))
      return {
        message: `has a remote source, which the executor's ${name} does not read`,
        hint: "call it rre or rres",
      };
    return {
      message: `is called ${name}, which the executor does with other sources and destinations`,
      hint: "use the name for them",
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
    return {
      message:
        "the executor sends the source as it is, as packets, and finds its buffer only in the first plan that it runs",
      hint: "copy it to packets, and forward these",
    };
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
