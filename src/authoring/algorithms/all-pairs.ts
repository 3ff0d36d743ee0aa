/**
 * Direct algorithms for fully connected ranks: one or two steps, every rank with every other at once. One-shot and
 * two-shot as in TensorRT-LLM's and MSCCL++'s custom all-reduce; packets (data with flags, "LL") after NCCL and MSCCL++:
 * they announce their own arrival, so that no signal is needed. Results are the same bits on all ranks: whoever reduces
 * on its own does so in rank order.
 */
import {
  allGather,
  allReduce,
  allToAll,
  allToAllV,
  type Builder,
  type Chunk,
  type Program,
  program,
  type RankHandle,
  reduceScatter,
} from "../language/index.ts";
import { type AlgorithmArgs, after, packetSettings, settings } from "./algorithm-args.ts";

/** Everybody puts its input to everybody, and reduces all of it: 1 step, n - 1 times the data. */
export function oneShotAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("one-shot-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n * n));
      for (const rank of p.ranks) {
        for (const peer of [...after(p.ranks, rank), rank]) {
          // In place the result takes the place of the own input, perhaps before that is added.
          if (peer === rank && !args.inPlace) continue;
          for (let c = 0; c < n; c++) p.copy(inbox[peer.id]!.at(rank.id * n + c), rank.input.at(c), c);
        }
      }
      for (const rank of p.ranks) {
        for (let c = 0; c < n; c++) {
          const from = p.ranks.map((peer) =>
            peer === rank && !args.inPlace ? rank.input.at(c) : inbox[rank.id]!.at(peer.id * n + c),
          );
          p.reduce(rank.output.at(c), from[0]!, from.slice(1), c);
        }
      }
    },
  );
}

/**
 * One-shot all-reduce that reads its peers' inputs instead of having them put. They are fetched to scratch first: a
 * reduction takes its own rank's operands before remote ones, so that loading and adding at once would sum in another
 * order on every rank. Not in place: inputs must last.
 */
export function oneShotReadAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...settings("one-shot-read-all-reduce", { ...args, inPlace: false }),
      collective: allReduce(n, { ...args, inPlace: false, chunks: n }),
    },
    (p) => {
      const fetched = p.ranks.map((rank) => rank.scratch(n * n));
      for (const rank of p.ranks) {
        for (const peer of after(p.ranks, rank)) {
          const channel = p.memoryChannel(rank, peer);
          for (let c = 0; c < n; c++) channel.get(fetched[rank.id]!.at(peer.id * n + c), peer.input.at(c), c);
        }
      }
      for (const rank of p.ranks) {
        for (let c = 0; c < n; c++) {
          const from = p.ranks.map((peer) =>
            peer === rank ? rank.input.at(c) : fetched[rank.id]!.at(peer.id * n + c),
          );
          p.reduce(rank.output.at(c), from[0]!, from.slice(1), c);
        }
      }
    },
  );
}

/**
 * One-shot all-reduce in packets: the lowest latency for the smallest messages. Two ranks add what has come to their own
 * input, whose sum does not depend on the order; more add in rank order, their own contribution being packets as well.
 */
export function oneShotPacketAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...packetSettings("one-shot-packet-all-reduce", args),
      collective: allReduce(n, { ...args, chunks: n }),
    },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n * n));
      if (n === 2) {
        for (const rank of p.ranks) {
          const peer = p.rank(1 - rank.id);
          for (let c = 0; c < n; c++) p.copyPackets(inbox[peer.id]!.at(rank.id * n + c), rank.input.at(c), c);
        }
        for (const rank of p.ranks) {
          for (let c = 0; c < n; c++)
            p.reducePackets(rank.output.at(c), rank.input.at(c), [inbox[rank.id]!.at((1 - rank.id) * n + c)], c);
        }
        return;
      }
      for (const rank of p.ranks) {
        for (const peer of [...after(p.ranks, rank), rank]) {
          for (let c = 0; c < n; c++) p.copyPackets(inbox[peer.id]!.at(rank.id * n + c), rank.input.at(c), c);
        }
      }
      for (const rank of p.ranks) {
        for (let c = 0; c < n; c++) {
          const slot = (peer: number) => inbox[rank.id]!.at(peer * n + c);
          rank.unpackPackets(rank.output.at(c), slot(0), c);
          p.reducePackets(
            rank.output.at(c),
            rank.output.at(c),
            p.ranks.slice(1).map((peer) => slot(peer.id)),
            c,
          );
        }
      }
    },
  );
}

