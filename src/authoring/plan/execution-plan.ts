/**
 * The execution plan: what every rank does, strand by strand. Frozen plain data, printable, hashable, JSON-serialisable.
 * Made by `compile` and by the readers of foreign formats; run by the executors, proved by the verifier, timed by the
 * simulator. Operation vocabulary after the MSCCL++ execution plan (microsoft/mscclpp, `python/mscclpp/language`),
 * meaning as docs/semantics.md has it. In short:
 *
 * - Ranges count chunks. `plan-layout.ts` turns chunks into bytes. `index` is absolute within the buffer.
 * - Strands (thread blocks) of a rank run concurrently; operations of a strand are issued in order, but two data
 *   operations of a strand are ordered only element by element unless a nop, barrier or synchronisation stands between.
 * - The k-th memory (port) channel A->B pairs with the k-th memory (port) channel B->A. A channel id in an operation is
 *   the index in `RankPlan.channels.memory` (`.port`, `.switch`) of the rank that executes it.
 * - A list of channels, sources and destinations of one operation is positional: destination i is reached by channel i.
 * - `tbg`: the strand does part `index` of `size` parts of every range of the operation (docs/semantics.md, section 2).
 *
 * This file has no passes and no checks: interchange/ checks the shape of files, verifier/ checks meaning.
 */

import type { ChunkValue, CollectiveName } from "../../collectives/index.ts";
import { REDUCE_OPS } from "../../core/index.ts";

export const PLAN_SCHEMA_VERSION = 1;

export const BUFFERS = ["input", "output", "scratch"] as const;
export type BufferKind = (typeof BUFFERS)[number];

/**
 * Operators that a plan may name. MSCCL++'s files know only sum, min and max. A collective's `avg`: its operations are
 * sums, and whoever runs the plan divides each result once by the number of ranks.
 */
export const PLAN_REDUCE_OPS = REDUCE_OPS;
export type PlanReduceOp = (typeof PLAN_REDUCE_OPS)[number];

/** How a remote buffer is reached: loads and stores, or a proxy that puts. */
export type ChannelKind = "memory" | "port";

/** `size` chunks of a buffer of the executing rank, from chunk `index`. */
export interface Range {
  readonly buffer: BufferKind;
  readonly index: number;
  readonly size: number;
}

/** `size` chunks of a buffer of another rank. */
export interface RemoteRange {
  readonly rank: number;
  readonly buffer: BufferKind;
  readonly index: number;
  readonly size: number;
}

/** `size` chunks of the buffer that a switch channel spans, at the same index on every member. */
export interface SwitchRange {
  readonly channel: number;
  readonly index: number;
  readonly size: number;
}

/** The strand's share of an operation that several strands do together. */
export interface GroupSlice {
  readonly index: number;
  readonly size: number;
}

interface OpBase {
  /** Index in `ExecutionPlan.sources`: the line of the program that asked for it (the first, when several were fused). */
  readonly source?: number | undefined;
}
interface DataOpBase extends OpBase {
  readonly tbg?: GroupSlice | undefined;
}

/** Block-wide synchronisation of one strand: everything before is done before anything after. */
export interface NopOp extends OpBase {
  readonly kind: "nop";
}

/** Meets the other strands of the rank that name the same barrier: `numStrands` of them, each time. */
export interface BarrierOp extends OpBase {
  readonly kind: "barrier";
  readonly barrier: number;
  readonly numStrands: number;
}

/** dst = src. `format` `pack`: dst (scratch) receives packets; `unpack`: src (scratch) is packets, waits for them. */
export interface CopyOp extends DataOpBase {
  readonly kind: "copy";
  readonly format: "plain" | "pack" | "unpack";
  readonly src: Range;
  readonly dst: Range;
}

/** dst[i] = remote src[i], through channel i. */
export interface GetOp extends DataOpBase {
  readonly kind: "get";
  readonly channelKind: ChannelKind;
  readonly channels: readonly number[];
  readonly src: readonly RemoteRange[];
  readonly dst: readonly Range[];
}

/**
 * Remote dst[i] = src[i], through channel i.
 * `format`: `plain`; `pack` (plain source, packets at dst; over port channels the source is already packets);
 * `forward` (source is packets in scratch, waited for, and sent as packets to every dst: one source, many dsts).
 * `notify`: `signal` raises the channel's counter at the peer after the data is there; `signal-flush` also waits until
 * the source may be reused. Only for port channels and plain puts.
 */
