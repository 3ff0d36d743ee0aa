/**
 * Direct algorithms that reach other ranks' scratch alone, not their buffers, so that ranks as processes can run them too:
 * data is sent there, and its receiver takes it out. In packets, which announce their own arrival, for small messages;
 * unit by unit, senders and receivers being strands of their own, for large ones.
 */
import {
  allGather,
  allToAll,
  type Builder,
  broadcast,
  gather,
  type Program,
  program,
  reduce,
  scatter,
} from "../language/index.ts";
import type { PlanCollective } from "../plan/index.ts";
import { after, packetSettings, type RootedArgs, settings } from "./algorithm-args.ts";
import { type StreamingArgs, UNIT_BYTES } from "./streaming.ts";

export interface StagedArgs extends RootedArgs, StreamingArgs {}

/** Which chunk of the sender's input becomes which chunk of the receiver's output. */
interface Part {
  readonly from: number;
  readonly to: number;
}
/** What one rank sends to another, or keeps. */
type Parts = (sender: number, receiver: number) => Part | undefined;

/** Operations that only move data. */
const MOVES = {
  "all-gather": {
    collective: (n: number, args: StagedArgs) => allGather(n, args),
    parts: (): Parts => (sender) => ({ from: 0, to: sender }),
  },
  "all-to-all": {
    collective: (n: number, args: StagedArgs) => allToAll(n, { ...args, inPlace: false }),
    parts: (): Parts => (sender, receiver) => ({ from: receiver, to: sender }),
  },
  broadcast: {
    collective: (n: number, args: StagedArgs) => broadcast(n, { ...args, root: args.root ?? 0 }),
    parts:
      (root: number): Parts =>
      (sender) =>
        sender === root ? { from: 0, to: 0 } : undefined,
  },
  gather: {
    collective: (n: number, args: StagedArgs) => gather(n, { ...args, root: args.root ?? 0 }),
    parts:
      (root: number): Parts =>
      (sender, receiver) =>
        receiver === root ? { from: 0, to: sender } : undefined,
  },
  scatter: {
    collective: (n: number, args: StagedArgs) => scatter(n, { ...args, root: args.root ?? 0 }),
    parts:
      (root: number): Parts =>
      (sender, receiver) =>
        sender === root ? { from: receiver, to: 0 } : undefined,
  },
} as const satisfies Readonly<
  Record<
    string,
    {
      readonly collective: (n: number, args: StagedArgs) => PlanCollective;
      readonly parts: (root: number) => Parts;
    }
  >
>;
type Move = keyof typeof MOVES;

function packetMove(move: Move, args: RootedArgs): Program {
  const { numRanks: n, root = 0 } = args;
  const { collective, parts } = MOVES[move];
  const part = parts(root);
  const made = collective(n, args);
  return program({ ...packetSettings(`packet-${move}`, args), collective: made }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(n));
    for (const rank of p.ranks) {
      for (const peer of after(p.ranks, rank)) {
        const sent = part(rank.id, peer.id);
        if (sent !== undefined) p.copyPackets(inbox[peer.id]!.at(rank.id), rank.input.at(sent.from));
      }
    }
    for (const rank of p.ranks) {
      const kept = made.inPlace ? undefined : part(rank.id, rank.id);
      if (kept !== undefined) rank.copy(rank.output.at(kept.to), rank.input.at(kept.from));
      for (const peer of after(p.ranks, rank)) {
        const got = part(peer.id, rank.id);
        if (got !== undefined) rank.unpackPackets(rank.output.at(got.to), inbox[rank.id]!.at(peer.id));
      }
    }
  });
}

