/**
 * MSCCL++'s own example programs in chorale's language, call for call, with their manual synchronisation: compiled with
 * `compat: "mscclpp"` they give the plans that MSCCL++ ships. Compare with `all-pairs.ts`, where the compiler
 * synchronises. Source: microsoft/mscclpp, `python/mscclpp/language/tests` and `default_algos`, version 0.9.
 */
import {
  allGather,
  allReduce,
  allToAll,
  type Builder,
  type MemoryChannel,
  type Program,
  program,
  type RankHandle,
  sendRecv,
} from "../language/index.ts";

export interface MscclppArgs {
  readonly name?: string;
  readonly numRanks: number;
  readonly numThreadsPerBlock?: number;
  readonly minMessageSizeBytes?: number | bigint;
  readonly maxMessageSizeBytes?: number | bigint;
}

/** A memory channel from every rank to every other, made in the order of ranks and peers. */
function mesh<P>(p: Builder<P>): (from: RankHandle<P>, to: RankHandle<P>) => MemoryChannel<P> {
  const channels = p.ranks.map((from) => p.ranks.map((to) => (from === to ? undefined : p.memoryChannel(from, to))));
  return (from, to) => channels[from.id]![to.id]!;
}
function othersOf<P>(p: Builder<P>, rank: RankHandle<P>): RankHandle<P>[] {
  return p.ranks.filter((peer) => peer !== rank);
}
/** The ranks after `rank`, round the ring. */
function following<P>(p: Builder<P>, rank: RankHandle<P>): RankHandle<P>[] {
  return Array.from({ length: p.numRanks - 1 }, (_, i) => p.rank((rank.id + 1 + i) % p.numRanks));
}

/** `single_node/allreduce.py`: every rank reads its chunks from all peers and puts the sums back. */
export function mscclppAllReduce({ name = "allreduce", numRanks: n, ...sizes }: MscclppArgs): Program {
  const strands = 8;
  return program({ ...sizes, name, collective: allReduce(n, { chunks: n * strands, inPlace: true }) }, (p) => {
    const all = Array.from({ length: strands }, (_, strand) => strand);
    const channels = p.ranks.map((rank) =>
      all.map(() => p.ranks.map((peer) => (peer === rank ? undefined : p.memoryChannel(rank, peer)))),
    );
    const each = (visit: (channel: MemoryChannel<string>, strand: number) => void) => {
      for (const rank of p.ranks)
        for (const strand of all)
          for (const peer of othersOf(p, rank)) visit(channels[rank.id]![strand]![peer.id]!, strand);
    };
    each((channel, strand) => channel.signal({ strand, relaxed: true }));
    each((channel, strand) => channel.wait({ strand, relaxed: true, sync: "after" }));
    for (const rank of p.ranks) {
      for (const strand of all) {
        const index = rank.id * strands + strand;
        const own = rank.input.at(index);
        for (const peer of othersOf(p, rank))
          channels[rank.id]![strand]![peer.id]!.reduce(own, [peer.input.at(index)], strand);
        for (const peer of othersOf(p, rank))
          channels[rank.id]![strand]![peer.id]!.put(peer.input.at(index), own, strand);
      }
    }
    each((channel, strand) => channel.signal({ strand, sync: "before" }));
    each((channel, strand) => channel.wait(strand));
  });
}

/** `single_node/allreduce_naivy.py`: two-shot in packets on one strand. */
export function mscclppAllReduceNaive({ name = "allreduce_naivy", numRanks: n, ...sizes }: MscclppArgs): Program {
  return program({ ...sizes, name, collective: allReduce(n, { chunks: n, inPlace: true }), protocol: "LL" }, (p) => {
    const scratch = p.ranks.map((rank) => rank.scratch(2 * n));
    const to = mesh(p);
    for (const rank of p.ranks) {
      for (const peer of othersOf(p, rank))
        to(rank, peer).putPackets(scratch[peer.id]!.at(rank.id), rank.input.at(peer.id));
    }
    for (const rank of p.ranks) {
      const own = rank.input.at(rank.id);
      rank.reducePackets(
        own,
        othersOf(p, rank).map((peer) => scratch[rank.id]!.at(peer.id)),
      );
      for (const peer of othersOf(p, rank)) to(rank, peer).putPackets(scratch[peer.id]!.at(n + rank.id), own);
    }
    for (const rank of p.ranks) {
      for (const peer of othersOf(p, rank))
        rank.unpackPackets(rank.input.at(peer.id), scratch[rank.id]!.at(n + peer.id));
    }
  });
}

