/**
 * Where recorded operations live until a plan is made: one growing Int32Array a strand, some 50 bytes an operation, so
 * that programs of a million operations stay small. `readTape` makes drafts of it, one at a time; a rank's drafts exist only
 * while the rank is being compiled.
 */

import {
  BUFFERS,
  type BufferKind,
  type ChannelKind,
  OP_KINDS,
  type OpKind,
  PLAN_REDUCE_OPS,
  type PlanReduceOp,
  type Range,
  type RemoteRange,
} from "../plan/index.ts";
import type { DraftOp, DraftSimple } from "./draft-ops.ts";

/** A range with everything in numbers: `buffer` indexes BUFFERS. What the language's chunks are. */
export interface RawChunk {
  readonly rank: number;
  readonly buffer: number;
  readonly index: number;
  readonly size: number;
  /** The recorder that it belongs to, when whoever made it knows. */
  readonly owner?: object;
}

/** What is recorded: switch-reduce-broadcast is made by a pass. */
type Code = Exclude<OpKind, "switch-reduce-broadcast">;
const CODE = Object.fromEntries(OP_KINDS.map((kind, i) => [kind, i])) as Record<Code, number>;
const KINDS: readonly ChannelKind[] = ["memory", "port"];
const COPY_FORMATS = ["plain", "pack", "unpack"] as const;
const PUT_FORMATS = ["plain", "pack", "forward"] as const;
const NOTIFIES = ["none", "signal", "signal-flush"] as const;

export type CopyFormat = (typeof COPY_FORMATS)[number];
export type PutFormat = (typeof PUT_FORMATS)[number];
export type Notify = (typeof NOTIFIES)[number];

/** What every operation carries: its number in program order, its source line (-1: none), and its share of a group. */
export interface Stamp {
  readonly seq: number;
  readonly source: number;
  readonly tbgIndex: number;
  /** 0: no group. */
  readonly tbgSize: number;
}

/** A channel, as its own end counts it. */
interface ChannelPlace {
  readonly kind: number;
  readonly id: number;
}

const NONE: readonly RawChunk[] = [];

export class Tape {
  data = new Int32Array(192);
  length = 0;
  count = 0;
  /** Whether any of the operations signals or waits. */
  signals = false;

  private room(n: number): void {
    if (this.length + n <= this.data.length) return;
    const grown = new Int32Array(Math.max(this.length + n, this.data.length * 2));
    grown.set(this.data.subarray(0, this.length));
    this.data = grown;
  }
  private add(code: number, { seq, source, tbgIndex, tbgSize }: Stamp, ints: readonly number[], chunks = NONE): void {
    this.room(5 + ints.length + 3 * chunks.length);
    const d = this.data;
    let at = this.length;
    d[at++] = code;
    d[at++] = seq;
    d[at++] = source;
    d[at++] = tbgIndex;
    d[at++] = tbgSize;
    for (let i = 0; i < ints.length; i++) d[at++] = ints[i]!;
    for (const { rank, buffer, index, size } of chunks) {
      d[at++] = rank * 4 + buffer;
      d[at++] = index;
      d[at++] = size;
    }
    this.length = at;
    this.count++;
  }

  nop(stamp: Stamp): void {
    this.add(CODE.nop, stamp, []);
  }
  barrier(stamp: Stamp, barrier: number, numStrands: number): void {
    this.add(CODE.barrier, stamp, [barrier, numStrands]);
  }
  copy(stamp: Stamp, format: CopyFormat, dst: RawChunk, src: RawChunk): void {
    this.add(CODE.copy, stamp, [COPY_FORMATS.indexOf(format)], [dst, src]);
  }
  get(stamp: Stamp, { kind, id }: ChannelPlace, dst: RawChunk, src: RawChunk): void {
    this.add(CODE.get, stamp, [kind, id], [dst, src]);
  }
  put(stamp: Stamp, format: PutFormat, notify: Notify, { kind, id }: ChannelPlace, dst: RawChunk, src: RawChunk): void {
    if (notify !== "none") this.signals = true;
    this.add(CODE.put, stamp, [PUT_FORMATS.indexOf(format), NOTIFIES.indexOf(notify), kind, id], [dst, src]);
  }
  /** @param c the channel by which `remote` is read */
  reduce(
    stamp: Stamp,
    op: PlanReduceOp,
    packets: boolean,
    c: ChannelPlace | undefined,
    dst: RawChunk,
    src: readonly RawChunk[],
    remote: readonly RawChunk[],
  ): void {
    const { kind, id } = c ?? { kind: -1, id: 0 };
    const ints = [PLAN_REDUCE_OPS.indexOf(op), packets ? 1 : 0, kind, id, src.length, remote.length];
    this.add(CODE.reduce, stamp, ints, [dst, ...src, ...remote]);
  }
  signal(
    stamp: Stamp,
    what: "signal" | "wait" | "flush",
    { kind, id }: ChannelPlace,
    relaxed: boolean,
    sync: number,
  ): void {
    if (what !== "flush") this.signals = true;
    this.add(CODE[what], stamp, [kind, id, relaxed ? 1 : 0, sync]);
  }
  semaphore(stamp: Stamp, what: "acquire" | "release", semaphore: number, sync: number): void {
    this.add(CODE[what], stamp, [semaphore, sync]);
  }
  /** @param index of the part of the channel's buffer, which is as large as the chunk */
  switchReduce(stamp: Stamp, op: PlanReduceOp, channel: number, index: number, dst: RawChunk, own: number): void {
    this.add(CODE["switch-reduce"], stamp, [PLAN_REDUCE_OPS.indexOf(op), channel, index, dst.size, own], [dst]);
  }
  switchBroadcast(stamp: Stamp, forward: boolean, channel: number, index: number, src: RawChunk, own: number): void {
    this.add(CODE["switch-broadcast"], stamp, [forward ? 1 : 0, channel, index, src.size, own], [src]);
  }
  /** Appends a pipeline whose body is what `body` holds. */
  pipeline(stamp: Stamp, unitBytes: number, numChunks: number, body: Tape): void {
    if (body.signals) this.signals = true;
    this.add(CODE.pipeline, stamp, [unitBytes, numChunks, body.count]);
    this.room(body.length);
    this.data.set(body.data.subarray(0, body.length), this.length);
    this.length += body.length;
  }
}

