/**
 * Direct algorithms for large messages between ranks that reach each other's memory: data is pushed and consumed unit by
 * unit, senders and receivers being strands of their own, so that links are busy all the time; or it is pulled where it is
 * needed and pushed where it is wanted, in two phases.
 */
import { allGather, allReduce, type Builder, type Program, program, reduceScatter } from "../language/index.ts";
import { type AlgorithmArgs, after, packetSettings, settings } from "./algorithm-args.ts";
import { loadAndAdd, reduceScatterPackets, storeSums } from "./all-pairs.ts";

export interface StreamingArgs extends AlgorithmArgs {
  /** Bytes that a strand sends before it says so. 64 KiB unless told. */
  readonly unitBytes?: number;
}

/** A signal costs some microseconds, in which a strand at a fair share of a link sends about as much. */
export const UNIT_BYTES = 65_536;

/** Everybody pushes to each rank the chunk of its input that is for it, unit by unit, and adds what has come. */
function pushAndAdd<P>(p: Builder<P>, unitBytes: number, chunkFor: (rank: number) => number): void {
  const inbox = p.ranks.map((rank) => rank.scratch(p.ranks.length));
  const unit = { unitBytes, numChunks: 1 };
  const [send, receive] = [0, 1];
  for (const rank of p.ranks) {
    const channels = after(p.ranks, rank).map((peer) => p.memoryChannel(rank, peer));
    p.loop(unit, () => {
      for (const channel of channels) {
        channel.put(inbox[channel.to]!.at(rank.id), rank.input.at(chunkFor(channel.to)), send);
      }
      for (const channel of channels) channel.signal(send);
    });
    p.loop(unit, () => {
      for (const channel of channels) channel.wait(receive);
      // In rank order: the same bits everywhere.
      const [first, ...others] = p.ranks.map((peer) =>
        peer === rank ? rank.input.at(chunkFor(rank.id)) : inbox[rank.id]!.at(peer.id),
      );
      rank.reduce(first!, others, { dst: rank.output.at(0), strand: receive });
    });
  }
}

/**
 * All-reduce in one step: everybody pushes its input to everybody, unit by unit, and adds what has come. For two ranks it
 * moves no byte more than it must; n ranks send (n - 1) times their input. Not in place: sums would overwrite what is still
 * to be sent.
 */
export function streamingAllReduce(args: StreamingArgs): Program {
  const { numRanks: n, unitBytes = UNIT_BYTES } = args;
  return program(
    {
      ...settings("streaming-all-reduce", { ...args, inPlace: false }),
      autoSync: "strand",
      collective: allReduce(n, { ...args, inPlace: false, chunks: 1 }),
    },
    (p) => pushAndAdd(p, unitBytes, () => 0),
  );
}

/** Reduce-scatter in one step, unit by unit: everybody pushes each part to its owner, which adds what has come. */
export function streamingReduceScatter(args: StreamingArgs): Program {
  const { numRanks: n, unitBytes = UNIT_BYTES } = args;
  return program(
    {
      ...settings("streaming-reduce-scatter", { ...args, inPlace: false }),
      autoSync: "strand",
      collective: reduceScatter(n, { ...args, inPlace: false }),
    },
    (p) => pushAndAdd(p, unitBytes, (owner) => owner),
  );
}

/** All-gather in one step: one strand pushes the input to everybody, another copies it to its own place meanwhile. */
export function streamingAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n, inPlace } = args;
  return program({ ...settings("streaming-all-gather", args), collective: allGather(n, args) }, (p) => {
    const [send, keep] = [0, 1];
    for (const rank of p.ranks) {
      for (const peer of after(p.ranks, rank)) p.copy(peer.output.at(rank.id), rank.input.at(0), send);
      if (!inPlace) rank.copy(rank.output.at(rank.id), rank.input.at(0), keep);
    }
  });
}

/** Reduce-scatter in packets, sent by one strand and received by another: for messages that a strand does not send at once. */
export function streamingPacketReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...packetSettings("streaming-packet-reduce-scatter", { ...args, inPlace: false }),
      collective: reduceScatter(n, { ...args, inPlace: false }),
    },
    (p) => reduceScatterPackets(p, 0, 1),
  );
}

/** Every rank loads its part of everybody's input, and adds: no scratch, no step before the data. */
export function readReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("read-reduce-scatter", args), collective: reduceScatter(n, args) }, (p) => {
    for (const rank of p.ranks) {
      p.reduce(
        rank.output.at(0),
        rank.input.at(rank.id),
        after(p.ranks, rank).map((peer) => peer.input.at(rank.id)),
      );
    }
  });
}

/**
 * All-reduce as a phase of loads and a phase of stores: the owner of a chunk loads it from everybody, and when its strand
 * has done so for all of its share, stores the sums to everybody. Links carry loads both ways, then stores both ways.
 */
export function twoPhaseAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("two-phase-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      for (const owner of p.ranks) {
        loadAndAdd(p, owner);
        owner.barrier([0]);
        storeSums(p, owner);
      }
    },
  );
}
