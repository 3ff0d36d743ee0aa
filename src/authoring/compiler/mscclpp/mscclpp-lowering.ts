/**
 * From a recording to the plan that the MSCCL++ 0.9 DSL makes of it: signals paired, then per strand fusion, explicit
 * synchronisation, synchronisation by local dependences, replication. Ranks are independent of each other, so they are
 * made one at a time: a writer that streams holds one rank at once.
 */
import { InvalidArgumentError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { ChannelKind, Op, RankPlan, Strand } from "../../plan/index.ts";
import { assembleRank, KIND_NAMES } from "../assemble-rank.ts";
import { type DraftOp, finish } from "../draft-ops.ts";
import { decode } from "../op-tape.ts";
import type { RankRecord, StrandRecord } from "../rank-records.ts";
import type { Recorder } from "../recorder.ts";
import { replicateOps } from "../replicate-instances.ts";
import { fuseStrand } from "./mscclpp-fusion.ts";
import { dependencySync, explicitSync } from "./mscclpp-sync.ts";

export interface CompatOptions {
  readonly instances: number;
  readonly fusion: boolean;
  readonly autoSync: boolean;
  /** How often post-processing runs; 2 is what MSCCL++'s just-in-time compiler does by mistake. */
  readonly rounds?: number;
  /** Drop the sync masks from the operations, as a plan needs; a writer that ignores them may keep them. */
  readonly finished?: boolean;
  readonly onPass?: (pass: string, rank: number, strand: number, ops: readonly DraftOp[]) => void;
}

/**
 * Checks that each rank waits as often as it is signalled, by pair of ranks and kind of channel.
 * @throws InvalidArgumentError naming the first pair that does not
 */
export function checkPairing(recorder: Recorder): void {
  for (const [key, surplus] of recorder.signals) {
    if (surplus === 0) continue;
    const b = key % 65536;
    const a = Math.floor(key / 65536) % 65536;
    const kind = KIND_NAMES[Math.floor(key / 65536 / 65536)] as string;
    throw new InvalidArgumentError(
      `${kind} signals from rank ${a} to rank ${b}`,
      described(`${Math.abs(surplus)} ${surplus > 0 ? "more" : "fewer"} than the waits of rank ${b} for rank ${a}`),
      "as many waits at the receiver as signals from the sender, on channels of the same kind",
    );
  }
}

function postProcess(ops: DraftOp[], options: CompatOptions, rank: number, strand: number): DraftOp[] {
  let current = ops;
  const tell = (pass: string) => options.onPass?.(pass, rank, strand, current);
  if (options.fusion) {
    current = fuseStrand(current);
    tell("fuse");
  }
  current = explicitSync(current);
  tell("sync");
  if (options.autoSync) {
    current = dependencySync(current);
    tell("dependency-sync");
  }
  return current;
}

interface Made {
  readonly ops: DraftOp[];
  readonly record: StrandRecord;
  /** The strand's place among the instances: channel ids c become c * scale + offset. */
  readonly scale: number;
  readonly offset: number;
}

/** Makes the plan of one rank. */
export function lowerRank(record: RankRecord, options: CompatOptions): RankPlan {
  const I = options.instances;
  let made: Made[] = record.strands.map((strand, id) => {
    const ops = decode(strand.tape);
    options.onPass?.("record", record.rank, id, ops);
    return { ops, record: strand, scale: 1, offset: 0 };
  });
  let scale = 1;
  for (let round = 0; round < (options.rounds ?? 1); round++) {
    made = made.flatMap((m, id) => {
      const ops = postProcess(m.ops, options, record.rank, id);
      if (I === 1) return [{ ...m, ops }];
      return Array.from({ length: I }, (_, i) => ({
        ops: replicateOps(ops, I, i, false),
        record: m.record,
        scale: m.scale * I,
        offset: m.offset * I + i,
      }));
    });
    scale *= I;
  }
  return assembleRank(
    record,
    scale,
    made.map((m, id) => ({
      id,
      ops: options.finished === false ? (m.ops as Op[]) : m.ops.map(finish),
      tables: strandTables(m.record, m.scale, m.offset),
    })),
  );
}

function strandTables(record: StrandRecord, scale: number, offset: number): NonNullable<Strand["tables"]> {
  return {
    channels: [...record.channels].map(([kind, ids]) => ({
      kind: KIND_NAMES[kind] as ChannelKind,
      ids: Array.from(ids, (id) => id * scale + offset),
    })),
    remoteBuffers: [...record.remotes].map(([kind, refs]) => ({
      kind: KIND_NAMES[kind] as ChannelKind,
      refs: [...refs],
    })),
  };
}