export interface PutOp extends DataOpBase {
  readonly kind: "put";
  readonly format: "plain" | "pack" | "forward";
  readonly notify: "none" | "signal" | "signal-flush";
  readonly channelKind: ChannelKind;
  readonly channels: readonly number[];
  readonly src: readonly Range[];
  readonly dst: readonly RemoteRange[];
}

/**
 * dst = op(src[0], …, remoteSrc[0], …), elementwise, each operand once; then every further destination receives the
 * same value. `packets`: src[1…] are packets in scratch and are waited for (src[0] is plain), and `remoteDst` receives
 * packets. `packetDst`: the value also goes there (own scratch) as packets.
 * `channels` reach remoteSrc in order, then remoteDst in order. `channelKind` is absent when there is no remote side.
 */
export interface ReduceChunksOp extends DataOpBase {
  readonly kind: "reduce";
  readonly op: PlanReduceOp;
  readonly packets: boolean;
  readonly src: readonly Range[];
  readonly remoteSrc: readonly RemoteRange[];
  readonly dst: Range;
  readonly packetDst?: Range | undefined;
  readonly remoteDst: readonly RemoteRange[];
  readonly channelKind?: ChannelKind | undefined;
  readonly channels: readonly number[];
  /** The name that a MSCCL++ file gives the operation, where it is not the one for these sources and destinations. */
  readonly statedName?: string | undefined;
}

/** Raises the counter of each channel at its peer. Not `relaxed`: everything written before is visible to the waiter. */
export interface SignalOp extends OpBase {
  readonly kind: "signal";
  readonly relaxed: boolean;
  readonly channelKind: ChannelKind;
  readonly channels: readonly number[];
}

/** Waits for one more signal on each channel. Not `relaxed`: what the signaller wrote before is visible after. */
export interface WaitOp extends OpBase {
  readonly kind: "wait";
  readonly relaxed: boolean;
  readonly channelKind: ChannelKind;
  readonly channels: readonly number[];
}

/**
 * Waits until the proxy has done everything that this strand requested before, on whichever port channel: the sources may
 * be reused. `channels` are those that the program named.
 */
export interface FlushOp extends OpBase {
  readonly kind: "flush";
  readonly channelKind: "port";
  readonly channels: readonly number[];
}

/** Takes 1 from each semaphore of the rank, waiting while it is 0. Acquires. */
export interface SemaphoreAcquireOp extends OpBase {
  readonly kind: "acquire";
  readonly semaphores: readonly number[];
}

/** Adds 1 to each semaphore of the rank. Releases. */
export interface SemaphoreReleaseOp extends OpBase {
  readonly kind: "release";
  readonly semaphores: readonly number[];
}

/** dst (own buffer) = op over all members of the switch channel's buffer at the range. */
export interface SwitchReduceOp extends DataOpBase {
  readonly kind: "switch-reduce";
  readonly op: PlanReduceOp;
  readonly src: SwitchRange;
  readonly dst: Range;
  /** The rank that a MSCCL++ file names for dst when it is another than the executing one; the executor ignores it. */
  readonly statedRank?: number | undefined;
}

/** The switch channel's buffer of every member, at the range, = src. `forward`: src is packets, and packets arrive. */
export interface SwitchBroadcastOp extends DataOpBase {
  readonly kind: "switch-broadcast";
  readonly format: "plain" | "forward";
  readonly src: Range;
  readonly dst: SwitchRange;
  /** As of `SwitchReduceOp`, for src. */
  readonly statedRank?: number | undefined;
}

/** Every member's buffer at dst = op over every member's buffer at src: reduce and broadcast without a local copy. */
export interface SwitchReduceBroadcastOp extends DataOpBase {
  readonly kind: "switch-reduce-broadcast";
  readonly op: PlanReduceOp;
  readonly src: SwitchRange;
  readonly dst: SwitchRange;
}

/**
 * Runs the body ceil(numChunks * chunkBytes / unitBytes) times; iteration k handles bytes [k * unitBytes, ...) of every
 * plain range of the body. Signals, waits and semaphores run in every iteration.
 */
export interface PipelineOp extends OpBase {
  readonly kind: "pipeline";
  readonly unitBytes: number;
  readonly numChunks: number;
  readonly body: readonly SimpleOp[];
}

export type SimpleOp =
  | NopOp
  | BarrierOp
  | CopyOp
  | GetOp
  | PutOp
  | ReduceChunksOp
  | SignalOp
  | WaitOp
  | FlushOp
  | SemaphoreAcquireOp
  | SemaphoreReleaseOp
  | SwitchReduceOp
  | SwitchBroadcastOp
  | SwitchReduceBroadcastOp;
