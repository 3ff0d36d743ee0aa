/**
 * Bruck's algorithms: log2(n) steps for any number of ranks. Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient algorithms
 * for all-to-all communications in multiport message-passing systems", IEEE TPDS 8 (1997). Chunks are addressed where
 * they belong, so that the first and last rotation of the paper fall away.
 */
import { allGather, allToAll, type Builder, type Chunk, type Program, program } from "../language/index.ts";
import { type AlgorithmArgs, modulo, settings } from "./algorithm-args.ts";

/** All-gather: step k sends the 2^k parts that a rank has to the rank 2^k before it. */
export function bruckAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("bruck-all-gather", args), collective: allGather(n, args) }, (p) => {
    if (!args.inPlace) for (const rank of p.ranks) rank.copy(rank.output.at(rank.id), rank.input.at(0));
    for (let have = 1; have < n; have *= 2) {
      for (const rank of p.ranks) {
        const to = p.rank(modulo(rank.id - have, n));
        const count = Math.min(have, n - have);
        const first = Math.min(count, n - rank.id);
        p.copy(to.output.slice(rank.id, rank.id + first), rank.output.slice(rank.id, rank.id + first));
        if (count > first) p.copy(to.output.slice(0, count - first), rank.output.slice(0, count - first));
      }
    }
  });
}

/** All-to-all: block i travels by the bits of i; every step moves half of the blocks. Latency-optimal for small ones. */
export function bruckAllToAll(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("bruck-all-to-all", args), collective: allToAll(n, { ...args, inPlace: false }) },
    exchange,
  );
}

function exchange<P>(p: Builder<P>): void {
  const n = p.numRanks;
  const blocks = Array.from({ length: n }, (_, i) => i);
  /** Where the block now at a rank that is for the rank i further on lies. */
  let where: Chunk<P>[][] = p.ranks.map((rank) => blocks.map((i) => rank.input.at((rank.id + i) % n)));
  for (const rank of p.ranks) p.copy(rank.output.at(rank.id), where[rank.id]![0]!, 1);
  for (let bit = 1; bit < n; bit *= 2) {
    const moving = blocks.filter((i) => (i & bit) !== 0);
    const arrives = (i: number) => i < 2 * bit;
    const inbox = p.ranks.map((rank) => rank.scratch(moving.filter((i) => !arrives(i)).length));
    const next = where.map((list) => [...list]);
    for (const rank of p.ranks) {
      const to = p.rank((rank.id + bit) % n);
      let slot = 0;
      for (const i of moving) {
        const dst: Chunk<P> = arrives(i) ? to.output.at(modulo(to.id - i, n)) : inbox[to.id]!.at(slot++);
        p.copy(dst, where[rank.id]![i]!);
        next[to.id]![i] = dst;
      }
    }
    where = next;
  }
}