/** `single_node/allreduce_nvls_zero_copy.py`: the switch reduces each rank's chunk and broadcasts it, in place. */
export function mscclppAllReduceSwitch({
  name = "allreduce_nvls_zero_copy",
  numRanks: n,
  ...sizes
}: MscclppArgs): Program {
  return program({ ...sizes, name, collective: allReduce(n, { chunks: n, inPlace: true }), instances: 8 }, (p) => {
    const inputs = p.switchChannel(p.ranks, "input");
    const to = mesh(p);
    for (const rank of p.ranks) {
      for (const peer of othersOf(p, rank)) to(rank, peer).signal({ relaxed: true });
      for (const peer of othersOf(p, rank)) to(rank, peer).wait({ relaxed: true, sync: "after" });
    }
    for (const rank of p.ranks) {
      inputs.at(rank).reduce(rank.input.at(rank.id), rank.id);
      inputs.at(rank).broadcast(rank.input.at(rank.id), rank.id);
    }
    for (const rank of p.ranks) {
      for (const peer of othersOf(p, rank)) to(rank, peer).signal({ relaxed: true, sync: "before" });
      for (const peer of othersOf(p, rank)) to(rank, peer).wait({ relaxed: true });
    }
  });
}

/** `single_node/allreduce_pipeline.py`: copy in, reduce by the switch and copy out, as a pipeline of three strands. */
export function mscclppAllReducePipeline({
  name = "allreduce_pipeline",
  ...sizes
}: Omit<MscclppArgs, "numRanks">): Program {
  const n = 2;
  return program(
    { ...sizes, name, collective: allReduce(n, { chunks: n, inPlace: true }), reuseResources: true },
    (p) => {
      const multicast = p.switchChannel(p.ranks, "scratch");
      const scratch = p.ranks.map((rank) => rank.scratch(n));
      for (const rank of p.ranks) {
        const peer = p.rank((rank.id + 1) % n);
        const [ready, done] = [p.memoryChannel(rank, peer), p.memoryChannel(rank, peer)];
        const [filled, reduced] = [rank.semaphore(), rank.semaphore()];
        const own = scratch[rank.id]!;
        p.loop({ unitBytes: 2 ** 20, numChunks: 1 }, () => {
          for (let i = 0; i < n; i++) rank.copy(own.at(i), rank.input.at(i), 0);
          ready.signal({ strand: 0, sync: "before" });
          ready.wait({ strand: 0, sync: "after" });
          filled.release(0);

          filled.acquire({ strand: 1, sync: "after" });
          multicast.at(rank).reduce(own.at(rank.id), rank.id, 1);
          multicast.at(rank).broadcast(own.at(rank.id), rank.id, 1);
          done.signal({ strand: 1, sync: "before" });
          reduced.release(1);

          reduced.acquire(2);
          done.wait({ strand: 2, sync: "after" });
          for (let i = 0; i < n; i++) rank.copy(rank.output.at(i), own.at(i), 2);
        });
      }
    },
  );
}

/** `single_node/allgather_pkt.py`: packets to each peer's scratch, unpacked by strands of their own. */
export function mscclppAllGatherPackets({ name = "allgather_pkt", numRanks: n, ...sizes }: MscclppArgs): Program {
  return program(
    { ...sizes, name, collective: allGather(n, { inPlace: true }), protocol: "LL", useDoubleScratchBuffer: true },
    (p) => {
      const scratch = p.ranks.map((rank) => rank.scratch(n));
      for (const rank of p.ranks) {
        following(p, rank).forEach((peer, i) => {
          p.memoryChannel(rank, peer).putPackets(scratch[peer.id]!.at(rank.id), rank.output.at(rank.id), i);
        });
      }
      for (const rank of p.ranks) {
        following(p, rank).forEach((peer, i) => {
          rank.unpackPackets(rank.output.at(peer.id), scratch[rank.id]!.at(peer.id), n - 1 + i);
        });
      }
    },
  );
}

/** `single_node/allgather_pkt_rppkt.py`: pack once, forward the packets to all. */
export function mscclppAllGatherForward({ name = "allgather_pkt_rppkt", numRanks: n, ...sizes }: MscclppArgs): Program {
  return program(
    { ...sizes, name, collective: allGather(n, { inPlace: true }), protocol: "LL", useDoubleScratchBuffer: true },
    (p) => {
      const scratch = p.ranks.map((rank) => rank.scratch(2 * n));
      const packed = (rank: RankHandle<string>) => scratch[rank.id]!.at(n + rank.id);
      for (const rank of p.ranks) rank.copyPackets(packed(rank), rank.input.at(0));
      for (const rank of p.ranks) {
        for (const peer of following(p, rank))
          p.memoryChannel(rank, peer).readPutPackets(scratch[peer.id]!.at(rank.id), packed(rank));
      }
      for (const rank of p.ranks) {
        for (const peer of following(p, rank))
          rank.unpackPackets(rank.output.at(peer.id), scratch[rank.id]!.at(peer.id));
      }
    },
  );
}

