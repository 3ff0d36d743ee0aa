/**
 * MSCCL++'s own example programs in chorale's language, call for call, with their manual synchronisation: compiled with
 * `compat: "mscclpp"` they give the plans that MSCCL++ ships. Compare with `all-pairs.ts`, where the compiler
 * synchronises. Source: microsoft/mscclpp, `python/mscclpp/language/tests` and `default_algos`, version 0.9.
 */
import { allReduce, type Program, program } from "../language/index.ts";

export interface MscclppArgs {
  readonly name?: string;
  readonly numRanks: number;
  readonly numThreadsPerBlock?: number;
  readonly minMessageSizeBytes?: number | bigint;
  readonly maxMessageSizeBytes?: number | bigint;
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
