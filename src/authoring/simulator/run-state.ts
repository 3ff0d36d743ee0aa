/** The records of a run, what it takes, and the state of its strands and counters. */
import type { ExecutionPlan, PipelineOp, SimpleOp } from "../plan/index.ts";
import type { SystemParameters } from "./parameters.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

/** One executed operation. */
export interface OpRecord {
  readonly rank: number;
  readonly strand: number;
  readonly op: number;
  readonly body: number;
  readonly iteration: number;
  readonly startUs: number;
  endUs: number;
  /** The operation before it on its strand, and the one of another strand that it waited for; -1 for none. */
  readonly previous: number;
  cause: number;
  /** Ranks that its data went to or came from. */
  peers: readonly number[];
  bytes: number;
}

export interface StuckStrand {
  readonly rank: number;
  readonly strand: number;
  readonly op: number;
  readonly why: string;
  /** Ranks that it waits for. */
  readonly waitsFor: readonly number[];
}

export interface RunPlanInput {
  readonly plan: ExecutionPlan;
  readonly machine: SimulatedMachine;
  readonly parameters: SystemParameters;
  readonly chunkBytes: number;
  /** Switch operations use the fabric's multicast and in-switch reduction; otherwise they are loops over the members. */
  readonly switchOps: boolean;
  readonly capacities: readonly number[];
  /** Rank -> index of the operation at which all its strands stop. */
  readonly deadAt: ReadonlyMap<number, number>;
  /** When the run is given up. */
  readonly untilUs: number | undefined;
}

export interface PlanRun {
  readonly timeUs: number;
  readonly rankEndUs: readonly number[];
  readonly records: readonly OpRecord[];
  /** Bytes carried by each directed link, losses of the protocol included. */
  readonly linkBytes: Float64Array;
  readonly stuck: readonly StuckStrand[];
  /** False for a run that was given up. */
  readonly ended: boolean;
}

export interface Counter {
  /** What a strand waits for here, in words. */
  readonly what: string;
  readonly from: number;
  arrived: number;
  taken: number;
  /** Record of each signal, in order of arrival. */
  readonly records: number[];
  readonly waiting: Set<Strand>;
}
export interface Strand {
  readonly rank: number;
  readonly index: number;
  op: number;
  body: number;
  iteration: number;
  /** Its own time; never before the network's. */
  time: number;
  /** When everything that it stored is visible. */
  visibleAt: number;
  lastRecord: number;
  /** Record of the operation in progress, when others already refer to it; -1 otherwise. */
  open: number;
  outstanding: number;
  flushing: boolean;
  done: boolean;
  dead: boolean;
  startedAt: number;
  waitingFor: { why: string; ranks: readonly number[] } | undefined;
}

/** Times a pipeline runs its body. */
export function iterationsOf(chunkBytes: number, op: PipelineOp): number {
  return Math.max(0, Math.ceil((op.numChunks * chunkBytes) / op.unitBytes - 1e-9));
}

/** Chunks [begin, end) of a range of `size` chunks that the strand handles now, relative to its first. */
export function share(
  strand: Pick<Strand, "iteration">,
  chunkBytes: number,
  op: SimpleOp,
  size: number,
  pipeline: PipelineOp | undefined,
  packets: boolean,
) {
  let begin = 0;
  let end = size;
  if ("tbg" in op && op.tbg !== undefined) {
    begin = (size / op.tbg.size) * op.tbg.index;
    end = begin + size / op.tbg.size;
  }
  if (pipeline !== undefined && !packets) {
    const unit = pipeline.unitBytes / chunkBytes;
    begin += strand.iteration * unit;
    end = Math.min(end, begin + unit);
  }
  return { begin, end: Math.max(begin, end), bytes: Math.max(0, end - begin) * chunkBytes };
}

/** Ranges that an operation reads as packets, in chunks of its rank's scratch. */
export function packetSources(
  strand: Strand,
  chunkBytes: number,
  op: SimpleOp,
  pipeline: PipelineOp | undefined,
): { begin: number; end: number }[] {
  const ranges =
    op.kind === "copy" || op.kind === "switch-broadcast"
      ? [op.src]
      : op.kind === "put"
        ? op.src
        : op.kind === "reduce"
          ? op.src.slice(1)
          : [];
  return ranges.map((range) => {
    const part = share(strand, chunkBytes, op, range.size, pipeline, true);
    return { begin: range.index + part.begin, end: range.index + part.end };
  });
}