/** Every rank puts part j of its input to rank j. @returns what a rank got from the others, in rank order */
function putParts<P>(p: Builder<P>, put: (dst: Chunk<P, "scratch">, src: Chunk<P>) => void) {
  const inbox = p.ranks.map((rank) => rank.scratch(p.ranks.length));
  for (const rank of p.ranks) {
    for (const owner of after(p.ranks, rank)) put(inbox[owner.id]!.at(rank.id), rank.input.at(owner.id));
  }
  return (owner: RankHandle<P>) => p.ranks.filter((rank) => rank !== owner).map((rank) => inbox[owner.id]!.at(rank.id));
}

/** Rank r reduces chunk r of everybody and puts the result to everybody: 2 steps, twice the data. */
export function twoShotAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("two-shot-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      const got = putParts(p, (dst, src) => p.copy(dst, src));
      for (const owner of p.ranks) p.reduce(owner.output.at(owner.id), owner.input.at(owner.id), got(owner));
      for (const owner of p.ranks) {
        for (const rank of after(p.ranks, owner)) p.copy(rank.output.at(owner.id), owner.output.at(owner.id));
      }
    },
  );
}

/** Two-shot all-reduce in packets. MSCCL++'s `allreduce_pkt`, with n x n chunks so that n strands share the work. */
export function twoShotPacketAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...packetSettings("two-shot-packet-all-reduce", args),
      collective: allReduce(n, { ...args, chunks: n * n }),
    },
    (p) => {
      const partial = p.ranks.map((rank) => rank.scratch(n * n));
      const result = p.ranks.map((rank) => rank.scratch(n * n));
      for (const rank of p.ranks) {
        for (const owner of p.ranks) {
          if (owner !== rank)
            p.copyPackets(
              partial[owner.id]!.slice(rank.id * n, rank.id * n + n),
              rank.input.slice(owner.id * n, owner.id * n + n),
              owner.id,
            );
        }
      }
      for (const owner of p.ranks) {
        const peers = p.ranks.filter((rank) => rank !== owner);
        for (let i = 0; i < n; i++) {
          const c = owner.id * n + i;
          p.reducePackets(
            owner.output.at(c),
            owner.input.at(c),
            peers.map((peer) => partial[owner.id]!.at(peer.id * n + i)),
            i,
          );
          for (const peer of peers) p.copyPackets(result[peer.id]!.at(c), owner.output.at(c), i);
        }
      }
      for (const rank of p.ranks) {
        for (const owner of p.ranks) {
          if (owner !== rank)
            rank.unpackPackets(
              rank.output.slice(owner.id * n, owner.id * n + n),
              result[rank.id]!.slice(owner.id * n, owner.id * n + n),
              owner.id,
            );
        }
      }
    },
  );
}

/** Adds an owner's chunk of everybody's input, which it loads: from the next rank on unless told otherwise. */
export function loadAndAdd<P>(p: Builder<P>, owner: RankHandle<P>, from = after(p.ranks, owner)): void {
  const c = owner.id;
  p.reduce(
    owner.output.at(c),
    owner.input.at(c),
    from.map((rank) => rank.input.at(c)),
  );
}

/** Stores an owner's sums to everybody. */
function storeSums<P>(p: Builder<P>, owner: RankHandle<P>): void {
  for (const rank of after(p.ranks, owner)) p.copy(rank.output.at(owner.id), owner.output.at(owner.id));
}

/** Two-shot all-reduce that reads: the owner of a chunk loads it from everybody and stores the result to everybody. */
export function twoShotReadAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("two-shot-read-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      for (const owner of p.ranks) {
        loadAndAdd(
          p,
          owner,
          p.ranks.filter((rank) => rank !== owner),
        );
        storeSums(p, owner);
      }
    },
  );
}

/**
 * Two-shot all-reduce in one pass, the shape of MSCCL++'s `allreduce`: all ranks meet, the owner of a chunk loads it from
 * everybody and stores the sum to everybody at once, all meet again. One fence where `twoShotReadAllReduce` has n - 1.
 */