/** `single_node/alltoall/alltoall_ring_oop.py`: one strand sends round the ring, another receives. */
export function mscclppAllToAllRing({ name = "alltoall_ring_oop", numRanks: n, ...sizes }: MscclppArgs): Program {
  return program({ ...sizes, name, collective: allToAll(n), instances: 16 }, (p) => {
    const place = (peer: RankHandle<string>, rank: RankHandle<string>) => (peer.id < rank.id ? peer.id : peer.id - 1);
    const scratch = p.ranks.map((rank) => rank.scratch(n - 1));
    const pairs = p.ranks.map((rank) =>
      p.ranks.map((peer) =>
        peer === rank ? undefined : ([p.memoryChannel(rank, peer), p.memoryChannel(rank, peer)] as const),
      ),
    );
    const data = (rank: RankHandle<string>, peer: RankHandle<string>) => pairs[rank.id]![peer.id]![0];
    const ready = (rank: RankHandle<string>, peer: RankHandle<string>) => pairs[rank.id]![peer.id]![1];
    for (const rank of p.ranks) {
      for (const peer of othersOf(p, rank)) ready(rank, peer).signal({ relaxed: true });
      for (const peer of othersOf(p, rank)) ready(rank, peer).wait({ relaxed: true, sync: "after" });
    }
    for (const rank of p.ranks) {
      for (const peer of following(p, rank)) {
        data(rank, peer).put(scratch[peer.id]!.at(place(rank, peer)), rank.input.at(peer.id));
        data(rank, peer).signal({ sync: "before" });
      }
    }
    for (const rank of p.ranks) {
      rank.copy(rank.output.at(rank.id), rank.input.at(rank.id));
      for (const peer of following(p, rank).reverse()) {
        data(rank, peer).wait({ strand: 1, sync: "after" });
        rank.copy(rank.output.at(peer.id), scratch[rank.id]!.at(place(peer, rank)), 1);
      }
    }
  });
}

export interface MscclppSendRecvArgs {
  readonly name?: string;
  readonly numRanks: number;
  /** Ranks of one group; each rank sends to its counterpart in the next group. */
  readonly groupSize: number;
  readonly instances?: number;
}

/** `multi_node/send_recv.py`: every rank to its counterpart in the next group, through port channels. */
export function mscclppSendRecv({
  name = "send_recv",
  numRanks: n,
  groupSize: g,
  instances = 1,
}: MscclppSendRecvArgs): Program {
  const counterpart = (id: number, groups: number) => (id + groups * g + n) % n;
  const sendTo = Array.from({ length: n }, (_, id) => counterpart(id, 1));
  return program({ name, collective: sendRecv(sendTo), instances }, (p) => {
    const channels = p.ranks.map((rank) => {
      const [next, previous] = [p.rank(counterpart(rank.id, 1)), p.rank(counterpart(rank.id, -1))];
      // Of two groups both neighbours are one rank: the k-th channel there must meet the k-th back.
      if (next === previous && rank.id > previous.id) {
        const back = p.portChannel(rank, previous);
        return { back, ahead: p.portChannel(rank, next), next };
      }
      const ahead = p.portChannel(rank, next);
      return { back: p.portChannel(rank, previous), ahead, next };
    });
    p.ranks.forEach((rank, id) => {
      const { back, ahead, next } = channels[id]!;
      back.signal({ sync: "none" });
      ahead.wait({ sync: "after" });
      ahead.putWithSignal(next.output.all, rank.input.all);
      back.wait({ sync: "none" });
    });
  });
}

/** `single_node/allreduce_pkt.py`: two-shot all-reduce in packets, in place on the input. */
export function mscclppAllReducePackets({ name = "allreduce_pkt", numRanks: n, ...sizes }: MscclppArgs): Program {
  return program(
    {
      ...sizes,
      name,
      collective: allReduce(n, { chunks: n * n, inPlace: true }),
      protocol: "LL",
      autoSync: "none",
      useDoubleScratchBuffer: true,
    },
    (p) => {
      const scratch = p.ranks.map((rank) => rank.scratch(2 * (n - 1) * n));
      const to = p.ranks.map((rank) =>
        p.ranks.map((peer) => (peer === rank ? undefined : p.memoryChannel(rank, peer))),
      );
      /** Place of `peer` among the peers of `rank`. */
      const place = (peer: number, rank: number) => (peer < rank ? peer : peer - 1);
      for (const rank of p.ranks) {
        for (const peer of p.ranks) {
          if (peer === rank) continue;
          const slot = place(rank.id, peer.id) * n;
          const dst = scratch[peer.id]!.slice(slot, slot + n);
          to[rank.id]![peer.id]!.putPackets(
            dst,
            rank.input.slice(peer.id * n, peer.id * n + n),
            place(peer.id, rank.id),
          );
        }
      }
      for (const rank of p.ranks) {
        for (let i = 0; i < n; i++) {
          const chunk = rank.input.at(rank.id * n + i);
          const partials = p.ranks.flatMap((peer) =>
            peer === rank ? [] : [scratch[rank.id]!.at(place(peer.id, rank.id) * n + i)],
          );
          rank.reducePackets(chunk, partials, i);
          for (const peer of p.ranks) {
            if (peer === rank) continue;
            to[rank.id]![peer.id]!.putPackets(
              scratch[peer.id]!.at((n - 1 + place(rank.id, peer.id)) * n + i),
              chunk,
              i,
            );
          }
        }
      }
      for (const rank of p.ranks) {
        for (const peer of p.ranks) {
          if (peer === rank) continue;
          const slot = (n - 1 + place(peer.id, rank.id)) * n;
          rank.unpackPackets(
            rank.input.slice(peer.id * n, peer.id * n + n),
            scratch[rank.id]!.slice(slot, slot + n),
            peer.id,
          );
        }
      }
    },
  );
}
