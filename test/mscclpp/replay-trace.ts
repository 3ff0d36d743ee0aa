/**
 * Replays a trace of MSCCL++ DSL calls (JSON, one call an object, absolute chunk indices) and lowers it as the DSL
 * would. This is how chorale is compared with MSCCL++: same calls in, same plan out.
 */

import { SYNC, type SyncName } from "../../src/authoring/compiler/draft-ops.ts";
import { type CompatOptions, checkPairing, lowerRank } from "../../src/authoring/compiler/mscclpp/mscclpp-lowering.ts";
import type { RawChunk } from "../../src/authoring/compiler/op-tape.ts";
import {
  type ChannelRecord,
  MEMORY,
  PORT,
  type SemaphoreRecord,
  type SwitchRecord,
} from "../../src/authoring/compiler/rank-records.ts";
import { Recorder, type Strands } from "../../src/authoring/compiler/recorder.ts";
import { type MscclppHeader, writeMscclppPieces } from "../../src/authoring/interchange/write-mscclpp-json.ts";
import type {
  ExecutionPlan,
  PlanCollective,
  PlanOptions,
  PlanReduceOp,
  RankPlan,
} from "../../src/authoring/plan/execution-plan.ts";
import { FormatError, InvalidArgumentError } from "../../src/core/index.ts";

export type TraceChunk = readonly [rank: number, buffer: "i" | "o" | "s", index: number, size: number];

export interface TraceProgram {
  readonly name: string | null;
  readonly collective: {
    readonly kind: string;
    readonly num_ranks: number;
    readonly chunk_factor?: number;
    readonly inplace?: boolean;
    readonly input_size?: number;
    readonly output_size?: number;
  };
  readonly num_ranks: number;
  readonly instances: number;
  readonly protocol: string;
  readonly instr_fusion: boolean;
  readonly auto_sync: boolean;
  readonly replication_policy: string;
  readonly reuse_resources: boolean;
  readonly num_threads_per_block: number;
  readonly use_double_scratch_buffer: boolean;
  readonly buffer_alignment: number;
  readonly min_message_size: string | number;
  readonly max_message_size: string | number;
}

/** One call; which fields there are depends on `op`. */
export interface TraceCall {
  readonly op: string;
  readonly id?: number;
  readonly rank?: number;
  readonly size?: number;
  readonly initial_value?: number;
  readonly dst?: number | TraceChunk | null;
  readonly src?: number | TraceChunk;
  readonly ranks?: readonly number[];
  readonly buffer?: "i" | "o" | "s";
  readonly tb?: number | null;
  readonly tbg?: readonly number[] | null;
  readonly others?: readonly TraceChunk[];
  readonly reduce_op?: PlanReduceOp;
  readonly packet?: boolean;
  readonly tb_list?: readonly number[];
  readonly sem?: number;
  readonly data_sync?: SyncName;
  readonly ch?: number;
  readonly relaxed?: boolean;
  readonly local_src?: TraceChunk;
  readonly remote_srcs?: readonly TraceChunk[];
  readonly local_dst?: TraceChunk | null;
  readonly offset?: number;
  readonly unit?: number;
  readonly num_chunks?: number;
  readonly error?: readonly [string, string];
}

export interface Trace {
  readonly program: TraceProgram;
  readonly calls: readonly TraceCall[];
}

const OPERATIONS: Readonly<Record<string, PlanCollective["operation"]>> = {
  AllReduce: "all_reduce",
  AllGather: "all_gather",
  ReduceScatter: "reduce_scatter",
  AllToAll: "all_to_all",
  SendRecv: "send_recv",
  TestCollective: "test",
};
const FILE_NAMES: Readonly<Record<string, string>> = { SendRecv: "sendrecv", TestCollective: "test" };
const CARRIES_CHUNKS = /^(copy|unpack|reduce|get|put|read_put|ch_reduce|sw_)/;
const CHUNK_BUFFER = { i: 0, o: 1, s: 2 } as const;

/** A recorded trace, ready to lower. */
export interface Replayed {
  readonly recorder: Recorder;
  readonly header: MscclppHeader;
  readonly collective: PlanCollective;
  readonly segments: { readonly input: number; readonly output: number };
  readonly compat: CompatOptions;
}

/** Chunks of input and output of a rank, as MSCCL++'s collectives allocate them. */
function mscclppChunks(
  kind: string,
  n: number,
  factor: number,
  input = 0,
  output = 0,
): { input: number; output: number } {
  switch (kind) {
    case "AllReduce":
    case "AllToAll":
      return { input: n * factor, output: n * factor };
    case "AllGather":
      return { input: factor, output: n * factor };
    case "ReduceScatter":
      return { input: n * factor, output: factor };
    case "SendRecv":
      return { input: factor, output: factor };
    case "TestCollective":
      return { input, output };
    default:
      throw new InvalidArgumentError("collective", kind, Object.keys(OPERATIONS).join(", "));
  }
}