export type Op = SimpleOp | PipelineOp;
export type OpKind = Op["kind"];
export type OpOf<K extends OpKind> = Extract<Op, { readonly kind: K }>;

export const OP_KINDS = [
  "nop",
  "barrier",
  "copy",
  "get",
  "put",
  "reduce",
  "signal",
  "wait",
  "flush",
  "acquire",
  "release",
  "switch-reduce",
  "switch-broadcast",
  "switch-reduce-broadcast",
  "pipeline",
] as const satisfies readonly OpKind[];

/** A switch channel of a rank: the members' `buffer`s as one multicast range. Same order on every member. */
export interface SwitchChannelPlan {
  readonly buffer: BufferKind;
  readonly ranks: readonly number[];
}

/** Which peer each channel of a rank leads to, by kind and id. */
export interface RankChannels {
  readonly memory: readonly number[];
  readonly port: readonly number[];
  readonly switch: readonly SwitchChannelPlan[];
}

/** One buffer of a peer that a rank reaches. */
export interface RemoteBuffer {
  readonly rank: number;
  readonly buffer: BufferKind;
  readonly access: readonly (ChannelKind | "switch")[];
}

/** The order in which a strand's tables list channels and remote buffers; only for writing MSCCL++ files exactly. */
export interface StrandTables {
  readonly channels: readonly { readonly kind: ChannelKind | "switch"; readonly ids: readonly number[] }[];
  /** Indices in `RankTables.remoteBuffers`. */
  readonly remoteBuffers: readonly { readonly kind: ChannelKind; readonly refs: readonly number[] }[];
}
export interface RankTables {
  readonly remoteBuffers: readonly RemoteBuffer[];
  /** Kinds of channels in the order the file declares them. */
  readonly channelKinds: readonly (ChannelKind | "switch")[];
}

/** A strand: one sequential line of a rank's plan (a GPU thread block, a CPU fiber). `id` is its index. */
export interface Strand {
  readonly id: number;
  readonly ops: readonly Op[];
  readonly tables?: StrandTables;
}

export interface SemaphorePlan {
  readonly initialValue: number;
}

/**
 * How many chunks a buffer has. A collective whose buffer is made of one part per rank (all-gather's output) has
 * `segments` > 1: each part is cut into chunks on its own, so that uneven sizes stay right. See `plan-layout.ts`.
 */
export interface BufferPlan {
  readonly chunks: number;
  readonly segments: number;
}

/**
 * The way that data of a channel takes in the topology that a plan was made for: ids of its nodes, from the rank's device to
 * the peer's. Whoever simulates the plan there follows it; what the plan computes does not depend on it.
 */
export interface ChannelWay {
  readonly kind: ChannelKind;
  readonly channel: number;
  readonly nodes: readonly string[];
}

export interface RankPlan {
  readonly rank: number;
  readonly input: BufferPlan;
  readonly output: BufferPlan;
  readonly scratch: BufferPlan;
  readonly channels: RankChannels;
  readonly semaphores: readonly SemaphorePlan[];
  readonly ways?: readonly ChannelWay[];
  readonly strands: readonly Strand[];
  readonly tables?: RankTables;
}

