/**
 * Writes a plan as the MSCCL++ executor reads it, in pieces: one rank's text exists at a time. The layout is that of
 * upstream's printed plans (two spaces, one value a line, `[]` for nothing). Fields and their order after
 * `python/mscclpp/language` 0.9.
 */
import { UnsupportedError } from "../../core/index.ts";
import type {
  ChannelKind,
  ExecutionPlan,
  Op,
  OpKind,
  OpOf,
  PlanOptions,
  Range,
  RankPlan,
  RemoteRange,
  Strand,
} from "../plan/index.ts";

/** What the file says before the ranks. */
export interface MscclppHeader {
  readonly name: string | null;
  /** MSCCL++'s name: `allreduce`, … */
  readonly collective: string;
  readonly inPlace: boolean;
  readonly options: Omit<PlanOptions, "instances">;
}

const LETTER = { input: "i", output: "o", scratch: "s" } as const;

/** JSON text with everything beyond ASCII escaped, as Python writes it. */
function text(value: string | null): string {
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const ops = new Set(["sum", "min", "max"]);
function reduceOp(op: string): string {
  if (!ops.has(op)) throw new UnsupportedError(`reduction ${op} in a MSCCL++ plan`, "its files know sum, min and max");
  return op;
}

/** Indices of a strand's channels and remote buffers in its tables. */
class Local {
  private readonly channels = new Map<number, number>();
  private readonly remotes = new Map<number, number>();

  constructor(strand: Strand, rank: RankPlan) {
    const tables = strand.tables;
    for (const { kind, ids } of tables?.channels ?? [])
      ids.forEach((id, i) => {
        this.channels.set(id * 4 + KIND[kind], i);
      });
    for (const { kind, refs } of tables?.remoteBuffers ?? []) {
      refs.forEach((ref, i) => {
        const buffer = rank.tables?.remoteBuffers[ref];
        if (buffer !== undefined) this.remotes.set(((buffer.rank << 2) | BUFFER[buffer.buffer]) * 2 + KIND[kind], i);
      });
    }
  }
  channel(kind: ChannelKind | "switch", id: number): number {
    return this.channels.get(id * 4 + KIND[kind]) as number;
  }
  remote(kind: ChannelKind, range: RemoteRange): number {
    return this.remotes.get(((range.rank << 2) | BUFFER[range.buffer]) * 2 + KIND[kind]) as number;
  }
}
const KIND = { memory: 0, port: 1, switch: 2 } as const;
const BUFFER = { input: 0, output: 1, scratch: 2 } as const;

/** MSCCL++'s name of a reduction with these sources and destinations. */
export function reductionName(op: OpOf<"reduce">): string {
  const sends = op.remoteDst.length > 0 ? "s" : "";
  if (op.packets) return `re${op.packetDst === undefined ? "" : "c"}${sends}pkt`;
  return `r${op.remoteSrc.length > 0 ? "re" : "e"}${sends}`;
}

/** Writes one operation; `p` is the indentation of its brace. */
class OpWriter {
  local: Local;
  p = "";
  private readonly rank: RankPlan;
  constructor(rank: RankPlan, local: Local) {
    this.rank = rank;
    this.local = local;
  }

  private range(r: Range): string {
    const p = this.p;
    return `\n${p}    {\n${p}      "type": "${LETTER[r.buffer]}",\n${p}      "index": ${r.index},\n${p}      "size": ${r.size}\n${p}    }`;
  }
  private full(r: Range, rank: number): string {
    const p = this.p;
    return `{\n${p}      "rank": ${rank},\n${p}      "type": "${LETTER[r.buffer]}",\n${p}      "index": ${r.index},\n${p}      "size": ${r.size}\n${p}    }`;
  }
  private remote(kind: ChannelKind, r: RemoteRange): string {
    const p = this.p;
    return `\n${p}    {\n${p}      "buffer_id": ${this.local.remote(kind, r)},\n${p}      "index": ${r.index},\n${p}      "size": ${r.size}\n${p}    }`;
  }
  private multi(channel: number, index: number, size: number): string {
    const p = this.p;
    return `\n${p}    {\n${p}      "switch_channel_id": ${this.local.channel("switch", channel)},\n${p}      "index": ${index},\n${p}      "size": ${size}\n${p}    }`;
  }
  private list(items: readonly string[]): string {
    return items.length === 0 ? "[]" : `[${items.join(",")}\n${this.p}  ]`;
  }
  private ints(items: readonly number[]): string {
    const p = this.p;
    return items.length === 0 ? "[]" : `[\n${p}    ${items.join(`,\n${p}    `)}\n${p}  ]`;
  }
  private ids(kind: ChannelKind, channels: readonly number[]): string {
    return this.ints(channels.map((id) => this.local.channel(kind, id)));
  }
  private locals(items: readonly Range[]): string {
    return this.list(items.map((r) => this.range(r)));
  }
  private remotes(kind: ChannelKind, items: readonly RemoteRange[]): string {
    return this.list(items.map((r) => this.remote(kind, r)));
  }
  private tbg(op: { readonly tbg?: { readonly index: number; readonly size: number } | undefined }): string {
    const p = this.p;
    return op.tbg === undefined
      ? ""
      : `,\n${p}  "tbg_info": {\n${p}    "tb_id": ${op.tbg.index},\n${p}    "tbg_size": ${op.tbg.size}\n${p}  }`;
  }
  private field(name: string, value: string): string {
    return `,\n${this.p}  "${name}": ${value}`;
  }

  private readonly write: { readonly [K in OpKind]: (op: OpOf<K>) => string } = {
    nop: () => `"nop"`,
    barrier: (op) =>
      `"barrier"${this.field("barrier_id", `${op.barrier}`)}${this.field("num_threadblocks", `${op.numStrands}`)}`,
    copy: (op) =>
      `"${op.format === "plain" ? "copy" : op.format === "pack" ? "cpkt" : "upkt"}"` +
      this.field("src_buff", this.locals([op.src])) +
      this.field("dst_buff", this.locals([op.dst])) +
      this.tbg(op),
    get: (op) =>
      `"get"` +
      this.field("src_buff", this.remotes(op.channelKind, op.src)) +
      this.field("dst_buff", this.locals(op.dst)) +
      this.field("channel_ids", this.ids(op.channelKind, op.channels)) +
      this.field("channel_type", `"${op.channelKind}"`) +
      this.tbg(op),
    put: (op) =>
      `"${op.format === "pack" ? "ppkt" : op.format === "forward" ? "rppkt" : op.notify === "none" ? "put" : op.notify === "signal" ? "pws" : "pwsf"}"` +
      this.field("src_buff", this.locals(op.src)) +
      this.field("dst_buff", this.remotes(op.channelKind, op.dst)) +
      (op.channelKind === "port" ? this.field("channel_ids", this.ids(op.channelKind, op.channels)) : "") +
      this.field("channel_type", `"${op.channelKind}"`) +
      this.tbg(op),
    reduce: (op) => {
      const kind = op.channelKind ?? "memory";
      const name = op.statedName ?? reductionName(op);
      return (
        `"${name}"` +
        this.field(
          "src_buff",
          this.list([...op.src.map((r) => this.range(r)), ...op.remoteSrc.map((r) => this.remote(kind, r))]),
        ) +
        this.field(
          "dst_buff",
          this.list([
            this.range(op.dst),
            ...(op.packetDst === undefined ? [] : [this.range(op.packetDst)]),
            ...op.remoteDst.map((r) => this.remote(kind, r)),
          ]),
        ) +
        (op.channelKind === undefined ? "" : this.field("channel_type", `"${kind}"`)) +
        this.field("reduce_op", `"${reduceOp(op.op)}"`) +
        this.tbg(op)
      );
    },
    signal: (op) =>
      `"${op.relaxed ? "rlxsignal" : "signal"}"${this.field("channel_ids", this.ids(op.channelKind, op.channels))}${this.field("channel_type", `"${op.channelKind}"`)}`,
    wait: (op) =>
      `"${op.relaxed ? "rlxwait" : "wait"}"${this.field("channel_ids", this.ids(op.channelKind, op.channels))}${this.field("channel_type", `"${op.channelKind}"`)}`,
    flush: (op) =>
      `"flush"${this.field("channel_ids", this.ids("port", op.channels))}${this.field("channel_type", `"port"`)}`,
    acquire: (op) => `"sem_acquire"${this.field("semaphore_ids", this.ints(op.semaphores))}`,
    release: (op) => `"sem_release"${this.field("semaphore_ids", this.ints(op.semaphores))}`,
    "switch-reduce": (op) =>
      `"glre"` +
      this.field("buffer_type", `"${LETTER[this.rank.channels.switch[op.src.channel]?.buffer ?? "input"]}"`) +
      this.field("buffer_offset", `${op.src.index}`) +
      this.field("size", `${op.src.size}`) +
      this.field("dst_chunk", this.full(op.dst, op.statedRank ?? this.rank.rank).replaceAll("\n  ", "\n")) +
      this.field("channel_ids", this.ints([this.local.channel("switch", op.src.channel)])) +
      this.field("channel_type", `"switch"`) +
      this.field("reduce_op", `"${reduceOp(op.op)}"`) +
      this.tbg(op),
    "switch-broadcast": (op) =>
      `"${op.format === "plain" ? "gstore" : "gstorepkt"}"` +
      this.field("src_buff", this.list([`\n${this.p}    ${this.full(op.src, op.statedRank ?? this.rank.rank)}`])) +
      this.field("dst_buff", this.list([this.multi(op.dst.channel, op.dst.index, op.dst.size)])) +
      this.field("channel_type", `"switch"`) +
      this.tbg(op),
    "switch-reduce-broadcast": (op) =>
      `"glres"` +
      this.field("src_buff", this.list([this.multi(op.src.channel, op.src.index, op.src.size)])) +
      this.field("dst_buff", this.list([this.multi(op.dst.channel, op.dst.index, op.dst.size)])) +
      this.field("channel_type", `"switch"`) +
      this.field("reduce_op", `"${reduceOp(op.op)}"`) +
      this.tbg(op),
    pipeline: (op) => {
      const p = this.p;
      this.p = `${p}    `;
      const body = op.body.map((inner) => `\n${this.p}${this.op(inner)}`).join(",");
      this.p = p;
      return (
        `"pipeline"${this.field("iter_context", `{\n${p}    "unit_size": ${op.unitBytes},\n${p}    "num_chunks": ${op.numChunks}\n${p}  }`)}` +
        this.field("ops", op.body.length === 0 ? "[]" : `[${body}\n${p}  ]`)
      );
    },
  };

  op(op: Op): string {
    const p = this.p;
    return `{\n${p}  "name": ${(this.write[op.kind] as (op: Op) => string)(op)}\n${p}}`;
  }
}

const P = "        ";

function ints(p: string, items: readonly (number | string)[]): string {
  return items.length === 0 ? "[]" : `[\n${p}  ${items.join(`,\n${p}  `)}\n${p}]`;
}
function objects(p: string, items: readonly string[]): string {
  return items.length === 0 ? "[]" : `[\n${p}  ${items.join(`,\n${p}  `)}\n${p}]`;
}

function writeRank(rank: RankPlan, sink: (piece: string) => void): void {
  sink(
    `    {\n      "id": ${rank.rank},\n      "input_chunks": ${rank.input.chunks},\n      "output_chunks": ${rank.output.chunks},\n      "scratch_chunks": ${rank.scratch.chunks},\n      "threadblocks": `,
  );
  const b = `${P}    `;
  rank.strands.forEach((strand, s) => {
    const writer = new OpWriter(rank, new Local(strand, rank));
    sink(
      `${s === 0 ? "[" : ","}\n${P}{\n${P}  "id": ${strand.id},\n${P}  "ops": ${strand.ops.length === 0 ? "[]" : "["}`,
    );
    writer.p = b;
    strand.ops.forEach((op, i) => {
      sink(`${i === 0 ? "\n" : ",\n"}${b}${writer.op(op)}`);
    });
    const channels = (strand.tables?.channels ?? []).map(
      ({ kind, ids }) => `{\n${b}  "channel_type": "${kind}",\n${b}  "channel_ids": ${ints(`${b}  `, ids)}\n${b}}`,
    );
    const remotes = (strand.tables?.remoteBuffers ?? []).map(
      ({ kind, refs }) =>
        `{\n${b}  "access_channel_type": "${kind}",\n${b}  "remote_buffer_ids": ${ints(`${b}  `, refs)}\n${b}}`,
    );
    sink(
      `${strand.ops.length === 0 ? "" : `\n${P}  ]`},\n${P}  "channels": ${objects(`${P}  `, channels)},\n${P}  "remote_buffer_refs": ${objects(`${P}  `, remotes)}\n${P}}`,
    );
  });
  const kinds = rank.tables?.channelKinds ?? [];
  const channels = [
    ...kinds.flatMap((kind) =>
      kind === "switch"
        ? []
        : [`{\n${P}  "channel_type": "${kind}",\n${P}  "connected_to": ${ints(`${P}  `, rank.channels[kind])}\n${P}}`],
    ),
    ...rank.channels.switch.map(
      ({ buffer, ranks }) =>
        `{\n${P}  "channel_type": "switch",\n${P}  "buffer_type": "${LETTER[buffer]}",\n${P}  "rank_groups": [\n${b}{\n${b}  "size": ${ranks.length},\n${b}  "ranks": ${ints(`${b}  `, ranks)}\n${b}}\n${P}  ]\n${P}}`,
    ),
  ];
  const remotes = (rank.tables?.remoteBuffers ?? []).map(
    ({ rank: peer, buffer, access }) =>
      `{\n${P}  "rank": ${peer},\n${P}  "type": "${LETTER[buffer]}",\n${P}  "access_channel_types": ${ints(
        `${P}  `,
        access.map((kind) => `"${kind}"`),
      )}\n${P}}`,
  );
  const semaphores = rank.semaphores.map(({ initialValue }) => `{\n${P}  "init_value": ${initialValue}\n${P}}`);
  sink(
    `${rank.strands.length === 0 ? "[]" : "\n      ]"},\n      "channels": ${objects("      ", channels)},\n      "remote_buffers": ${objects("      ", remotes)},\n      "semaphores": ${objects("      ", semaphores)}\n    }`,
  );
}