export function twoShotFusedReadAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...settings("two-shot-fused-read-all-reduce", args),
      autoSync: "strand",
      collective: allReduce(n, { ...args, chunks: n }),
    },
    (p) => {
      const pairs = p.ranks.flatMap((rank) => after(p.ranks, rank).map((peer) => p.memoryChannel(rank, peer)));
      for (const pair of pairs) pair.signal({ strand: 0, relaxed: true });
      for (const pair of pairs) pair.wait({ strand: 0, relaxed: true, sync: "after" });
      for (const owner of p.ranks) {
        loadAndAdd(p, owner);
        storeSums(p, owner);
      }
      for (const pair of pairs) pair.signal({ strand: 0, sync: "before" });
      for (const pair of pairs) pair.wait(0);
    },
  );
}

/** Every rank puts its input to every other. */
export function directAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n, inPlace } = args;
  return program({ ...settings("direct-all-gather", args), collective: allGather(n, args) }, (p) => {
    for (const rank of p.ranks) {
      for (const peer of p.ranks) {
        if (peer !== rank) p.copy(peer.output.at(rank.id), rank.input.at(0), peer.id > rank.id ? peer.id - 1 : peer.id);
        else if (!inPlace) rank.copy(rank.output.at(rank.id), rank.input.at(0));
      }
    }
  });
}

/** Direct all-gather in packets. */
export function packetAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n, inPlace } = args;
  return program(
    {
      ...packetSettings("packet-all-gather", args),
      collective: allGather(n, args),
    },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n));
      for (const rank of p.ranks) {
        for (const peer of after(p.ranks, rank)) p.copyPackets(inbox[peer.id]!.at(rank.id), rank.input.at(0));
      }
      for (const rank of p.ranks) {
        if (!inPlace) rank.copy(rank.output.at(rank.id), rank.input.at(0));
        for (const peer of p.ranks)
          if (peer !== rank) rank.unpackPackets(rank.output.at(peer.id), inbox[rank.id]!.at(peer.id));
      }
    },
  );
}

/** Every rank puts part j of its input to rank j, which reduces what it got. */
export function directReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("direct-reduce-scatter", args), collective: reduceScatter(n, args) }, (p) => {
    const got = putParts(p, (dst, src) => p.copy(dst, src));
    for (const owner of p.ranks) p.reduce(owner.output.at(0), owner.input.at(owner.id), got(owner));
  });
}

/** Reduce-scatter in packets, which strand `send` sends and strand `receive` adds. */
export function reduceScatterPackets<P>(p: Builder<P>, send: number, receive: number): void {
  const got = putParts(p, (dst, src) => p.copyPackets(dst, src, send));
  for (const owner of p.ranks) p.reducePackets(owner.output.at(0), owner.input.at(owner.id), got(owner), receive);
}

/** Direct reduce-scatter in packets. */
export function packetReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...packetSettings("packet-reduce-scatter", args),
      collective: reduceScatter(n, args),
    },
    (p) => {
      reduceScatterPackets(p, 0, 0);
    },
  );
}

/** Every rank puts each part to the rank it is for, all at once. */
export function directAllToAll(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("direct-all-to-all", args), collective: allToAll(n, { ...args, inPlace: false }) },
    (p) => {
      for (const rank of p.ranks) {
        for (const peer of p.ranks)
          p.copy(peer.output.at(rank.id), rank.input.at(peer.id), peer.id > rank.id ? peer.id - 1 : peer.id);
      }
    },
  );
}

export interface AllToAllVArgs extends Omit<AlgorithmArgs, "numRanks" | "inPlace"> {
  /** sendCounts[i][j]: chunks that rank i sends to rank j. */
  readonly sendCounts: readonly (readonly number[])[];
}

/** Direct all-to-all of parts of different sizes. */
export function directAllToAllV(args: AllToAllVArgs): Program {
  const counts = args.sendCounts;
  const n = counts.length;
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  return program(
    { ...settings("direct-all-to-all-v", { ...args, numRanks: n }), collective: allToAllV(counts) },
    (p) => {
      for (const rank of p.ranks) {
        for (const peer of p.ranks) {
          const size = counts[rank.id]?.[peer.id] ?? 0;
          if (size === 0) continue;
          const from = sum((counts[rank.id] ?? []).slice(0, peer.id));
          const to = sum(counts.slice(0, rank.id).map((row) => row[peer.id] ?? 0));
          p.copy(peer.output.slice(to, to + size), rank.input.slice(from, from + size), peer.id);
        }
      }
    },
  );
}
