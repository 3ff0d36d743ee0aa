/**
 * Direct algorithms for large messages between ranks that reach each other's memory: data is pushed and consumed unit by
 * unit, senders and receivers being strands of their own, so that links are busy all the time; or it is pulled where it is
 * needed and pushed where it is wanted, in two phases.
 */
import {
  allGather,
  allReduce,
  type Builder,
  type Chunk,
  type MemoryChannel,
  type Program,
  program,
  type RankHandle,
  reduceScatter,
} from "../language/index.ts";
import { type AlgorithmArgs, after, packetSettings, settings } from "./algorithm-args.ts";
import { loadAndAdd, reduceScatterPackets } from "./all-pairs.ts";

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

/** A channel of its own from each rank to each other, for signals of one kind, from the next rank on. */
const channelsOf = <P>(p: Builder<P>): Channels<P> =>
  p.ranks.map((rank) => after(p.ranks, rank).map((peer) => p.memoryChannel(rank, peer)));

/**
 * All-reduce as a phase of loads and a phase of stores: the owner of a chunk loads it from everybody, and when its strand
 * has done so for all of its share, stores the sums to everybody. Links carry loads both ways, then stores both ways.
 */
export function twoPhaseAllReduce(args: AlgorithmArgs): Program {
  return inTwoPhases("two-phase-all-reduce", args, (p, channels) => {
    for (const own of channels) {
      for (const channel of own) {
        channel.put(p.rank(channel.to).output.at(channel.from), p.rank(channel.from).output.at(channel.from), 0);
      }
    }
    meet(channels);
  });
}

/** As `twoPhaseAllReduce`, but the sums are loaded too: links carry loads alone, in two phases between which the ranks meet. */
export function twoPhaseReadAllReduce(args: AlgorithmArgs): Program {
  return inTwoPhases("two-phase-read-all-reduce", args, (p, channels) => {
    meet(channels);
    for (const own of channels) {
      for (const channel of own) {
        channel.get(p.rank(channel.from).output.at(channel.to), p.rank(channel.to).output.at(channel.to), 0);
      }
    }
    meet(channels);
  });
}

/**
 * As `twoPhaseAllReduce`, but links carry stores alone: chunks go to scratch of their owners, and when the strands of a number
 * have done that, owners add what has come and store the sums to everybody.
 */
export function twoPhasePushAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    {
      ...settings("two-phase-push-all-reduce", args),
      autoSync: "strand",
      collective: allReduce(n, { ...args, chunks: n }),
    },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n));
      const channels = channelsOf(p);
      for (const channel of channels.flat())
        channel.put(inbox[channel.to]!.at(channel.from), p.rank(channel.from).input.at(channel.to), 0);
      meet(channels);
      for (const owner of p.ranks) {
        const share = owner.id;
        const sum = owner.output.at(share);
        const others = after(p.ranks, owner).map((peer) => inbox[share]!.at(peer.id));
        owner.reduce(owner.input.at(share), others, { dst: sum, strand: 0 });
        for (const channel of channels[share]!) channel.put(p.rank(channel.to).output.at(share), sum, 0);
      }
      meet(channels);
    },
  );
}

type Channels<P> = readonly (readonly MemoryChannel<P>[])[];

/** Strands of the same number tell each other how far they are. */
function meet<P>(channels: Channels<P>): void {
  for (const own of channels) for (const channel of own) channel.signal({ strand: 0, sync: "before" });
  for (const own of channels) for (const channel of own) channel.wait({ strand: 0, sync: "after" });
}

function inTwoPhases(
  name: string,
  args: AlgorithmArgs,
  spread: <P>(p: Builder<P>, channels: Channels<P>) => void,
): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings(name, args), autoSync: "strand", collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      for (const owner of p.ranks) {
        loadAndAdd(p, owner);
        owner.barrier([0]);
      }
      spread(p, channelsOf(p));
    },
  );
}

/**
 * All-reduce in two phases of packets: everybody sends each chunk to its owner, which sends the sum to everybody. Twice the
 * latency of `oneShotPacketAllReduce`; of n ranks' links it takes 2 / n of the time.
 */