export interface SourceLocation {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

export interface PlanOptions {
  readonly protocol: "Simple" | "LL";
  /** How often the program was replicated, each instance on its own share of every chunk. Already applied to the ops. */
  readonly instances: number;
  readonly reuseResources: boolean;
  readonly numThreadsPerBlock: number;
  /** Launches alternate between two halves of scratch. */
  readonly useDoubleScratchBuffer: boolean;
  readonly bufferAlignment: number;
  readonly minMessageSizeBytes: bigint;
  readonly maxMessageSizeBytes: bigint;
}

/**
 * What the plan is meant to do, as data. `plan-conditions.ts` turns it into conditions and aliases.
 * `send_recv`: chunk i of rank r's output is chunk i of the input of the rank that sends to it (`sendTo`).
 * `test`: MSCCL++'s collective without meaning: only synchronisation can be checked.
 */
export interface PlanCollective {
  readonly operation: CollectiveName | "send_recv" | "custom" | "test";
  readonly numRanks: number;
  /** Chunks of a part (see src/collectives) before replication to instances. */
  readonly chunksPerPart: number;
  /** Input and output share memory as the collective's in-place form says. */
  readonly inPlace: boolean;
  readonly root?: number;
  readonly reduceOp?: PlanReduceOp;
  /** Chunks of every rank's part (all_gather_v, reduce_scatter_v), before instances. */
  readonly counts?: readonly number[];
  /** all_to_all_v: chunks that rank i sends to rank j, before instances. */
  readonly sendCounts?: readonly (readonly number[])[];
  /** send_recv: whom each rank sends to, or null. */
  readonly sendTo?: readonly (number | null)[];
  /** custom: what every output chunk of every rank must hold (null: anything), before instances. */
  readonly custom?: CustomCollective;
  /** True when the algorithm may overwrite its input though it is not in place. */
  readonly mayOverwriteInput?: boolean;
}
export interface CustomCollective {
  readonly name: string;
  readonly inputChunks: readonly number[];
  readonly outputChunks: readonly number[];
  readonly post: readonly (readonly (ChunkValue | null)[])[];
  /** Memory that is shared: `output` chunk `index` of the rank is also `input` chunk `inputIndex`. */
  readonly aliases?: readonly { readonly rank: number; readonly output: number; readonly input: number }[];
}

/** `sound`: proven or provable; `mscclpp`: exactly what the MSCCL++ 0.9 DSL makes; `imported`: read from a file. */
export type PlanMode = "sound" | "mscclpp" | "imported";

export interface ExecutionPlan {
  readonly schemaVersion: typeof PLAN_SCHEMA_VERSION;
  readonly name: string | null;
  readonly mode: PlanMode;
  readonly collective: PlanCollective;
  readonly options: PlanOptions;
  /** ranks[r].rank is r. */
  readonly ranks: readonly RankPlan[];
  /** Places in the program that operations refer to by `source`. Empty when the program was not recorded with them. */
  readonly sources: readonly SourceLocation[];
}

/** Largest message size that MSCCL++ knows: no limit. */
export const UNLIMITED_MESSAGE_SIZE = 2n ** 64n - 1n;

/** Most instances of a program: more are taken for a typing error, as every instance is a strand of its own. */
export const MAX_INSTANCES = 256;

/** MSCCL++'s defaults. */
export const DEFAULT_PLAN_OPTIONS: PlanOptions = Object.freeze({
  protocol: "Simple",
  instances: 1,
  reuseResources: false,
  numThreadsPerBlock: 1024,
  useDoubleScratchBuffer: false,
  bufferAlignment: 16,
  minMessageSizeBytes: 0n,
  maxMessageSizeBytes: UNLIMITED_MESSAGE_SIZE,
});

/** Number of operations of a plan; a pipeline counts as its body's. */
export function countOps(plan: ExecutionPlan): number {
  let count = 0;
  for (const rank of plan.ranks) {
    for (const strand of rank.strands)
      for (const op of strand.ops) count += op.kind === "pipeline" ? op.body.length : 1;
  }
  return count;
}

/** What an operation does: itself, or a pipeline's body. */
export function bodyOf(op: Op): readonly SimpleOp[] {
  return op.kind === "pipeline" ? op.body : [op];
}

/** By the channels of a plan, which do not change any more: a simulation asks for every channel, and a fit simulates often. */
const ordinals = new WeakMap<readonly number[], readonly number[]>();

/**
 * Which of a rank's channels to one peer a channel is, from 0: the k-th from a to b pairs with the k-th from b to a.
 * @param peers where the rank's channels of one kind lead, by id
 */
export function channelOrdinal(peers: readonly number[], id: number): number {
  if (Object.isFrozen(peers)) {
    let known = ordinals.get(peers);
    if (known === undefined) {
      const seen = new Map<number, number>();
      known = peers.map((peer) => {
        const ordinal = seen.get(peer) ?? 0;
        seen.set(peer, ordinal + 1);
        return ordinal;
      });
      ordinals.set(peers, known);
    }
    // An id that no channel has is the caller's to refuse.
    return known[id] ?? 0;
  }
  let ordinal = 0;
  for (let i = 0; i < id; i++) if (peers[i] === peers[id]) ordinal++;
  return ordinal;
}

/** Whether both ranges are given and are the same. */
export const sameRange = (a: Range | undefined, b: Range | undefined): boolean =>
  a !== undefined && b !== undefined && a.buffer === b.buffer && a.index === b.index && a.size === b.size;
/** Whether two operations are the same part of the same strand group, or of none. */
export const sameGroup = (a: GroupSlice | undefined, b: GroupSlice | undefined): boolean =>
  a === b || (a !== undefined && b !== undefined && a.index === b.index && a.size === b.size);
