/**
 * Plans that are nothing but copies from ranks' inputs to ranks' outputs. Copy engines can do them, without scratch and without a
 * kernel that moves anything: all ranks meet, every rank copies what it is to copy, and all meet again. Whatever order the plan's own
 * signals give, no other one makes a difference, as nobody reads what somebody writes and nothing is written twice.
 */
import {
  type BufferKind,
  type BufferLayout,
  bodyOf,
  type ChannelKind,
  chunkBytesOf,
  type ExecutionPlan,
  pieces,
  type Range,
  type RemoteRange,
  type SimpleOp,
  shapeOf,
} from "../../../authoring/plan/index.ts";
import { type BufferReach, bufferBytes } from "./buffer-reach.ts";

/** Chunks of a rank's buffer. */
interface End {
  readonly rank: number;
  readonly buffer: "input" | "output";
  readonly index: number;
}

/** What a rank copies in one go, in chunks. */
interface ChunkCopy {
  readonly from: End;
  readonly to: End;
  readonly size: number;
}

/** One copy of a rank: `offset` from the beginning of the buffer. Bytes. */
export interface PlanCopy {
  readonly from: { readonly rank: number; readonly offset: number };
  readonly to: { readonly rank: number; readonly offset: number };
  readonly sizeBytes: number;
}

/** What was found of plans. */
const KNOWN = new WeakMap<ExecutionPlan, PlanCopies | "none">();

export class PlanCopies {
  readonly plan: ExecutionPlan;
  /** By the rank that does them. */
  readonly #copies: readonly (readonly ChunkCopy[])[];
  #reached: readonly BufferReach[] | undefined;
  /** Of one size of parts, by rank: those of the last. */
  #known: { readonly partBytes: number; readonly copies: readonly (readonly PlanCopy[])[] } | undefined;

  private constructor(plan: ExecutionPlan, copies: readonly (readonly ChunkCopy[])[]) {
    this.plan = plan;
    this.#copies = copies;
  }

  /** @returns undefined for a plan that does anything else, or reads what it writes */
  static of(plan: ExecutionPlan): PlanCopies | undefined {
    let known = KNOWN.get(plan);
    if (known === undefined) {
      known = PlanCopies.#find(plan) ?? "none";
      KNOWN.set(plan, known);
    }
    return known === "none" ? undefined : known;
  }

  static #find(plan: ExecutionPlan): PlanCopies | undefined {
    if (plan.collective.inPlace || (plan.collective.custom?.aliases ?? []).length > 0) return undefined;
    const written = new Set<string>();
    const copies: ChunkCopy[][] = [];
    for (const { rank, strands } of plan.ranks) {
      const own: ChunkCopy[] = [];
      for (const op of strands.flatMap(({ ops }) => ops)) {
        const found = op.kind === "pipeline" ? undefined : copiesOf(op, rank);
        if (found === undefined) return undefined;
        own.push(...found);
      }
      for (const { from, to, size } of own) {
        if (from.buffer !== "input" || to.buffer !== "output") return undefined;
        for (let i = 0; i < size; i++) {
          const chunk = `${to.rank} ${to.index + i}`;
          if (written.has(chunk)) return undefined;
          written.add(chunk);
        }
      }
      copies.push(own);
    }
    return new PlanCopies(plan, copies);
  }

  /** Whether any rank copies from or to another. */
  get reachesPeers(): boolean {
    return this.#copies.some((own, by) => own.some(({ from, to }) => from.rank !== by || to.rank !== by));
  }

  /** What the copies do to each rank's buffers. */
  get reached(): readonly BufferReach[] {
    this.#reached ??= this.#copies.map((_, rank) => {
      const others = this.#copies.flatMap((copies, by) => (by === rank ? [] : copies));
      return {
        input: others.some(({ from }) => from.rank === rank),
        output: others.some(({ to }) => to.rank === rank),
        writesInput: false,
      };
    });
    return this.#reached;
  }

  /** What a rank copies, of parts of `partBytes`. */
  of(rank: number, partBytes: number): readonly PlanCopy[] {
    if (this.#known?.partBytes !== partBytes) {
      const copies = this.#copies.map((own) => joined(own.flatMap((one) => this.#inBytes(one, partBytes))));
      this.#known = { partBytes, copies };
    }
    return this.#known.copies[rank] ?? [];
  }

  #inBytes({ from, to, size }: ChunkCopy, partBytes: number): PlanCopy[] {
    const found: PlanCopy[] = [];
    for (const a of pieces(this.#layoutOf(from, partBytes), from.index, size)) {
      for (const b of pieces(this.#layoutOf(to, partBytes), to.index, size)) {
        const [begin, end] = [Math.max(a.skew, b.skew), Math.min(a.skew + a.length, b.skew + b.length)];
        if (begin >= end) continue;
        found.push({
          from: { rank: from.rank, offset: a.offset + begin - a.skew },
          to: { rank: to.rank, offset: b.offset + begin - b.skew },
          sizeBytes: end - begin,
        });
      }
    }
    return found;
  }

  #layoutOf({ rank, buffer }: Pick<End, "rank" | "buffer">, partBytes: number): BufferLayout {
    const shape = shapeOf(this.plan);
    const { chunks, segments } = this.plan.ranks[rank]![buffer];
    const chunkBytes = chunkBytesOf(shape, partBytes);
    const numParts = shape.exact ? 1 : segments;
    const totalBytes = bufferBytes(this.plan, rank, buffer, partBytes);
    return {
      chunks,
      chunksPerSegment: chunks / numParts,
      chunkBytes,
      segmentOffsets: Array.from({ length: numParts + 1 }, (_, segment) => (segment * totalBytes) / numParts),
      totalBytes,
    };
  }
}