/** Writes a MSCCL++ plan. Every rank must carry `tables` (see `withTables`). `sink` receives the text in pieces. */
export function writeMscclppPieces(
  header: MscclppHeader,
  ranks: Iterable<RankPlan>,
  sink: (piece: string) => void,
): void {
  const o = header.options;
  sink(
    `{\n  "name": ${text(header.name)},\n  "collective": ${text(header.collective)},\n  "protocol": "${o.protocol}",\n  "inplace": ${header.inPlace},\n  "reuse_resources": ${o.reuseResources},\n  "gpus": [`,
  );
  let first = true;
  for (const rank of ranks) {
    sink(first ? "\n" : ",\n");
    first = false;
    writeRank(rank, sink);
  }
  sink(
    `${first ? "" : "\n  "}],\n  "num_threads_per_block": ${o.numThreadsPerBlock},\n  "use_double_scratch_buffer": ${o.useDoubleScratchBuffer},\n  "buffer_alignment": ${o.bufferAlignment},\n  "min_message_size": ${o.minMessageSizeBytes},\n  "max_message_size": ${o.maxMessageSizeBytes}\n}\n`,
  );
}

/** MSCCL++'s names of collectives. Those it does not know keep chorale's name without underscores. */
export function mscclppCollective(plan: Pick<ExecutionPlan, "collective">): string {
  const { operation, custom } = plan.collective;
  return operation === "custom" ? (custom?.name ?? "custom") : operation.replaceAll("_", "");
}
