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

export class Tape {
  data = new Int32Array(192);
  length = 0;
  count = 0;

  private room(n: number): void {
    if (this.length + n <= this.data.length) return;
    const grown = new Int32Array(Math.max(this.length + n, this.data.length * 2));
    grown.set(this.data.subarray(0, this.length));
    this.data = grown;
  }
  private begin(code: number, stamp: Stamp, n: number): void {
    this.room(n + 5);
    const d = this.data;
    let at = this.length;
    d[at++] = code;
    d[at++] = stamp.seq;
    d[at++] = stamp.source;
    d[at++] = stamp.tbgIndex;
    d[at++] = stamp.tbgSize;
    this.length = at;
    this.count++;
  }
  private chunk(c: RawChunk): void {
    const d = this.data;
    let at = this.length;
    d[at++] = c.rank * 4 + c.buffer;
    d[at++] = c.index;
    d[at++] = c.size;
    this.length = at;
  }
  private int(value: number): void {
    this.data[this.length++] = value;
  }

  nop(stamp: Stamp): void {
    this.begin(CODE.nop, stamp, 0);
  }
  barrier(stamp: Stamp, barrier: number, numStrands: number): void {
    this.begin(CODE.barrier, stamp, 2);
    this.int(barrier);
    this.int(numStrands);
  }
  copy(stamp: Stamp, format: CopyFormat, dst: RawChunk, src: RawChunk): void {
    this.begin(CODE.copy, stamp, 7);
    this.int(COPY_FORMATS.indexOf(format));
    this.chunk(dst);
    this.chunk(src);
  }
  get(stamp: Stamp, kind: number, channel: number, dst: RawChunk, src: RawChunk): void {
    this.begin(CODE.get, stamp, 8);
    this.int(kind);
    this.int(channel);
    this.chunk(dst);
    this.chunk(src);
  }
  put(
    stamp: Stamp,
    format: PutFormat,
    notify: Notify,
    kind: number,
    channel: number,
    dst: RawChunk,
    src: RawChunk,
  ): void {
    this.begin(CODE.put, stamp, 10);
    this.int(PUT_FORMATS.indexOf(format));
    this.int(NOTIFIES.indexOf(notify));
    this.int(kind);
    this.int(channel);
    this.chunk(dst);
    this.chunk(src);
  }
  /** `kind` -1: a reduction without a channel. */
  reduce(
    stamp: Stamp,
    op: PlanReduceOp,
    packets: boolean,
    kind: number,
    channel: number,
    dst: RawChunk,
    src: readonly RawChunk[],
    remote: readonly RawChunk[],
  ): void {
    this.begin(CODE.reduce, stamp, 9 + 3 * (src.length + remote.length));
    this.int(PLAN_REDUCE_OPS.indexOf(op));
    this.int(packets ? 1 : 0);
    this.int(kind);
    this.int(channel);
    this.int(src.length);
    this.int(remote.length);
    this.chunk(dst);
    for (const c of src) this.chunk(c);
    for (const c of remote) this.chunk(c);
  }
  signal(
    stamp: Stamp,
    what: "signal" | "wait" | "flush",
    kind: number,
    channel: number,
    relaxed: boolean,
    sync: number,
  ): void {
    this.begin(CODE[what], stamp, 4);
    this.int(kind);
    this.int(channel);
    this.int(relaxed ? 1 : 0);
    this.int(sync);
  }
  semaphore(stamp: Stamp, what: "acquire" | "release", semaphore: number, sync: number): void {
    this.begin(CODE[what], stamp, 2);
    this.int(semaphore);
    this.int(sync);
  }
  switchReduce(
    stamp: Stamp,
    op: PlanReduceOp,
    channel: number,
    index: number,
    size: number,
    dst: RawChunk,
    own: number,
  ): void {
    this.begin(CODE["switch-reduce"], stamp, 8);
    this.int(PLAN_REDUCE_OPS.indexOf(op));
    this.int(channel);
    this.int(index);
    this.int(size);
    this.int(own);
    this.chunk(dst);
  }
  switchBroadcast(
    stamp: Stamp,
    forward: boolean,
    channel: number,
    index: number,
    size: number,
    src: RawChunk,
    own: number,
  ): void {
    this.begin(CODE["switch-broadcast"], stamp, 8);
    this.int(forward ? 1 : 0);
    this.int(channel);
    this.int(index);
    this.int(size);
    this.int(own);
    this.chunk(src);
  }
  /** Appends a pipeline whose body is what `body` holds. */
  pipeline(stamp: Stamp, unitBytes: number, numChunks: number, body: Tape): void {
    this.begin(CODE.pipeline, stamp, 3 + body.length);
    this.int(unitBytes);
    this.int(numChunks);
    this.int(body.count);
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
