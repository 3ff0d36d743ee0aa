/**
 * Logarithmic algorithms over hypercube partners. Recursive doubling and halving/doubling after Thakur, Rabenseifner,
 * Gropp: "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005); counts that are no power of
 * two are folded first (each surplus rank joins a partner, and gets the result from it).
 */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  allGather,
  allReduce,
  type Builder,
  type Chunk,
  type Program,
  program,
  type RankHandle,
  reduceScatter,
} from "../language/index.ts";
import { type AlgorithmArgs, settings } from "./algorithm-args.ts";

/** The largest power of two that is at most n. */
function powerBelow(n: number): number {
  return 2 ** Math.floor(Math.log2(n));
}
function powerOfTwo(n: number, what: string): number {
  if (powerBelow(n) !== n) throw new InvalidArgumentError("numRanks", n, `a power of two: ${what} pairs ranks by bits`);
  return n;
}

/** Surplus ranks give their input to a partner. @returns the ranks that go on, and what they have reached */
function fold<P>(p: Builder<P>, core: number, chunks: number) {
  const surplus = p.ranks.slice(core);
  const inbox = surplus.map((rank) => p.rank(rank.id - core).scratch(chunks));
  surplus.forEach((rank, i) => {
    p.copy(inbox[i]!.all, rank.input.all);
  });
  surplus.forEach((rank, i) => {
    const partner = p.rank(rank.id - core);
    p.reduce(partner.output.all, partner.input.all, [inbox[i]!.all]);
  });
  /** Where a rank's partial result stands before the first exchange. */
  const reached = (rank: RankHandle<P>) => (rank.id < surplus.length ? rank.output : rank.input);
  const unfold = () => {
    for (const rank of surplus) p.copy(rank.output.all, p.rank(rank.id - core).output.all);
  };
  return { reached, unfold };
}

/** log2(n) exchanges of everything with partners at distance 1, 2, 4, …: short latency, small messages. */
export function recursiveDoublingAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  const core = powerBelow(n);
  return program(
    { ...settings("recursive-doubling-all-reduce", args), collective: allReduce(n, { ...args, chunks: 1 }) },
    (p) => {
      const { reached, unfold } = fold(p, core, 1);
      const ranks = p.ranks.slice(0, core);
      for (let distance = 1; distance < core; distance *= 2) {
        const inbox = ranks.map((rank) => rank.scratch(1));
        const partial = (rank: (typeof ranks)[number]) => (distance === 1 ? reached(rank) : rank.output).all;
        for (const rank of ranks) p.copy(inbox[rank.id ^ distance]!.all, partial(rank));
        for (const rank of ranks) p.reduce(rank.output.all, partial(rank), [inbox[rank.id]!.all]);
      }
      unfold();
    },
  );
}

/** Rabenseifner's all-reduce: reduce-scatter by halving, all-gather by doubling. Any number of ranks. */
export function halvingDoublingAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  const core = powerBelow(n);
  return program(
    { ...settings("halving-doubling-all-reduce", args), collective: allReduce(n, { ...args, chunks: core }) },
    (p) => {
      const { reached, unfold } = fold(p, core, core);
      const ranks = p.ranks.slice(0, core);
      /** The chunks that a rank and its partners at shorter distances share. */
      const block = (id: number, size: number) => Math.floor(id / size) * size;
      for (let distance = core / 2; distance >= 1; distance /= 2) {
        const inbox = ranks.map((rank) => rank.scratch(distance));
        const partial = (rank: (typeof ranks)[number]) => (distance === core / 2 ? reached(rank) : rank.output);
        for (const rank of ranks) {
          const start = block(rank.id ^ distance, distance);
          p.copy(inbox[rank.id ^ distance]!.all, partial(rank).slice(start, start + distance));
        }
        for (const rank of ranks) {
          const start = block(rank.id, distance);
          p.reduce(rank.output.slice(start, start + distance), partial(rank).slice(start, start + distance), [
            inbox[rank.id]!.all,
          ]);
        }
      }
      for (let distance = 1; distance < core; distance *= 2) {
        for (const rank of ranks) {
          const start = block(rank.id, distance);
          p.copy(
            p.rank(rank.id ^ distance).output.slice(start, start + distance),
            rank.output.slice(start, start + distance),
          );
        }
      }
      unfold();
    },
  );
}

/** All-gather by recursive doubling: each step doubles what a rank has. Powers of two. */
export function recursiveDoublingAllGather(args: AlgorithmArgs): Program {
  const n = powerOfTwo(args.numRanks, "recursive doubling");
  return program({ ...settings("recursive-doubling-all-gather", args), collective: allGather(n, args) }, (p) => {
    if (!args.inPlace) for (const rank of p.ranks) rank.copy(rank.output.at(rank.id), rank.input.at(0));
    for (let distance = 1; distance < n; distance *= 2) {
      for (const rank of p.ranks) {
        const start = Math.floor(rank.id / distance) * distance;
        p.copy(
          p.rank(rank.id ^ distance).output.slice(start, start + distance),
          rank.output.slice(start, start + distance),
        );
      }
    }
  });
}

/** Reduce-scatter by recursive halving: each step halves what a rank still reduces. Powers of two. */
export function halvingReduceScatter(args: AlgorithmArgs): Program {
  const n = powerOfTwo(args.numRanks, "recursive halving");
  return program({ ...settings("halving-reduce-scatter", args), collective: reduceScatter(n, args) }, halve);
}

function halve<P>(p: Builder<P>): void {
  const n = p.numRanks;
  let partial = (rank: RankHandle<P>, start: number, size: number): Chunk<P> => rank.input.slice(start, start + size);
  for (let distance = n / 2; distance >= 1; distance /= 2) {
    const inbox = p.ranks.map((rank) => rank.scratch(distance));
    const sums = p.ranks.map((rank) => rank.scratch(distance));
    const block = (id: number) => Math.floor(id / distance) * distance;
    for (const rank of p.ranks)
      p.copy(inbox[rank.id ^ distance]!.all, partial(rank, block(rank.id ^ distance), distance));
    for (const rank of p.ranks) {
      const to = distance === 1 ? rank.output.at(0) : sums[rank.id]!.all;
      p.reduce(to, partial(rank, block(rank.id), distance), [inbox[rank.id]!.all]);
    }
    partial = (rank, start, size) => sums[rank.id]!.slice(start - block(rank.id), start - block(rank.id) + size);
  }
}