/** Pushes to every receiver unit by unit, into a place for each sender, and says so; `take` uses what has come. */
function stage<P>(
  p: Builder<P>,
  unitBytes: number,
  part: Parts,
  take: (rank: Builder<P>["ranks"][number], inbox: (sender: number) => StagedChunk<P>, strand: number) => void,
): void {
  const n = p.ranks.length;
  const inbox = p.ranks.map((rank) => rank.scratch(n));
  const unit = { unitBytes, numChunks: 1 };
  const [send, receive] = [0, 1];
  const channels = p.ranks.map((rank) => after(p.ranks, rank).map((peer) => p.memoryChannel(rank, peer)));
  for (const rank of p.ranks) {
    const own = channels[rank.id]!;
    const to = own.filter((channel) => part(rank.id, channel.to) !== undefined);
    const from = own.filter((channel) => part(channel.to, rank.id) !== undefined);
    if (to.length > 0) {
      p.loop(unit, () => {
        for (const channel of to) {
          const { from: chunk } = part(rank.id, channel.to)!;
          channel.put(inbox[channel.to]!.at(rank.id), rank.input.at(chunk), send);
        }
        for (const channel of to) channel.signal(send);
      });
    }
    if (from.length === 0) continue;
    p.loop(unit, () => {
      for (const channel of from) channel.wait(receive);
      take(rank, (sender) => inbox[rank.id]!.at(sender), receive);
    });
  }
}
type StagedChunk<P> = ReturnType<ReturnType<Builder<P>["ranks"][number]["scratch"]>["at"]>;

function stagedMove(move: Move, args: StagedArgs): Program {
  const { numRanks: n, root = 0, unitBytes = UNIT_BYTES } = args;
  const { collective, parts } = MOVES[move];
  const part = parts(root);
  const made = collective(n, args);
  const keep = 2;
  return program({ ...settings(`staged-${move}`, args), autoSync: "strand", collective: made }, (p) => {
    stage(p, unitBytes, part, (rank, inbox, strand) => {
      for (const peer of after(p.ranks, rank)) {
        const got = part(peer.id, rank.id);
        if (got !== undefined) rank.copy(rank.output.at(got.to), inbox(peer.id), strand);
      }
    });
    if (made.inPlace) return;
    for (const rank of p.ranks) {
      const kept = part(rank.id, rank.id);
      if (kept !== undefined) rank.copy(rank.output.at(kept.to), rank.input.at(kept.from), keep);
    }
  });
}

export const packetAllToAll = (args: RootedArgs): Program => packetMove("all-to-all", args);
export const packetBroadcast = (args: RootedArgs): Program => packetMove("broadcast", args);
export const packetGather = (args: RootedArgs): Program => packetMove("gather", args);
export const packetScatter = (args: RootedArgs): Program => packetMove("scatter", args);

export const stagedAllGather = (args: StagedArgs): Program => stagedMove("all-gather", args);
export const stagedAllToAll = (args: StagedArgs): Program => stagedMove("all-to-all", args);
export const stagedBroadcast = (args: StagedArgs): Program => stagedMove("broadcast", args);
export const stagedGather = (args: StagedArgs): Program => stagedMove("gather", args);
export const stagedScatter = (args: StagedArgs): Program => stagedMove("scatter", args);

/** Everybody sends its input to the root in packets, which adds them to its own. */
export function packetReduce(args: RootedArgs): Program {
  const { numRanks: n, root = 0 } = args;
  return program({ ...packetSettings("packet-reduce", args), collective: reduce(n, { ...args, root }) }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(rank.id === root ? n : 0));
    const owner = p.rank(root);
    const others = after(p.ranks, owner);
    for (const rank of others) p.copyPackets(inbox[root]!.at(rank.id), rank.input.at(0));
    p.reducePackets(
      owner.output.at(0),
      owner.input.at(0),
      others.map((rank) => inbox[root]!.at(rank.id)),
    );
  });
}

/** Everybody sends its input to the root unit by unit, which adds what has come to its own. */
export function stagedReduce(args: StagedArgs): Program {
  const { numRanks: n, root = 0, unitBytes = UNIT_BYTES } = args;
  const toRoot: Parts = (_sender, receiver) => (receiver === root ? { from: 0, to: 0 } : undefined);
  return program(
    { ...settings("staged-reduce", args), autoSync: "strand", collective: reduce(n, { ...args, root }) },
    (p) =>
      stage(p, unitBytes, toRoot, (rank, inbox, strand) => {
        const [first, ...others] = p.ranks.map((peer) => (peer === rank ? rank.input.at(0) : inbox(peer.id)));
        rank.reduce(first!, others, { dst: rank.output.at(0), strand });
      }),
  );
}
