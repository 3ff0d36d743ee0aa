/**
 * Reads plans that the MSCCL++ executor reads, whoever wrote them: chorale, the MSCCL++ DSL, other generators. Nothing
 * is trusted: every field is checked and a mistake is named by its path. Writing what was read gives the same file
 * (`write-mscclpp-json.ts`); the order of its tables is kept.
 */
import { deepFreeze } from "../../core/index.ts";
import {
  type ChannelKind,
  type ExecutionPlan,
  type GroupSlice,
  type Op,
  type OpOf,
  PLAN_REDUCE_OPS,
  type PlanReduceOp,
  type Range,
  type RankPlan,
  type RankTables,
  type RemoteRange,
  type SimpleOp,
  type Strand,
  type StrandTables,
  type SwitchChannelPlan,
  type SwitchRange,
  segmentsOf,
  UNLIMITED_MESSAGE_SIZE,
} from "../plan/index.ts";
import { parseFile } from "./exact-json.ts";
import { inferCollective, type RankChunks } from "./infer-collective.ts";
import { Node } from "./mscclpp-json-node.ts";
import { reductionName } from "./write-mscclpp-json.ts";

interface Locals {
  readonly rank: number;
  readonly tables: StrandTables;
  readonly remoteBuffers: RankTables["remoteBuffers"];
  /** Where the rank's channels lead, by kind and id. */
  readonly peers: Readonly<Record<ChannelKind, number[]>>;
  readonly switches: readonly SwitchChannelPlan[];
}

/** The kind of a channel, where the operation leaves no choice: a file need not say it, but must not say another. */
function onlyKind(node: Node, kind: ChannelKind | "switch"): void {
  node.maybe("channel_type")?.one([kind]);
}

function channelIds(node: Node, kind: ChannelKind | "switch", locals: Locals): number[] {
  const ids = locals.tables.channels.find((c) => c.kind === kind)?.ids ?? [];
  return node
    .list()
    .map(
      (item) =>
        ids[item.count()] ?? item.fail(`names ${kind} channel ${item.count()} of ${ids.length} in the thread block`),
    );
}

function local(node: Node): Range {
  return { buffer: node.get("type").buffer(), index: node.get("index").count(), size: node.get("size").count() };
}
function remote(node: Node, kind: ChannelKind, locals: Locals): RemoteRange {
  const refs = locals.tables.remoteBuffers.find((b) => b.kind === kind)?.refs ?? [];
  const at = node.get("buffer_id");
  const ref = refs[at.count()];
  const buffer = ref === undefined ? undefined : locals.remoteBuffers[ref];
  if (buffer === undefined) return at.fail(`names remote buffer ${at.count()} of ${refs.length} in the thread block`);
  return { rank: buffer.rank, buffer: buffer.buffer, index: node.get("index").count(), size: node.get("size").count() };
}
function multi(node: Node, locals: Locals): SwitchRange {
  const ids = locals.tables.channels.find((c) => c.kind === "switch")?.ids ?? [];
  const at = node.get("switch_channel_id");
  return {
    channel: ids[at.count()] ?? at.fail("names a switch channel that the thread block does not have"),
    index: node.get("index").count(),
    size: node.get("size").count(),
  };
}
const isRemote = (node: Node) => node.maybe("buffer_id") !== undefined;

function reduceOp(node: Node): PlanReduceOp {
  const op = node.maybe("reduce_op");
  return op === undefined ? "sum" : op.one(PLAN_REDUCE_OPS);
}