/** Goes through a tape's `count` operations. */
export interface TapeReader {
  /** Number in program order of the operation that `next` makes. */
  readonly nextSeq: () => number;
  /** Makes the next operation's draft. */
  readonly next: () => DraftOp;
}

/** Makes drafts of a whole tape. */
export function decode(tape: Tape): DraftOp[] {
  const reader = readTape(tape);
  return Array.from({ length: tape.count }, reader.next);
}

export function readTape(tape: Tape): TapeReader {
  const d = tape.data;
  let at = 0;
  const local = (): Range => {
    const range = {
      buffer: BUFFERS[(d[at] as number) & 3] as BufferKind,
      index: d[at + 1] as number,
      size: d[at + 2] as number,
    };
    at += 3;
    return range;
  };
  const remote = (): RemoteRange => {
    const where = d[at] as number;
    const range = {
      rank: where >> 2,
      buffer: BUFFERS[where & 3] as BufferKind,
      index: d[at + 1] as number,
      size: d[at + 2] as number,
    };
    at += 3;
    return range;
  };
  const one = (): DraftOp => {
    const code = OP_KINDS[d[at] as number] as Code;
    const line = d[at + 2] as number;
    const groupSize = d[at + 4] as number;
    const source = line < 0 ? undefined : line;
    const tbg = groupSize === 0 ? undefined : { index: d[at + 3] as number, size: groupSize };
    at += 5;
    return body(code, source, tbg);
  };
  const int = () => d[at++] as number;
  const body = (code: Code, source: number | undefined, tbg: { index: number; size: number } | undefined): DraftOp => {
    switch (code) {
      case "nop":
        return { kind: "nop", source };
      case "barrier":
        return { kind: "barrier", barrier: int(), numStrands: int(), source };
      case "copy": {
        const format = COPY_FORMATS[int()] as CopyFormat;
        const dst = local();
        return { kind: "copy", format, src: local(), dst, tbg, source };
      }
      case "get": {
        const channelKind = KINDS[int()] as ChannelKind;
        const channels = [int()];
        const dst = [local()];
        return { kind: "get", channelKind, channels, src: [remote()], dst, tbg, source };
      }
      case "put": {
        const format = PUT_FORMATS[int()] as PutFormat;
        const notify = NOTIFIES[int()] as Notify;
        const channelKind = KINDS[int()] as ChannelKind;
        const channels = [int()];
        const dst = [remote()];
        return { kind: "put", format, notify, channelKind, channels, src: [local()], dst, tbg, source };
      }
      case "reduce": {
        const op = PLAN_REDUCE_OPS[int()] as PlanReduceOp;
        const packets = int() === 1;
        const kind = int();
        const channel = int();
        const numSrc = int();
        const numRemote = int();
        const dst = local();
        const src: Range[] = [];
        for (let i = 0; i < numSrc; i++) src.push(local());
        const remoteSrc: RemoteRange[] = [];
        const channels: number[] = [];
        for (let i = 0; i < numRemote; i++) {
          remoteSrc.push(remote());
          channels.push(channel);
        }
        const channelKind = kind < 0 ? undefined : (KINDS[kind] as ChannelKind);
        return {
          kind: "reduce",
          op,
          packets,
          src,
          remoteSrc,
          dst,
          packetDst: undefined,
          remoteDst: [],
          channelKind,
          channels,
          tbg,
          source,
        };
      }
      case "signal":
      case "wait": {
        const channelKind = KINDS[int()] as ChannelKind;
        const channels = [int()];
        const relaxed = int() === 1;
        return { kind: code, relaxed, channelKind, channels, sync: int(), source };
      }
      case "flush": {
        at++;
        const channels = [int()];
        at++;
        return { kind: "flush", channelKind: "port", channels, sync: int(), source };
      }
      case "acquire":
      case "release":
        return { kind: code, semaphores: [int()], sync: int(), source };
      case "switch-reduce": {
        const op = PLAN_REDUCE_OPS[int()] as PlanReduceOp;
        const src = { channel: int(), index: int(), size: int() };
        const own = int();
        const { rank, ...dst } = remote();
        return { kind: "switch-reduce", op, src, dst, statedRank: rank === own ? undefined : rank, source };
      }
      case "switch-broadcast": {
        const format = int() === 1 ? "forward" : "plain";
        const dst = { channel: int(), index: int(), size: int() };
        const own = int();
        const { rank, ...src } = remote();
        return { kind: "switch-broadcast", format, src, dst, statedRank: rank === own ? undefined : rank, source };
      }
      case "pipeline": {
        const unitBytes = int();
        const numChunks = int();
        const count = int();
        const inner: DraftSimple[] = [];
        for (let i = 0; i < count; i++) inner.push(one() as DraftSimple);
        return { kind: "pipeline", unitBytes, numChunks, body: inner, source };
      }
    }
  };
  return { nextSeq: () => d[at + 1] as number, next: one };
}