export function twoPhasePacketAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...packetSettings("two-phase-packet-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      const parts = p.ranks.map((rank) => rank.scratch(n));
      const sums = p.ranks.map((rank) => rank.scratch(n));
      for (const rank of p.ranks)
        for (const owner of after(p.ranks, rank)) {
          p.copyPackets(parts[owner.id]!.at(rank.id), rank.input.at(owner.id));
        }
      for (const owner of p.ranks) {
        const peers = p.ranks.filter((rank) => rank !== owner);
        const sum = owner.output.at(owner.id);
        const got = peers.map((peer) => parts[owner.id]!.at(peer.id));
        p.reducePackets(sum, owner.input.at(owner.id), got);
        for (const peer of after(p.ranks, owner)) p.copyPackets(sums[peer.id]!.at(owner.id), sum);
      }
      for (const rank of p.ranks)
        for (const owner of after(p.ranks, rank)) {
          rank.unpackPackets(rank.output.at(owner.id), sums[rank.id]!.at(owner.id));
        }
    },
  );
}

/** Where the sums of `overlappingPhases` go, and what becomes of them there. */
interface Results<P> {
  /** At a peer, of an owner's sum. */
  readonly place: (peer: RankHandle<P>, owner: number) => Chunk<P>;
  /** Waits for the sums, and does `take` with each that has come. */
  readonly strand: number;
  readonly take?: (rank: RankHandle<P>, owner: number) => void;
}

/**
 * All-reduce in two phases that overlap, unit by unit: everybody pushes each chunk to its owner, which adds what has come and
 * pushes the sum to everybody. Links carry stores alone, all the time.
 */
function overlappingPhases(name: string, args: StreamingArgs, resultsOf: <P>(p: Builder<P>) => Results<P>): Program {
  const { numRanks: n, unitBytes = UNIT_BYTES } = args;
  const unit = { unitBytes, numChunks: 1 };
  return program(
    { ...settings(name, args), autoSync: "strand", collective: allReduce(n, { ...args, chunks: n }) },
    (p) => {
      const { place, strand, take } = resultsOf(p);
      const results = channelsOf(p);
      const parts = p.ranks.map((rank) => rank.scratch(n));
      const channels = channelsOf(p);
      const [send, add] = [0, 1];
      for (const rank of p.ranks) {
        const [own, told] = [channels[rank.id]!, results[rank.id]!];
        p.loop(unit, () => {
          for (const channel of own) channel.put(parts[channel.to]!.at(rank.id), rank.input.at(channel.to), send);
          for (const channel of own) channel.signal(send);
        });
        p.loop(unit, () => {
          for (const channel of own) channel.wait(add);
          const others = p.ranks.filter((peer) => peer !== rank).map((peer) => parts[rank.id]!.at(peer.id));
          const sum = rank.output.at(rank.id);
          rank.reduce(rank.input.at(rank.id), others, { dst: sum, strand: add });
          for (const channel of told) channel.put(place(p.rank(channel.to), rank.id), sum, add);
          for (const channel of told) channel.signal(add);
        });
      }
      for (const rank of p.ranks) {
        p.loop(unit, () => {
          for (const channel of results[rank.id]!) channel.wait(strand);
          for (const { to } of results[rank.id]!) take?.(rank, to);
        });
      }
    },
  );
}

/** All-reduce in two phases that overlap, whose sums are pushed to everybody's output. */
export function streamingTwoPhaseAllReduce(args: StreamingArgs): Program {
  return overlappingPhases("streaming-two-phase-all-reduce", args, () => ({
    place: (peer, owner) => peer.output.at(owner),
    strand: 1,
  }));
}

/** As `streamingTwoPhaseAllReduce`, but sums are pushed to scratch, from where a third strand takes them. */
export function stagedAllReduce(args: StreamingArgs): Program {
  return overlappingPhases("staged-all-reduce", args, (p) => {
    const sums = p.ranks.map((rank) => rank.scratch(args.numRanks));
    const strand = 2;
    return {
      place: (peer, owner) => sums[peer.id]!.at(owner),
      strand,
      take: (rank, owner) => rank.copy(rank.output.at(owner), sums[rank.id]!.at(owner), strand),
    };
  });
}