function readOp(node: Node, locals: Locals): Op {
  const name = node.get("name").text();
  const kind = () => node.get("channel_type").one(["memory", "port"] as const);
  const group = node.maybe("tbg_info");
  const tbg: GroupSlice | undefined =
    group === undefined ? undefined : { index: group.get("tb_id").count(), size: group.get("tbg_size").count() };
  const shared = tbg === undefined ? {} : { tbg };
  const src = () => node.get("src_buff").list();
  const dst = () => node.get("dst_buff").list();
  const first = (list: Node[], what: string) => {
    if (list.length > 1) node.fail(`has ${list.length} of what it has one of: ${what}`);
    return list[0] ?? node.fail(`has no ${what}`);
  };
  switch (name) {
    case "nop":
      return { kind: "nop" };
    case "barrier":
      return {
        kind: "barrier",
        barrier: node.get("barrier_id").count(),
        numStrands: node.get("num_threadblocks").count(),
      };
    case "copy":
    case "cpkt":
    case "upkt": {
      const format = name === "copy" ? "plain" : name === "cpkt" ? "pack" : "unpack";
      return {
        kind: "copy",
        format,
        src: local(first(src(), "source")),
        dst: local(first(dst(), "destination")),
        ...shared,
      };
    }
    case "get": {
      const channelKind = kind();
      return {
        kind: "get",
        channelKind,
        channels: channelIds(node.get("channel_ids"), channelKind, locals),
        src: src().map((n) => remote(n, channelKind, locals)),
        dst: dst().map(local),
        ...shared,
      };
    }
    case "put":
    case "pws":
    case "pwsf":
    case "ppkt":
    case "rppkt": {
      const channelKind = kind();
      const to = dst().map((n) => remote(n, channelKind, locals));
      const ids = node.maybe("channel_ids");
      return {
        kind: "put",
        format: name === "ppkt" ? "pack" : name === "rppkt" ? "forward" : "plain",
        notify: name === "pws" ? "signal" : name === "pwsf" ? "signal-flush" : "none",
        channelKind,
        // Files name no channels for memory puts: any that leads to the destination does.
        channels:
          ids === undefined
            ? to.map((r) => channelTo(r.rank, channelKind, locals))
            : channelIds(ids, channelKind, locals),
        src: src().map(local),
        dst: to,
        ...shared,
      };
    }
    case "re":
    case "res":
    case "rre":
    case "rres":
    case "repkt":
    case "respkt":
    case "recpkt":
    case "recspkt": {
      const channelKind = node.maybe("channel_type") === undefined ? undefined : kind();
      const packets = name.endsWith("pkt");
      const sources = src();
      const [result, ...more] = dst();
      const copies = name === "recpkt" || name === "recspkt";
      const packetDst = copies ? local(more.shift() ?? node.fail("has no destination for packets")) : undefined;
      const far = (n: Node) =>
        remote(n, channelKind ?? n.fail("is remote, and the operation has no channel_type"), locals);
      const firstRemote = sources.findIndex(isRemote);
      const misplaced = firstRemote < 0 ? undefined : sources.slice(firstRemote).find((n) => !isRemote(n));
      misplaced?.fail("is local behind a remote source: local sources come first");
      const remoteSrc = sources.filter(isRemote).map(far);
      const remoteDst = more.map(far);
      const reduction: OpOf<"reduce"> = {
        kind: "reduce",
        op: reduceOp(node),
        packets,
        src: sources.filter((n) => !isRemote(n)).map(local),
        remoteSrc,
        dst: local(result ?? node.fail("has no destination")),
        ...(packetDst === undefined ? {} : { packetDst }),
        remoteDst,
        ...(channelKind === undefined ? {} : { channelKind }),
        channels:
          channelKind === undefined
            ? []
            : [...remoteSrc, ...remoteDst].map((r) => channelTo(r.rank, channelKind, locals)),
        ...shared,
      };
      return name === reductionName(reduction) ? reduction : { ...reduction, statedName: name };
    }
    case "signal":
    case "rlxsignal":
    case "wait":
    case "rlxwait": {
      const channelKind = kind();
      return {
        kind: name.endsWith("signal") ? "signal" : "wait",
        relaxed: name.startsWith("rlx"),
        channelKind,
        channels: channelIds(node.get("channel_ids"), channelKind, locals),
      };
    }
    case "flush":
      onlyKind(node, "port");
      return { kind: "flush", channelKind: "port", channels: channelIds(node.get("channel_ids"), "port", locals) };
    case "sem_acquire":
    case "sem_release":
      return { kind: name === "sem_acquire" ? "acquire" : "release", semaphores: node.get("semaphore_ids").counts() };
    case "glre": {
      onlyKind(node, "switch");
      const at = node.get("dst_chunk");
      const stated = at.get("rank").count();
      const named = first(node.get("channel_ids").list(), "channel");
      const channel = channelIds(node.get("channel_ids"), "switch", locals)[0] ?? named.fail("is missing");
      const spans = locals.switches[channel]?.buffer;
      const buffer = node.maybe("buffer_type");
      if (buffer !== undefined && buffer.buffer() !== spans)
        buffer.fail(`is the ${buffer.buffer()}, but the switch channel spans the ${spans}`);
      return {
        kind: "switch-reduce",
        op: reduceOp(node),
        src: {
          channel,
          index: node.get("buffer_offset").count(),
          size: node.get("size").count(),
        },
        dst: local(at),
        ...(stated === locals.rank ? {} : { statedRank: stated }),
        ...shared,
      };
    }
    case "gstore":
    case "gstorepkt": {
      onlyKind(node, "switch");
      const at = first(src(), "source");
      const stated = at.get("rank").count();
      return {
        kind: "switch-broadcast",
        format: name === "gstore" ? "plain" : "forward",
        src: local(at),
        dst: multi(first(dst(), "destination"), locals),
        ...(stated === locals.rank ? {} : { statedRank: stated }),
        ...shared,
      };
    }
    case "glres":
      onlyKind(node, "switch");
      return {
        kind: "switch-reduce-broadcast",
        op: reduceOp(node),
        src: multi(first(src(), "source"), locals),
        dst: multi(first(dst(), "destination"), locals),
        ...shared,
      };
    case "pipeline": {
      const context = node.get("iter_context");
      const body = node
        .get("ops")
        .list()
        .map((inner) => {
          const op = readOp(inner, locals);
          return op.kind === "pipeline" ? inner.fail("is a pipeline within a pipeline") : op;
        });
      return {
        kind: "pipeline",
        unitBytes: context.get("unit_size").count(),
        numChunks: context.get("num_chunks").count(),
        body: body as readonly SimpleOp[],
      };
    }
    default:
      return node.get("name").fail(`is ${JSON.stringify(name)}, which is no operation`);
  }
}

