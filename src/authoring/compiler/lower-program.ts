/**
 * From a recording to a sound plan. Every pass is a function from strands to strands and may be watched: pairing of
 * signals, synchronisation in full (on request), fusion, block-wide synchronisation, replication to instances, tables.
 * Nothing here changes what the program computes; verifier/ proves it of the result.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  BUFFERS,
  type BufferKind,
  channelOrdinal,
  type Op,
  type PlanCollective,
  type PutOp,
  type RankChannels,
  type RankPlan,
  type SourceLocation,
  withTables,
} from "../plan/index.ts";
import { assembleRank } from "./assemble-rank.ts";
import { AutoSync, type OrderedStrand } from "./auto-sync.ts";
import { type DraftOp, type DraftSimple, finish } from "./draft-ops.ts";
import { fuseSound } from "./fuse-ops.ts";
import { type AccessContext, accessesOf } from "./op-accesses.ts";
import { decode } from "./op-tape.ts";
import type { RankRecord } from "./rank-records.ts";
import type { Recorder } from "./recorder.ts";
import { replicateOps } from "./replicate-instances.ts";
import { syncAsWritten, syncStrand } from "./strand-sync.ts";

/** `none`: as written, with the masks of the program. `strand`: nops by dependences. `full`: everything, by program order. */
export type AutoSyncMode = "none" | "strand" | "full";

export interface SoundOptions {
  readonly collective: PlanCollective;
  readonly segments: (rank: number) => { readonly input: number; readonly output: number };
  readonly instances: number;
  readonly fusion: boolean;
  readonly autoSync: AutoSyncMode;
  /** Hears the plan after each pass: name of the pass, and the plan so far, made when asked for. */
  readonly onPass?: (pass: string, ranks: () => readonly RankPlan[], instances: number) => void;
}

/** Names of the passes, in order. */
export const SOUND_PASSES = ["record", "auto-sync", "fuse", "sync", "replicate", "tables"] as const;

interface Strands {
  readonly record: RankRecord;
  readonly ops: DraftOp[][];
}

function channelsOf(record: RankRecord): RankChannels {
  return {
    memory: record.memory,
    port: record.port,
    switch: record.switches.map(({ buffer, ranks }) => ({ buffer: BUFFERS[buffer] as BufferKind, ranks })),
  };
}

/**
 * Checks signals against waits channel by channel: the k-th channel from a to b is heard by the k-th from b to a.
 * @throws InvalidArgumentError naming the channel, and the last line that signals or waits too often
 */
function checkChannelPairing(
  ranks: readonly RankRecord[],
  strands: readonly Strands[],
  sources: readonly SourceLocation[],
): void {
  const balance = new Map<string, number>();
  const last = { [1]: new Map<string, number | undefined>(), [-1]: new Map<string, number | undefined>() };
  const count = (
    rank: number,
    { channelKind: kind, source }: Pick<PutOp, "channelKind" | "source">,
    id: number,
    change: 1 | -1,
  ) => {
    const peers = (ranks[rank] as RankRecord)[kind];
    const peer = peers[id] as number;
    const [a, b] = change > 0 ? [rank, peer] : [peer, rank];
    const key = `${kind} channel ${channelOrdinal(peers, id)} from rank ${a} to rank ${b}`;
    balance.set(key, (balance.get(key) ?? 0) + change);
    last[change].set(key, source);
  };
  const visit = (rank: number, op: DraftOp): void => {
    if (op.kind === "pipeline") for (const inner of op.body) visit(rank, inner);
    else if (op.kind === "signal") for (const id of op.channels) count(rank, op, id, 1);
    else if (op.kind === "wait") for (const id of op.channels) count(rank, op, id, -1);
    else if (op.kind === "put" && op.notify !== "none") for (const id of op.channels) count(rank, op, id, 1);
  };
  for (const { record, ops } of strands) for (const strand of ops) for (const op of strand) visit(record.rank, op);
  for (const [channel, surplus] of balance) {
    if (surplus === 0) continue;
    const at = sources[last[surplus > 0 ? 1 : -1].get(channel) ?? -1];
    const where = at === undefined ? "" : ` (last ${surplus > 0 ? "signal" : "wait"}: ${at.file}:${at.line})`;
    throw new InvalidArgumentError(
      channel,
      `${Math.abs(surplus)} ${surplus > 0 ? "more" : "fewer"} signals than waits`,
      `as many waits at its far end as signals${where}`,
    );
  }
}

/** Ranges that overlap without being equal would fall to different instances: is there any? */
function mixesGranularity(strands: readonly Strands[], collective: PlanCollective): boolean {
  const sizes = new Map<string, number>();
  const starts = new Map<string, number>();
  let mixed = false;
  const see = (rank: number, buffer: string, index: number, size: number) => {
    for (let i = index; i < index + size; i++) {
      const key = `${rank} ${buffer} ${i}`;
      if ((sizes.get(key) ?? size) !== size || (starts.get(key) ?? index) !== index) mixed = true;
      sizes.set(key, size);
      starts.set(key, index);
    }
  };
  const channelless: AccessContext = {
    // In place, ranges of input and output may overlap in memory.
    collective,
    channels: () => ({ memory: [], port: [], switch: [] }),
  };
  for (const { record, ops } of strands) {
    for (const op of ops.flat()) {
      const inner = op.kind === "pipeline" ? op.body : [op];
      for (const one of inner) {
        for (const a of accessesOf(channelless, record.rank, one))
          see(a.memory >> 2, `${a.memory & 3}`, a.start, a.end - a.start);
        if (one.kind === "switch-broadcast" || one.kind === "switch-reduce-broadcast") mixed ||= one.dst.size > 1;
        if (one.kind === "switch-reduce") mixed ||= one.src.size > 1;
      }
    }
  }
  return mixed;
}

