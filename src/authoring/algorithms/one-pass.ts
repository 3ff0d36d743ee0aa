/**
 * Algorithms of one pass over memory, for ranks that see each other's buffers: every rank loads its share from wherever it
 * is, stores it wherever it belongs, and all hear of each other at the end. What two-shot all-reduce does in
 * `twoShotFusedReadAllReduce`, after MSCCL++'s `allreduce`. One strand a rank, in an order that spreads the load: a rank
 * begins with its own buffer and goes on with the next rank's.
 */
import {
  allGather,
  allReduce,
  allToAll,
  type Builder,
  broadcast,
  type MemoryChannel,
  type Program,
  program,
  type RankHandle,
  reduce,
  reduceScatter,
  scatter,
} from "../language/index.ts";
import { type AlgorithmArgs, after, type RootedArgs, settings } from "./algorithm-args.ts";

/** What one rank moves: its channels by peer, and the peers from the next one on. */
type Move<P> = (
  rank: RankHandle<P>,
  to: (peer: RankHandle<P>) => MemoryChannel<P>,
  peers: readonly RankHandle<P>[],
) => void;

/** Every rank moves its share; then each tells those it touched, and waits for those that touched it. */
function onePass<P>(
  p: Builder<P>,
  move: Move<P>,
  touches = (_rank: RankHandle<P>, _peer: RankHandle<P>) => true,
): void {
  const channels = p.ranks.map(
    (rank) => new Map(after(p.ranks, rank).map((peer) => [peer.id, p.memoryChannel(rank, peer)])),
  );
  const channel = (rank: RankHandle<P>, peer: RankHandle<P>) => channels[rank.id]?.get(peer.id) as MemoryChannel<P>;
  for (const rank of p.ranks) move(rank, (peer) => channel(rank, peer), after(p.ranks, rank));
  for (const rank of p.ranks) {
    for (const peer of after(p.ranks, rank))
      if (touches(rank, peer)) channel(rank, peer).signal({ strand: 0, sync: "before" });
  }
  for (const rank of p.ranks) {
    for (const peer of after(p.ranks, rank)) if (touches(peer, rank)) channel(rank, peer).wait(0);
  }
}

/** Every rank stores its input to everybody. */
export function onePassAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n, inPlace } = args;
  return program(
    { ...settings("one-pass-all-gather", args), autoSync: "strand", collective: allGather(n, args) },
    (p) =>
      onePass(p, (rank, to, peers) => {
        if (!inPlace) rank.copy(rank.output.at(rank.id), rank.input.at(0), 0);
        for (const peer of peers) to(peer).put(peer.output.at(rank.id), rank.input.at(0), 0);
      }),
  );
}

/** Every rank loads its chunk of everybody's input, adds in one go, and stores the sum to everybody. */
export function onePassAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("one-pass-all-reduce", args), autoSync: "strand", collective: allReduce(n, { ...args, chunks: n }) },
    (p) =>
      onePass(p, (rank, to, peers) => {
        const sum = rank.output.at(rank.id);
        const parts = peers.map((peer) => peer.input.at(rank.id));
        p.reduce(sum, rank.input.at(rank.id), parts, 0);
        for (const peer of peers) to(peer).put(peer.output.at(rank.id), sum, 0);
      }),
  );
}

/** Every rank loads its part of everybody's input, and adds in one go. */
export function onePassReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("one-pass-reduce-scatter", args), autoSync: "strand", collective: reduceScatter(n, args) },
    (p) =>
      onePass(p, (rank, _to, peers) => {
        const parts = peers.map((peer) => peer.input.at(rank.id));
        p.reduce(rank.output.at(0), rank.input.at(rank.id), parts, 0);
      }),
  );
}

/**
 * Every rank loads its share of everybody's input, adds in one go, and stores the sums to the root. A reduction has a place of
 * its own rank for its result: scratch, which an executor need not write where nobody reads it.
 */
export function onePassReduce(args: RootedArgs): Program {
  const { numRanks: n, root = 0 } = args;
  return program(
    {
      ...settings("one-pass-reduce", args),
      autoSync: "strand",
      collective: reduce(n, { ...args, root, chunks: n }),
    },
    (p) => {
      const target = p.rank(root);
      const sums = p.ranks.map((rank) => rank.scratch(rank === target ? 0 : 1));
      onePass(p, (rank, to, peers) => {
        const share = target.output.at(rank.id);
        const sum = rank === target ? share : sums[rank.id]!.at(0);
        const parts = peers.map((peer) => peer.input.at(rank.id));
        p.reduce(sum, rank.input.at(rank.id), parts, 0);
        if (rank !== target) to(target).put(share, sum, 0);
      });
    },
  );
}

/** Every rank loads its part of everybody's input. */
export function onePassAllToAll(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...settings("one-pass-all-to-all", args),
      autoSync: "strand",
      collective: allToAll(n, { ...args, inPlace: false }),
    },
    (p) =>
      onePass(p, (rank, to, peers) => {
        rank.copy(rank.output.at(rank.id), rank.input.at(rank.id), 0);
        for (const peer of peers) to(peer).get(rank.output.at(peer.id), peer.input.at(rank.id), 0);
      }),
  );
}

/** Every rank loads its share of the root's input, and stores it to everybody. */
export function onePassBroadcast(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program(
    {
      ...settings("one-pass-broadcast", args),
      autoSync: "strand",
      collective: broadcast(n, { ...args, root, chunks: n }),
    },
    (p) => {
      const source = p.rank(root);
      onePass(p, (rank, to, peers) => {
        const share = rank.output.at(rank.id);
        if (rank !== source) to(source).get(share, source.input.at(rank.id), 0);
        else if (!inPlace) rank.copy(share, rank.input.at(rank.id), 0);
        for (const peer of peers) {
          if (peer !== source || !inPlace) to(peer).put(peer.output.at(rank.id), share, 0);
        }
      });
    },
  );
}

/** Every rank loads its part of the root's input. */
export function onePassScatter(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program(
    { ...settings("one-pass-scatter", args), autoSync: "strand", collective: scatter(n, { ...args, root }) },
    (p) => {
      const source = p.rank(root);
      onePass(
        p,
        (rank, to) => {
          if (rank !== source) to(source).get(rank.output.at(0), source.input.at(rank.id), 0);
          else if (!inPlace) rank.copy(rank.output.at(0), rank.input.at(rank.id), 0);
        },
        (_rank, peer) => peer === source,
      );
    },
  );
}