/**
 * A channel of a kind that leads to a rank, where a file names none: the strand's first, or else the rank's. Memory is
 * reached without one too; the plan then gets a channel that nothing else uses.
 */
function channelTo(rank: number, kind: ChannelKind, locals: Locals): number {
  const peers = locals.peers[kind];
  const own = locals.tables.channels.find((c) => c.kind === kind)?.ids ?? [];
  const id = own.find((known) => peers[known] === rank) ?? peers.indexOf(rank);
  return id >= 0 ? id : peers.push(rank) - 1;
}

/** An index in one of the rank's lists. */
function indexIn(node: Node, count: number, what: string): number {
  return node.count() < count ? node.count() : node.fail(`is ${node.count()}, but the rank has ${count} ${what}`);
}

/** A remote buffer that a thread block refers to, which has to be reachable that way. */
function referTo(node: Node, kind: ChannelKind, buffers: RankTables["remoteBuffers"]): number {
  const ref = indexIn(node, buffers.length, "remote buffers");
  const { access } = buffers[ref]!;
  return access.includes(kind)
    ? ref
    : node.fail(`is remote buffer ${ref}, whose access_channel_types (${access.join(", ")}) do not include ${kind}`);
}

function readRank(
  node: Node,
  index: number,
): Omit<RankPlan, "input" | "output" | "scratch"> & { readonly chunks: readonly [number, number, number] } {
  const id = node.get("id");
  if (id.count() !== index) id.fail(`is ${id.count()}; expected ${index}`);
  const channels: { memory: number[]; port: number[]; switch: SwitchChannelPlan[] } = {
    memory: [],
    port: [],
    switch: [],
  };
  const channelKinds: (ChannelKind | "switch")[] = [];
  for (const entry of node.get("channels").list()) {
    const kind = entry.get("channel_type").one(["memory", "port", "switch"] as const);
    if (kind === "switch") {
      for (const groupNode of entry.get("rank_groups").list()) {
        const ranks = groupNode.get("ranks").counts();
        const size = groupNode.maybe("size");
        if (size !== undefined && size.count() !== ranks.length)
          size.fail(`is ${size.count()}, but ${ranks.length} ranks are listed`);
        channels.switch.push({ buffer: entry.get("buffer_type").buffer(), ranks });
      }
    } else {
      if (!channelKinds.includes(kind)) channelKinds.push(kind);
      channels[kind].push(...entry.get("connected_to").counts());
    }
  }
  const remoteBuffers = node
    .get("remote_buffers")
    .list()
    .map((entry) => ({
      rank: entry.get("rank").count(),
      buffer: entry.get("type").buffer(),
      access: entry
        .get("access_channel_types")
        .list()
        .map((kind) => kind.one(["memory", "port", "switch"] as const)),
    }));
  const declared = { memory: channels.memory.length, port: channels.port.length, switch: channels.switch.length };
  const strands = node
    .get("threadblocks")
    .list()
    .map((block, s): Strand => {
      const tables: StrandTables = {
        channels: (block.maybe("channels")?.list() ?? []).map((entry) => {
          const kind = entry.get("channel_type").one(["memory", "port", "switch"] as const);
          const ids = entry.get("channel_ids").list();
          return { kind, ids: ids.map((id) => indexIn(id, declared[kind], `${kind} channels`)) };
        }),
        remoteBuffers: (block.maybe("remote_buffer_refs")?.list() ?? []).map((entry) => {
          const kind = entry.get("access_channel_type").one(["memory", "port"] as const);
          const refs = entry.get("remote_buffer_ids").list();
          return { kind, refs: refs.map((ref) => referTo(ref, kind, remoteBuffers)) };
        }),
      };
      const blockId = block.get("id");
      if (blockId.count() !== s) blockId.fail(`is ${blockId.count()}; expected ${s}`);
      const locals: Locals = { rank: index, tables, remoteBuffers, peers: channels, switches: channels.switch };
      return {
        id: s,
        ops: block
          .get("ops")
          .list()
          .map((op) => readOp(op, locals)),
        tables,
      };
    });
  return {
    rank: index,
    chunks: [node.get("input_chunks").count(), node.get("output_chunks").count(), node.get("scratch_chunks").count()],
    channels,
    semaphores: (node.maybe("semaphores")?.list() ?? []).map((s) => ({ initialValue: s.get("init_value").count() })),
    strands,
    tables: { remoteBuffers, channelKinds },
  };
}

