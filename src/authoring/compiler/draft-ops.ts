/**
 * Operations while a plan is being made: those of the IR, mutable, and synchronising ones carry the `sync` mask that the
 * program asked for: a block-wide synchronisation before (1) and after (2). The sync pass turns masks into nops.
 * A strand's drafts belong to the pass that works on them; nothing else sees them.
 */
import type {
  BarrierOp,
  CopyOp,
  FlushOp,
  GetOp,
  NopOp,
  Op,
  PipelineOp,
  PutOp,
  ReduceChunksOp,
  SemaphoreAcquireOp,
  SemaphoreReleaseOp,
  SignalOp,
  SwitchBroadcastOp,
  SwitchReduceBroadcastOp,
  SwitchReduceOp,
  WaitOp,
} from "../plan/index.ts";

export const SYNC = { none: 0, before: 1, after: 2, both: 3 } as const;
export type SyncName = keyof typeof SYNC;

type Mutable<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer E)[] ? E[] : T[K] };
type Synced<T> = Mutable<T> & { sync: number };

export type DraftCopy = Mutable<CopyOp>;
export type DraftGet = Mutable<GetOp>;
export type DraftPut = Mutable<PutOp>;
export type DraftReduce = Mutable<ReduceChunksOp>;
export type DraftSync =
  | Synced<SignalOp>
  | Synced<WaitOp>
  | Synced<FlushOp>
  | Synced<SemaphoreAcquireOp>
  | Synced<SemaphoreReleaseOp>;
export type DraftSimple =
  | Mutable<NopOp>
  | Mutable<BarrierOp>
  | DraftCopy
  | DraftGet
  | DraftPut
  | DraftReduce
  | DraftSync
  | Mutable<SwitchReduceOp>
  | Mutable<SwitchBroadcastOp>
  | Mutable<SwitchReduceBroadcastOp>;
export type DraftPipeline = Omit<Mutable<PipelineOp>, "body"> & { body: DraftSimple[] };
export type DraftOp = DraftSimple | DraftPipeline;

/** Says whether an operation synchronises by channels or semaphores, and so carries a `sync` mask. */
export function isSync(op: DraftOp): op is DraftSync {
  const kind = op.kind;
  return kind === "signal" || kind === "wait" || kind === "flush" || kind === "acquire" || kind === "release";
}

/** The operations of a strand as the plan has them. A draft that stands in several places becomes one operation that does. */
export function finishAll(drafts: readonly DraftOp[]): Op[] {
  const known = new Map<DraftOp, Op>();
  return drafts.map((draft) => {
    if (!isSync(draft)) return finish(draft);
    const op = known.get(draft) ?? finish(draft);
    known.set(draft, op);
    return op;
  });
}

/** The operation without its mask, as the plan has it. */
export function finish(op: DraftOp): Op {
  if (op.kind === "pipeline")
    return { ...op, body: op.body.map((inner) => finish(inner) as PipelineOp["body"][number]) };
  if (!isSync(op)) return op as Op;
  const { sync: _, ...rest } = op;
  return rest as Op;
}
