/**
 * From a recording to a sound plan. Every pass is a function from strands to strands and may be watched: pairing of
 * signals, synchronisation in full (on request), fusion, block-wide synchronisation, replication to instances, tables.
 * Nothing here changes what the program computes; verifier/ proves it of the result.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import {
  BUFFERS,
  type BufferKind,
  type PlanCollective,
  type PutOp,
  type RankChannels,
  type RankPlan,
  type SourceLocation,
  withTables,
} from "../plan/index.ts";
import { assembleRank } from "./assemble-rank.ts";
import { AutoSync, type RecordedStrand } from "./auto-sync.ts";
import { type DraftOp, type DraftSimple, finishAll } from "./draft-ops.ts";
import { fuseSound } from "./fuse-ops.ts";
import { type AccessContext, accessesOf } from "./op-accesses.ts";
import { decode, Tape } from "./op-tape.ts";
import { type RankRecord, recordedOrdinal } from "./rank-records.ts";
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
  /** Called when `autoSync: "full"` is done, and what it remembered is garbage. */
  readonly onSynchronized?: () => void;
}

/** Names of the passes, in order. */
export const SOUND_PASSES = ["record", "auto-sync", "fuse", "sync", "replicate", "tables"] as const;

/** A rank's strands, made when their turn comes: those of all ranks together would be most of a compilation's memory. */
type StrandsOf = (record: RankRecord) => DraftOp[][];

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
  strandsOf: StrandsOf,
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
    const key = `${kind} channel ${recordedOrdinal(peers, id)} from rank ${a} to rank ${b}`;
    balance.set(key, (balance.get(key) ?? 0) + change);
    last[change].set(key, source);
  };
  const visit = (rank: number, op: DraftOp): void => {
    if (op.kind === "pipeline") for (const inner of op.body) visit(rank, inner);
    else if (op.kind === "signal") for (const id of op.channels) count(rank, op, id, 1);
    else if (op.kind === "wait") for (const id of op.channels) count(rank, op, id, -1);
    else if (op.kind === "put" && op.notify !== "none") for (const id of op.channels) count(rank, op, id, 1);
  };
  for (const record of ranks) for (const strand of strandsOf(record)) for (const op of strand) visit(record.rank, op);
  for (const [channel, surplus] of balance) {
    if (surplus === 0) continue;
    const at = sources[last[surplus > 0 ? 1 : -1].get(channel) ?? -1];
    const where = at === undefined ? "" : ` (last ${surplus > 0 ? "signal" : "wait"}: ${at.file}:${at.line})`;
    throw new InvalidArgumentError(
      channel,
      described(`${Math.abs(surplus)} ${surplus > 0 ? "more" : "fewer"} signals than waits`),
      `as many waits at its far end as signals${where}`,
    );
  }
}

/** Ranges that overlap without being equal would fall to different instances: is there any? */
function mixesGranularity(ranks: readonly RankRecord[], strandsOf: StrandsOf, collective: PlanCollective): boolean {
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
  for (const record of ranks) {
    for (const op of strandsOf(record).flat()) {
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
  const context: AccessContext = { collective, channels: (rank) => channelsOf(records[rank] as RankRecord) };
  const tapes = records.map((record) => record.strands.map(({ tape }) => tape));
  const passes: ((rank: number, strands: DraftOp[][]) => DraftOp[][])[] = [];
  let scale = 1;
  const strandsOf: StrandsOf = ({ rank }) => {
    let strands = (tapes[rank] as Tape[]).map(decode);
    for (const pass of passes) strands = pass(rank, strands);
    return strands;
  };
  const planOf = (record: RankRecord): RankPlan =>
    assembleRank(
      record,
      scale,
      strandsOf(record).map((ops, id) => ({ id, ops: finishAll(ops) })),
      options.segments(record.rank),
    );
  const tell = (pass: (typeof SOUND_PASSES)[number]) =>
    options.onPass?.(
      pass,
      () =>
        records.map((record) => {
          const { tables: _, ...bare } = planOf(record);
          return bare;
        }),
      scale,
    );
  tell("record");
  if (options.autoSync === "full") {
    // A rank that does nothing still waits for what it is given.
    for (const list of tapes) if (list.length === 0) list.push(new Tape());
    const first: number[] = [];
    const recorded: RecordedStrand[] = [];
    tapes.forEach((list, rank) => {
      first.push(recorded.length);
      for (const tape of list) recorded.push({ rank, tape });
    });
    const inserted = new AutoSync(context, records, recorded, recorder.links).run();
    passes.push((rank, strands) => strands.map((ops, id) => inserted.apply((first[rank] as number) + id, ops)));
    options.onSynchronized?.();
    tell("auto-sync");
  }
  // What was inserted pairs.
  if (tapes.some((list) => list.some(({ signals }) => signals)))
    checkChannelPairing(records, strandsOf, recorder.sources);
  const each = (change: (rank: number, ops: DraftOp[]) => DraftOp[]) => {
    passes.push((rank, strands) => strands.map((ops) => change(rank, ops)));
  };
  // Instances share out each range; ranges that only partly overlap would be shared out differently.
  if (instances > 1 && mixesGranularity(records, strandsOf, collective)) each((_, ops) => ops.flatMap(splitOp));
  if (options.fusion) {
    each((rank, ops) => fuseSound(context, rank, ops));
    tell("fuse");
  }
  each((rank, ops) => (options.autoSync === "none" ? syncAsWritten(ops) : syncStrand(context, rank, ops)));
  tell("sync");
  if (instances > 1) {
    const copies = Array.from({ length: instances }, (_, i) => i);
    passes.push((_, strands) => strands.flatMap((ops) => copies.map((i) => replicateOps(ops, instances, i, true))));
    scale = instances;
    tell("replicate");
  }
  const ranks = records.map((record) => withTables(planOf(record)));
  tell("tables");
  return ranks;
}
