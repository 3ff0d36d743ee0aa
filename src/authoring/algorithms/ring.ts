/**
 * Ring algorithms: each rank talks to its neighbours only; bandwidth-optimal, latency linear in the ranks.
 * Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009).
 */
import {
  allGather,
  allReduce,
  type Builder,
  type Chunk,
  type Program,
  program,
  reduceScatter,
} from "../language/index.ts";
import { type AlgorithmArgs, modulo, settings } from "./algorithm-args.ts";

/** Ring all-reduce: n - 1 steps of reduce-scatter, n - 1 steps of all-gather, on chunks of 1/n. */
export function ringAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("ring-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(n - 1));
    const right = (rank: { id: number }) => p.rank((rank.id + 1) % n);
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const c = modulo(rank.id - step, n);
        const partial = step === 0 ? rank.input.at(c) : rank.output.at(c);
        p.copy(inbox[right(rank).id]!.at(step), partial);
      }
      for (const rank of p.ranks) {
        const c = modulo(rank.id - 1 - step, n);
        p.reduce(rank.output.at(c), rank.input.at(c), [inbox[rank.id]!.at(step)]);
      }
    }
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const c = modulo(rank.id + 1 - step, n);
        p.copy(right(rank).output.at(c), rank.output.at(c));
      }
    }
  });
}

/** What one direction of a ring does with its share of the chunks. */
interface Way<P> {
  readonly step: 1 | -1;
  readonly strand: number;
  /** The chunk of part `i` that goes this way. */
  readonly chunk: (i: number) => number;
  readonly inbox: readonly { at(index: number): Chunk<P, "scratch"> }[];
}

function ringBothPhases<P>(p: Builder<P>, n: number, { step: way, strand, chunk, inbox }: Way<P>): void {
  const next = (id: number) => p.rank(modulo(id + way, n));
  for (let step = 0; step < n - 1; step++) {
    for (const rank of p.ranks) {
      const c = chunk(modulo(rank.id - way * step, n));
      p.copy(inbox[next(rank.id).id]!.at(step), step === 0 ? rank.input.at(c) : rank.output.at(c), strand);
    }
    for (const rank of p.ranks) {
      const c = chunk(modulo(rank.id - way * (1 + step), n));
      p.reduce(rank.output.at(c), rank.input.at(c), [inbox[rank.id]!.at(step)], strand);
    }
  }
  for (let step = 0; step < n - 1; step++) {
    for (const rank of p.ranks) {
      const c = chunk(modulo(rank.id + way * (1 - step), n));
      p.copy(next(rank.id).output.at(c), rank.output.at(c), strand);
    }
  }
}

/** Two rings, one each way round, each with half of every part: both directions of every link carry data. */
export function bidirectionalRingAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("bidirectional-ring-all-reduce", args), collective: allReduce(n, { ...args, chunks: 2 * n }) },
    (p) => {
      for (const [strand, way] of [1, -1].entries()) {
        const inbox = p.ranks.map((rank) => rank.scratch(n - 1));
        ringBothPhases(p, n, { step: way as 1 | -1, strand, chunk: (i) => 2 * i + strand, inbox });
      }
    },
  );
}

/** Ring all-gather: every rank hands on what it got last. */
export function ringAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n, inPlace } = args;
  return program({ ...settings("ring-all-gather", args), collective: allGather(n, args) }, (p) => {
    if (!inPlace) for (const rank of p.ranks) rank.copy(rank.output.at(rank.id), rank.input.at(0), 1);
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const c = modulo(rank.id - step, n);
        p.copy(p.rank((rank.id + 1) % n).output.at(c), step === 0 ? rank.input.at(0) : rank.output.at(c));
      }
    }
  });
}

/** Ring reduce-scatter: partial sums travel once round and end at their owner. */
export function ringReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("ring-reduce-scatter", args), collective: reduceScatter(n, args) }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(n - 1));
    const partial = p.ranks.map((rank) => rank.scratch(n - 1));
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const next = (rank.id + 1) % n;
        p.copy(
          inbox[next]!.at(step),
          step === 0 ? rank.input.at(modulo(rank.id - 1, n)) : partial[rank.id]!.at(step - 1),
        );
      }
      for (const rank of p.ranks) {
        const c = modulo(rank.id - 2 - step, n);
        const to = step === n - 2 ? rank.output.at(0) : partial[rank.id]!.at(step);
        p.reduce(to, rank.input.at(c), [inbox[rank.id]!.at(step)]);
      }
    }
  });
}