/** Cuts an operation into operations on single chunks. */
function splitOp(op: DraftOp): DraftOp[] {
  const cut = <R extends { readonly index: number; readonly size: number }>(r: R, i: number): R => ({
    ...r,
    index: r.index + i,
    size: 1,
  });
  const each = (size: number, make: (i: number) => DraftOp): DraftOp[] =>
    size <= 1 ? [op] : Array.from({ length: size }, (_, i) => make(i));
  switch (op.kind) {
    case "copy":
      return each(op.src.size, (i) => ({ ...op, src: cut(op.src, i), dst: cut(op.dst, i) }));
    case "get":
      return each(op.src[0]?.size ?? 0, (i) => ({
        ...op,
        src: op.src.map((r) => cut(r, i)),
        dst: op.dst.map((r) => cut(r, i)),
      }));
    case "put": {
      const size = op.src[0]?.size ?? 0;
      // Only the last piece signals.
      return each(size, (i) => ({
        ...op,
        notify: i < size - 1 ? "none" : op.notify,
        src: op.src.map((r) => cut(r, i)),
        dst: op.dst.map((r) => cut(r, i)),
      }));
    }
    case "reduce":
      return each(op.dst.size, (i) => ({
        ...op,
        src: op.src.map((r) => cut(r, i)),
        remoteSrc: op.remoteSrc.map((r) => cut(r, i)),
        dst: cut(op.dst, i),
        packetDst: op.packetDst === undefined ? undefined : cut(op.packetDst, i),
        remoteDst: op.remoteDst.map((r) => cut(r, i)),
      }));
    case "switch-reduce":
      return each(op.src.size, (i) => ({ ...op, src: cut(op.src, i), dst: cut(op.dst, i) }));
    case "switch-broadcast":
      return each(op.src.size, (i) => ({ ...op, src: cut(op.src, i), dst: cut(op.dst, i) }));
    case "pipeline":
      return [{ ...op, body: op.body.flatMap((inner) => splitOp(inner) as DraftSimple[]) }];
    default:
      return [op];
  }
}

/** Makes the ranks' plans. */
export function lowerSound(recorder: Recorder, options: SoundOptions): RankPlan[] {
  const { instances, collective } = options;
  // Synchronisation adds channels and semaphores: to copies, the recording stays as it is.
  const records: RankRecord[] = recorder.ranks.map((r) => ({
    ...r,
    memory: [...r.memory],
    port: [...r.port],
    semaphores: [...r.semaphores],
    channelKinds: [...r.channelKinds],
  }));
  const seqs: number[][][] = records.map((record) => record.strands.map(() => []));
  let strands: Strands[] = records.map((record) => ({
    record,
    ops: record.strands.map(({ tape }, id) => decode(tape, seqs[record.rank]?.[id])),
  }));
  let scale = 1;
  const plans = () =>
    strands.map(({ record, ops }) => {
      const rank = assembleRank(
        record,
        scale,
        ops.map((list, id) => ({ id, ops: list.map(finish) as Op[] })),
        options.segments(record.rank),
      );
      const { tables: _, ...bare } = rank;
      return bare;
    });
  const tell = (pass: (typeof SOUND_PASSES)[number]) => options.onPass?.(pass, plans, scale);
  tell("record");
  const context: AccessContext = { collective, channels: (rank) => channelsOf(records[rank] as RankRecord) };
  if (options.autoSync === "full") {
    // A rank that does nothing still waits for what it is given.
    strands = strands.map((s) => (s.ops.length === 0 ? { ...s, ops: [[]] } : s));
    const ordered: OrderedStrand[] = strands.flatMap(({ record, ops }) =>
      ops.map((list, id) => ({ rank: record.rank, ops: list, seqs: seqs[record.rank]?.[id] ?? [] })),
    );
    const synced = new AutoSync(context, records, ordered, recorder.links).run();
    let next = 0;
    strands = strands.map(({ record, ops }) => ({ record, ops: ops.map(() => synced[next++] as DraftOp[]) }));
    tell("auto-sync");
  }
  seqs.length = 0;
  checkChannelPairing(records, strands, recorder.sources);
  // Instances share out each range; ranges that only partly overlap would be shared out differently.
  if (instances > 1 && mixesGranularity(strands, collective)) {
    strands = strands.map(({ record, ops }) => ({ record, ops: ops.map((list) => list.flatMap(splitOp)) }));
  }
  const each = (change: (rank: number, ops: DraftOp[]) => DraftOp[]) => {
    strands = strands.map(({ record, ops }) => ({ record, ops: ops.map((list) => change(record.rank, list)) }));
  };
  if (options.fusion) {
    each((rank, ops) => fuseSound(context, rank, ops));
    tell("fuse");
  }
  each((rank, ops) => (options.autoSync === "none" ? syncAsWritten(ops) : syncStrand(context, rank, ops)));
  tell("sync");
  if (instances > 1) {
    strands = strands.map(({ record, ops }) => ({
      record,
      ops: ops.flatMap((list) => Array.from({ length: instances }, (_, i) => replicateOps(list, instances, i, true))),
    }));
    scale = instances;
    tell("replicate");
  }
  const ranks = plans().map(withTables);
  tell("tables");
  return ranks;
}