function options(p: TraceProgram): PlanOptions {
  if (p.protocol !== "Simple" && p.protocol !== "LL")
    throw new InvalidArgumentError("protocol", p.protocol, "Simple or LL");
  return {
    protocol: p.protocol,
    instances: p.instances,
    reuseResources: p.reuse_resources,
    numThreadsPerBlock: p.num_threads_per_block,
    useDoubleScratchBuffer: p.use_double_scratch_buffer,
    bufferAlignment: p.buffer_alignment,
    minMessageSizeBytes: BigInt(p.min_message_size),
    maxMessageSizeBytes: BigInt(p.max_message_size),
  };
}

/** Calls what a trace says. A call that the trace marks as failed must fail here too, and is skipped. */
export function replay(trace: Trace): Replayed {
  const p = trace.program;
  const c = p.collective;
  const factor = c.kind === "TestCollective" ? 1 : (c.chunk_factor ?? 1);
  const planOptions = options(p);
  if (p.num_ranks > c.num_ranks)
    throw new InvalidArgumentError("num_ranks", p.num_ranks, `at most the collective's ${c.num_ranks}`);
  const chunks = mscclppChunks(c.kind, c.num_ranks, factor, c.input_size, c.output_size);
  if (p.replication_policy !== "interleaved" && trace.calls.some((call) => CARRIES_CHUNKS.test(call.op))) {
    throw new InvalidArgumentError(
      "replication_policy",
      p.replication_policy,
      "interleaved: upstream's other policy fails on any operation with chunks",
    );
  }
  const recorder = new Recorder({
    numRanks: p.num_ranks,
    inputChunks: () => chunks.input,
    outputChunks: () => chunks.output,
    strict: false,
  });
  const channels = new Map<number, ChannelRecord | SwitchRecord>();
  const semaphores = new Map<number, SemaphoreRecord>();
  for (const call of trace.calls) {
    if (call.error === undefined) {
      replayCall(call, recorder, channels, semaphores);
      continue;
    }
    let failed = false;
    try {
      replayCall(call, recorder, channels, semaphores);
    } catch {
      failed = true;
    }
    if (!failed) throw new FormatError("trace", `${call.op} should have failed: ${call.error[1]}`);
  }
  const inPlace = c.inplace ?? false;
  const operation = OPERATIONS[c.kind] as PlanCollective["operation"];
  const parts = operation === "all_reduce" ? c.num_ranks * factor : factor;
  return {
    recorder,
    header: { name: p.name, collective: FILE_NAMES[c.kind] ?? c.kind.toLowerCase(), inPlace, options: planOptions },
    collective: { operation, numRanks: c.num_ranks, chunksPerPart: parts, inPlace },
    segments: {
      input: operation === "reduce_scatter" || operation === "all_to_all" ? c.num_ranks : 1,
      output: operation === "all_gather" || operation === "all_to_all" ? c.num_ranks : 1,
    },
    compat: { instances: p.instances, fusion: p.instr_fusion, autoSync: p.auto_sync },
  };
}

function raw(chunk: TraceChunk): RawChunk {
  return { rank: chunk[0], buffer: CHUNK_BUFFER[chunk[1]], index: chunk[2], size: chunk[3] };
}

