/**
 * Direct algorithms for large messages between ranks that reach each other's memory: data is pushed and consumed unit by
 * unit, senders and receivers being strands of their own, so that links are busy all the time; or it is pulled where it is
 * needed and pushed where it is wanted, in two phases.
 */
import { allGather, allReduce, type Program, program, reduceScatter } from "../language/index.ts";
import { type AlgorithmArgs, after, settings } from "./algorithm-args.ts";

export interface StreamingArgs extends AlgorithmArgs {
  /** Bytes that a strand sends before it says so. 64 KiB unless told. */
  readonly unitBytes?: number;
}

/** A signal costs some microseconds, in which a strand at a fair share of a link sends about as much. */
const UNIT_BYTES = 65_536;

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
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n));
      const unit = { unitBytes, numChunks: 1 };
      const [send, receive] = [0, 1];
      for (const rank of p.ranks) {
        const channels = after(p.ranks, rank).map((peer) => p.memoryChannel(rank, peer));
        p.loop(unit, () => {
          for (const channel of channels) channel.put(inbox[channel.to]!.at(rank.id), rank.input.at(0), send);
          for (const channel of channels) channel.signal(send);
        });
        p.loop(unit, () => {
          for (const channel of channels) channel.wait(receive);
          // In rank order: the same bits everywhere.
          const [first, ...others] = p.ranks.map((peer) =>
            peer === rank ? rank.input.at(0) : inbox[rank.id]!.at(peer.id),
          );
          rank.reduce(first!, others, { dst: rank.output.at(0), strand: receive });
        });
      }
    },
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
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n));
      const unit = { unitBytes, numChunks: 1 };
      const [send, receive] = [0, 1];
      for (const rank of p.ranks) {
        const channels = after(p.ranks, rank).map((peer) => p.memoryChannel(rank, peer));
        p.loop(unit, () => {
          for (const channel of channels) channel.put(inbox[channel.to]!.at(rank.id), rank.input.at(channel.to), send);
          for (const channel of channels) channel.signal(send);
        });
        p.loop(unit, () => {
          for (const channel of channels) channel.wait(receive);
          const [first, ...others] = p.ranks.map((peer) =>
            peer === rank ? rank.input.at(rank.id) : inbox[rank.id]!.at(peer.id),
          );
          rank.reduce(first!, others, { dst: rank.output.at(0), strand: receive });
        });
      }
    },
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
      ...settings("streaming-packet-reduce-scatter", { ...args, inPlace: false }),
      protocol: "LL",
      useDoubleScratchBuffer: true,
      collective: reduceScatter(n, { ...args, inPlace: false }),
    },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n));
      const [send, receive] = [0, 1];
      for (const rank of p.ranks) {
        for (const owner of after(p.ranks, rank))
          p.copyPackets(inbox[owner.id]!.at(rank.id), rank.input.at(owner.id), send);
      }
      for (const owner of p.ranks) {
        const others = p.ranks.filter((rank) => rank !== owner).map((rank) => inbox[owner.id]!.at(rank.id));
        p.reducePackets(owner.output.at(0), owner.input.at(owner.id), others, receive);
      }
    },
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
        const c = owner.id;
        p.reduce(
          owner.output.at(c),
          owner.input.at(c),
          after(p.ranks, owner).map((rank) => rank.input.at(c)),
        );
        owner.barrier([0]);
        for (const rank of after(p.ranks, owner)) p.copy(rank.output.at(c), owner.output.at(c));
      }
    },
  );
}