/**
 * Reads a MSCCL++ plan.
 * @param json the text, or what was parsed from it
 * @param gpus items of `gpus`, where they are not in `json`
 * @throws FormatError naming the field that is wrong
 */
export function readMscclpp(json: unknown, where = "plan", gpus?: Iterable<unknown>): ExecutionPlan {
  const root = new Node(typeof json === "string" ? parseFile(json, where) : json, "", where);
  const ranks: ReturnType<typeof readRank>[] = [];
  for (const gpu of gpus ?? root.get("gpus").list()) {
    const node = gpu instanceof Node ? gpu : new Node(gpu, `gpus[${ranks.length}]`, where);
    ranks.push(deepFreeze(readRank(node, ranks.length)));
  }
  if (ranks.length === 0) root.get("gpus").fail("is empty; a plan has one rank or more");
  const name = root.get("name");
  const inPlace = root.get("inplace").bool();
  const collective = inferCollective(
    root.get("collective").text(),
    inPlace,
    ranks.map(({ chunks: [input, output] }): RankChunks => [input, output]),
  );
  return deepFreeze({
    schemaVersion: 1,
    name: name.value === null ? null : name.text(),
    mode: "imported",
    collective,
    options: {
      protocol: root.get("protocol").one(["Simple", "LL"] as const),
      instances: 1,
      reuseResources: root.maybe("reuse_resources")?.bool() ?? false,
      numThreadsPerBlock: root.maybe("num_threads_per_block")?.count() ?? 1024,
      useDoubleScratchBuffer: root.maybe("use_double_scratch_buffer")?.bool() ?? false,
      bufferAlignment: root.maybe("buffer_alignment")?.count() ?? 16,
      minMessageSizeBytes: root.maybe("min_message_size")?.size() ?? 0n,
      maxMessageSizeBytes: root.maybe("max_message_size")?.size() ?? UNLIMITED_MESSAGE_SIZE,
    },
    ranks: ranks.map(({ chunks, ...rank }) => {
      const segments = segmentsOf(collective, rank.rank);
      return {
        ...rank,
        input: { chunks: chunks[0], segments: segments.input },
        output: { chunks: chunks[1], segments: segments.output },
        scratch: { chunks: chunks[2], segments: 1 },
      };
    }),
    sources: [],
  });
}
