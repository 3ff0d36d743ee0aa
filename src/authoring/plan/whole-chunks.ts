/**
 * Plans that need chunks of equal length, whatever their collective. Where a message does not divide, the last chunk of a part is
 * short, and those behind it are empty; scratch has no short chunks. An operation does of a chunk what all its ranges have of it:
 * one that sends packets from a short chunk sends fewer of them, and one that waits for them in scratch only, to forward them or to keep
 * them there, would wait for the rest for ever. Such plans are for sizes that divide (docs/semantics.md, section 1).
 */
import { UnsupportedError } from "../../core/index.ts";
import type { BufferPlan, ExecutionPlan, Range, RemoteRange, SimpleOp } from "./execution-plan.ts";

/** Of all ranks together: four bytes are kept of each. */
const MAX_SCRATCH_CHUNKS = 20_000_000;

const known = new WeakMap<ExecutionPlan, boolean>();

/**
 * Says whether somebody waits for packets of a whole chunk that may be sent from a short one.
 * @throws UnsupportedError for a plan of more than 20,000,000 chunks of scratch
 */
export function needsWholeChunks(plan: ExecutionPlan): boolean {
  const before = known.get(plan);
  if (before !== undefined) return before;
  const hasParts = plan.ranks.some(({ input, output }) => isDivided(input) || isDivided(output));
  const needs = hasParts && new PacketLevels(plan).find();
  known.set(plan, needs);
  return needs;
}

const isDivided = ({ chunks, segments }: BufferPlan) => chunks > Math.max(1, segments);

/** Sends what lies there, packets or not, without waiting. */
const isRaw = (op: SimpleOp) => op.kind === "put" && op.format === "pack" && op.channelKind === "port";

/**
 * The level of an operation at one chunk of its ranges: the highest number in a part of a chunk of input or output there, 0 where all is
 * scratch. The higher, the shorter the chunk may be.
 */
class PacketLevels {
  readonly #plan: ExecutionPlan;
  /** Chunks of a part of each rank's buffers. */
  readonly #perPart: readonly { readonly input: number; readonly output: number }[];
  /** Of each chunk of scratch, the highest level of packets that are sent there. */
  readonly #sent: readonly Int32Array[];
  /** Whether any of them is above 0: nobody waits for more than what is sent where none is. */
  #anySent = false;