/** Copies as few as may be: those of strands that share a part lie beside each other. */
function joined(copies: readonly PlanCopy[]): readonly PlanCopy[] {
  const found: PlanCopy[] = [];
  const inOrder = copies.toSorted(
    (a, b) => a.to.rank - b.to.rank || a.from.rank - b.from.rank || a.to.offset - b.to.offset,
  );
  for (const one of inOrder) {
    const last = found.at(-1);
    const follows = (["from", "to"] as const).every(
      (end) => last?.[end].rank === one[end].rank && last[end].offset + last.sizeBytes === one[end].offset,
    );
    if (last === undefined || !follows) found.push(one);
    else found[found.length - 1] = { ...last, sizeBytes: last.sizeBytes + one.sizeBytes };
  }
  return found;
}

/** Whether all that a plan's ranks move between them goes through port channels, which is what copy engines are for. */
export function usesPortsAlone(plan: ExecutionPlan): boolean {
  const kinds = plan.ranks.flatMap(({ strands }) =>
    strands.flatMap(({ ops }) => ops.flatMap(bodyOf).flatMap((op): ChannelKind[] => remoteKindOf(op))),
  );
  return kinds.length > 0 && kinds.every((kind) => kind === "port");
}

const remoteKindOf = (op: SimpleOp): ChannelKind[] => (op.kind === "put" || op.kind === "get" ? [op.channelKind] : []);

const SYNCHRONISE: ReadonlySet<SimpleOp["kind"]> = new Set([
  "nop",
  "barrier",
  "signal",
  "wait",
  "flush",
  "acquire",
  "release",
]);

/** @returns undefined for an operation that does anything but copy or synchronise */
function copiesOf(op: SimpleOp, rank: number): ChunkCopy[] | undefined {
  if (SYNCHRONISE.has(op.kind)) return [];
  if (op.kind !== "copy" && op.kind !== "put" && op.kind !== "get") return undefined;
  if (op.tbg !== undefined || ("format" in op && op.format !== "plain")) return undefined;
  const [sources, targets] = op.kind === "copy" ? [[op.src], [op.dst]] : [op.src, op.dst];
  const copies = sources.flatMap((src, i) => {
    const [from, to] = [endOf(src, rank), endOf(targets[i], rank)];
    return from === undefined || to === undefined ? [] : [{ from, to, size: src.size }];
  });
  return copies.length === sources.length ? copies : undefined;
}

function endOf(range: Range | RemoteRange | undefined, rank: number): End | undefined {
  if (range === undefined || range.buffer === ("scratch" satisfies BufferKind)) return undefined;
  return { rank: "rank" in range ? range.rank : rank, buffer: range.buffer, index: range.index };
}
