/** The tables of a MSCCL++ file, for plans that do not carry them: in order of first use. */
import type { ChannelKind, Op, RankPlan, RemoteBuffer, RemoteRange, Strand, StrandTables } from "./execution-plan.ts";

interface Use {
  channels: Map<ChannelKind | "switch", Set<number>>;
  remotes: Map<ChannelKind, Set<number>>;
}

/** Gives a rank's plan the tables that its operations need. Existing tables are kept. */
export function withTables(rank: RankPlan): RankPlan {
  if (rank.tables !== undefined && rank.strands.every((strand) => strand.tables !== undefined)) return rank;
  const ids = new Map<string, number>();
  const buffers: { rank: number; buffer: RemoteBuffer["buffer"]; access: Set<ChannelKind> }[] = [];
  const remoteId = (kind: ChannelKind, r: RemoteRange): number => {
    const key = `${r.rank} ${r.buffer}`;
    let id = ids.get(key);
    if (id === undefined) {
      id = buffers.push({ rank: r.rank, buffer: r.buffer, access: new Set() }) - 1;
      ids.set(key, id);
    }
    buffers[id]?.access.add(kind);
    return id;
  };
  const visit = (op: Op, use: Use): void => {
    const remotes = (kind: ChannelKind, ranges: readonly RemoteRange[]) => {
      for (const range of ranges) {
        const set = use.remotes.get(kind) ?? new Set();
        use.remotes.set(kind, set.add(remoteId(kind, range)));
      }
    };
    const channels = (kind: ChannelKind | "switch", list: readonly number[]) => {
      for (const id of list) {
        const set = use.channels.get(kind) ?? new Set();
        use.channels.set(kind, set.add(id));
      }
    };
    switch (op.kind) {
      case "get":
        remotes(op.channelKind, op.src);
        channels(op.channelKind, op.channels);
        return;
      case "put":
        remotes(op.channelKind, op.dst);
        channels(op.channelKind, op.channels);
        return;
      case "reduce":
        if (op.channelKind === undefined) return;
        remotes(op.channelKind, [...op.remoteSrc, ...op.remoteDst]);
        channels(op.channelKind, op.channels);
        return;
      case "signal":
      case "wait":
      case "flush":
        channels(op.channelKind, op.channels);
        return;
      case "switch-reduce":
      case "switch-reduce-broadcast":
        channels("switch", [op.src.channel]);
        return;
      case "switch-broadcast":
        channels("switch", [op.dst.channel]);
        return;
      case "pipeline":
        for (const inner of op.body) visit(inner, use);
    }
  };
  const strands: Strand[] = rank.strands.map((strand) => {
    const use: Use = { channels: new Map(), remotes: new Map() };
    for (const op of strand.ops) visit(op, use);
    const tables: StrandTables = {
      channels: [...use.channels].map(([kind, set]) => ({ kind, ids: [...set] })),
      remoteBuffers: [...use.remotes].map(([kind, set]) => ({ kind, refs: [...set] })),
    };
    return { ...strand, tables };
  });
  const channelKinds = (["memory", "port"] as const).filter((kind) => rank.channels[kind].length > 0);
  return {
    ...rank,
    strands,
    tables: { remoteBuffers: buffers.map((b) => ({ ...b, access: [...b.access] })), channelKinds },
  };
}