  constructor(plan: ExecutionPlan) {
    this.#plan = plan;
    this.#perPart = plan.ranks.map(({ input, output }) => ({
      input: input.chunks / Math.max(1, input.segments),
      output: output.chunks / Math.max(1, output.segments),
    }));
    const total = plan.ranks.reduce((sum, { scratch }) => sum + scratch.chunks, 0);
    if (total > MAX_SCRATCH_CHUNKS)
      throw new UnsupportedError(`a plan of ${total} chunks of scratch`, `at most ${MAX_SCRATCH_CHUNKS} are`);
    this.#sent = plan.ranks.map(({ scratch }) => new Int32Array(scratch.chunks));
  }

  find(): boolean {
    const raw: { readonly rank: number; readonly op: SimpleOp }[] = [];
    this.#some((rank, op) => {
      if (isRaw(op)) raw.push({ rank, op });
      this.#send(rank, op);
      return false;
    });
    while (raw.map(({ rank, op }) => this.#send(rank, op)).some(Boolean));
    return this.#anySent && this.#some((rank, op) => this.#waitsForMore(rank, op));
  }

  #some(visit: (rank: number, op: SimpleOp) => boolean): boolean {
    return this.#plan.ranks.some(({ rank, strands }) =>
      strands.some(({ ops }) =>
        ops.some((op) => (op.kind === "pipeline" ? op.body.some((inner) => visit(rank, inner)) : visit(rank, op))),
      ),
    );
  }

  #at(rank: number, { buffer, index }: Range, j: number): number {
    return buffer === "scratch" ? 0 : (index + j) % (this.#perPart[rank]?.[buffer] ?? 1);
  }

  /** Chunks of a range that scratch has: what lies behind its end is the verifier's to refuse. */
  #lengthIn(rank: number, { index }: Range, size: number): number {
    return Math.min(size, Math.max(0, (this.#sent[rank]?.length ?? 0) - index));
  }

  #sentTo(rank: number, { index }: Range, j: number): number {
    return this.#sent[rank]?.[index + j] ?? 0;
  }

  /** Notes packets of a level. @returns whether that is news */
  #note(rank: number, { index }: Range, j: number, level: number): boolean {
    const row = this.#sent[rank];
    if (row === undefined || index + j >= row.length || row[index + j]! >= level) return false;
    row[index + j] = level;
    this.#anySent = true;
    return true;
  }

  /** The level of a reduction: what it does of a chunk ends where the shortest of its ranges does. */
  #ofReduce(rank: number, op: Extract<SimpleOp, { kind: "reduce" }>, j: number): number {
    let level = this.#at(rank, op.dst, j);
    for (const range of op.src) level = Math.max(level, this.#at(rank, range, j));
    for (const range of op.remoteSrc) level = Math.max(level, this.#at(range.rank, range, j));
    if (!op.packets) for (const range of op.remoteDst) level = Math.max(level, this.#at(range.rank, range, j));
    return level;
  }

  #members(rank: number, op: Extract<SimpleOp, { kind: "switch-broadcast" }>): readonly RemoteRange[] {
    const { channel, index, size } = op.dst;
    const to = this.#plan.ranks[rank]?.channels.switch[channel];
    return (to?.ranks ?? []).map((member) => ({ rank: member, buffer: to!.buffer, index, size }));
  }

  /** Notes the packets that an operation sends. @returns whether any are news */
  #send(rank: number, op: SimpleOp): boolean {
    let isNew = false;
    switch (op.kind) {
      case "copy":
        if (op.format !== "pack") return false;
        for (let j = 0; j < this.#lengthIn(rank, op.dst, op.src.size); j++)
          if (this.#note(rank, op.dst, j, this.#at(rank, op.src, j))) isNew = true;
        return isNew;
      case "put": {
        if (op.format === "plain") return false;
        const raw = isRaw(op);
        for (const [i, dst] of op.dst.entries()) {
          const src = op.src[op.src.length === 1 ? 0 : i];
          for (let j = 0; src !== undefined && j < this.#lengthIn(dst.rank, dst, src.size); j++) {
            const level = Math.max(this.#at(rank, src, j), raw ? this.#sentTo(rank, src, j) : 0);
            if (this.#note(dst.rank, dst, j, level)) isNew = true;
          }
        }
        return isNew;
      }
      case "reduce": {
        const targets: RemoteRange[] = op.packets ? [...op.remoteDst] : [];
        if (op.packetDst !== undefined) targets.push({ rank, ...op.packetDst });
        for (const dst of targets)
          for (let j = 0; j < this.#lengthIn(dst.rank, dst, op.dst.size); j++)
            if (this.#note(dst.rank, dst, j, this.#ofReduce(rank, op, j))) isNew = true;
        return isNew;
      }
      default:
        // A forward by a switch sends what it waited for.
        return false;
    }
  }

  /** Says whether an operation waits for packets of more of a chunk than may be sent. */
  #waitsForMore(rank: number, op: SimpleOp): boolean {
    const lacks = (range: Range, levelAt: (j: number) => number) => {
      const length = this.#lengthIn(rank, range, range.size);
      for (let j = 0; j < length; j++) if (levelAt(j) < this.#sentTo(rank, range, j)) return true;
      return false;
    };
    switch (op.kind) {
      case "copy":
        return op.format === "unpack" && lacks(op.src, (j) => this.#at(rank, op.dst, j));
      case "put":
        return op.format === "forward" && op.src.some((range) => lacks(range, () => 0));
      case "reduce":
        return op.packets && op.src.slice(1).some((range) => lacks(range, (j) => this.#ofReduce(rank, op, j)));
      case "switch-broadcast": {
        if (op.format !== "forward") return false;
        const members = this.#members(rank, op);
        return lacks(op.src, (j) => members.reduce((level, to) => Math.max(level, this.#at(to.rank, to, j)), 0));
      }
      default:
        return false;
    }
  }
}