function replayCall(
  call: TraceCall,
  recorder: Recorder,
  channels: Map<number, ChannelRecord | SwitchRecord>,
  semaphores: Map<number, SemaphoreRecord>,
): void {
  const id = call.id ?? 0;
  const sync = SYNC[call.data_sync ?? "both"];
  const strands = (): Strands => {
    const { tb: one, tbg: group } = call;
    if (group !== undefined && group !== null) {
      recorder.need(new Set(group).size === group.length, "tbg", group, "different thread blocks");
      return one === undefined || one === null ? group : { group, strand: one };
    }
    recorder.need(one !== undefined && one !== null, "tb", one, "a thread block or a group of them");
    return one;
  };
  const tb = () => call.tb as number;
  const at = (value: TraceCall["dst"]) => raw(value as TraceChunk);
  const known = <T>(value: T | undefined): T => {
    recorder.need(
      value !== undefined,
      "channel or semaphore of a call",
      call.ch ?? call.sem,
      "one that was created before",
    );
    return value;
  };
  const channel = () => known(channels.get(call.ch ?? -1)) as ChannelRecord;
  const multi = () => known(channels.get(call.ch ?? -1)) as SwitchRecord;
  const rank = call.rank ?? 0;
  switch (call.op) {
    case "Buffer":
      recorder.scratch(rank, call.size ?? 0);
      return;
    case "Semaphore":
      semaphores.set(id, recorder.semaphore(rank, call.initial_value ?? 0));
      return;
    case "MemoryChannel":
    case "PortChannel":
      channels.set(
        id,
        recorder.channel(call.op === "MemoryChannel" ? MEMORY : PORT, call.dst as number, call.src as number),
      );
      return;
    case "SwitchChannel":
      channels.set(id, recorder.switchChannel(call.ranks ?? [], CHUNK_BUFFER[call.buffer ?? "i"]));
      return;
    case "copy":
    case "copy_packets":
    case "unpack_packets": {
      const format = call.op === "copy" ? "plain" : call.op === "copy_packets" ? "pack" : "unpack";
      recorder.copy(rank, format, at(call.dst), at(call.src), strands());
      return;
    }
    case "reduce": {
      const src = at(call.src);
      const dst = call.dst === null || call.dst === undefined ? src : at(call.dst);
      recorder.reduce(
        rank,
        src,
        (call.others ?? []).map(raw),
        dst,
        call.reduce_op ?? "sum",
        call.packet ?? false,
        strands(),
      );
      return;
    }
    case "barrier":
      recorder.barrier(rank, call.tb_list ?? []);
      return;
    case "sem_acquire":
    case "sem_release":
      recorder.acquireOrRelease(
        call.op === "sem_acquire" ? "acquire" : "release",
        known(semaphores.get(call.sem ?? -1)),
        tb(),
        sync,
      );
      return;
    case "signal":
    case "wait":
      recorder.signalOrWait(call.op, channel(), call.relaxed ?? false, tb(), sync);
      return;
    case "flush":
      recorder.flush(channel(), tb(), sync);
      return;
    case "get":
      recorder.get(channel(), at(call.dst), at(call.src), strands());
      return;
    case "put":
      recorder.put(channel(), "plain", "none", at(call.dst), at(call.src), strands());
      return;
    case "put_packets":
      recorder.put(channel(), "pack", "none", at(call.dst), at(call.src), strands());
      return;
    case "read_put_packets":
      recorder.put(channel(), "forward", "none", at(call.dst), at(call.src), strands());
      return;
    case "put_with_signal":
      recorder.put(channel(), "plain", "signal", at(call.dst), at(call.src), tb());
      return;
    case "put_with_signal_and_flush":
      recorder.put(channel(), "plain", "signal-flush", at(call.dst), at(call.src), tb());
      return;
    case "ch_reduce": {
      const src = raw(call.local_src as TraceChunk);
      const dst = call.local_dst === null || call.local_dst === undefined ? src : raw(call.local_dst);
      recorder.channelReduce(
        channel(),
        src,
        (call.remote_srcs ?? []).map(raw),
        dst,
        call.reduce_op ?? "sum",
        strands(),
      );
      return;
    }
    case "sw_reduce":
      recorder.switchReduce(
        multi(),
        rank,
        call.offset ?? 0,
        call.size ?? 0,
        at(call.dst),
        call.reduce_op ?? "sum",
        tb(),
      );
      return;
    case "sw_broadcast":
    case "sw_broadcast_packets":
      recorder.switchBroadcast(
        multi(),
        rank,
        call.op === "sw_broadcast_packets",
        at(call.src),
        call.offset ?? 0,
        call.size ?? 0,
        tb(),
      );
      return;
    case "loop_begin":
      recorder.beginLoop(call.unit ?? 0, call.num_chunks ?? 0);
      return;
    case "loop_end":
      recorder.endLoop();
      return;
    default:
      throw new FormatError("trace", `unknown call ${call.op}`, { field: "op" });
  }
}

/** The ranks' plans, one at a time. */
export function* lowerReplayed(r: Replayed, rounds = 1, finished = true): Generator<RankPlan> {
  for (let round = 0; round < rounds; round++) checkPairing(r.recorder);
  for (const record of r.recorder.ranks) yield lowerRank(record, { ...r.compat, rounds, finished });
}

/** The text of the plan that MSCCL++ would print for a trace. */
export function replayToText(trace: Trace, rounds = 1): string {
  const replayed = replay(trace);
  const pieces: string[] = [];
  writeMscclppPieces(replayed.header, lowerReplayed(replayed, rounds, false), (piece) => pieces.push(piece));
  return pieces.join("");
}

/** The plan of a trace as chorale's IR. */
export function replayToPlan(trace: Trace, rounds = 1): ExecutionPlan {
  const replayed = replay(trace);
  const ranks = [...lowerReplayed(replayed, rounds)].map((rank) => ({
    ...rank,
    input: { ...rank.input, segments: replayed.segments.input },
    output: { ...rank.output, segments: replayed.segments.output },
  }));
  return {
    schemaVersion: 1,
    name: replayed.header.name,
    mode: "mscclpp",
    collective: replayed.collective,
    options: { ...replayed.header.options, instances: trace.program.instances ** rounds },
    ranks,
    sources: [],
  };
}
