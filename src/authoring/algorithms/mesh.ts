/**
 * Algorithms for devices with a link to every other: every strand visits the peers in an order of its own, so that all
 * links carry data at once, where the plain direct algorithms have all strands at one peer at a time. A Latin square of
 * (strand, step) -> peer, as in round-robin all-to-all (Bruck et al., 1997); rings of coprime strides share no link, of
 * which there are as many as numbers below n that have no divisor in common with it. Eight devices have seven rings that
 * use every link (Tillson: a Hamiltonian decomposition of K*_2m, 2m >= 8, J. Comb. Theory B 29, 1980).
 */
import { allReduce, type Program, program, reduceScatter } from "../language/index.ts";
import { type AlgorithmArgs, modulo, settings } from "./algorithm-args.ts";

/** Peer that a strand of a rank visits at a step: each step all strands are at different ones. */
function peerAt(rank: number, strand: number, step: number, n: number): number {
  return modulo(rank + 1 + ((strand + step) % (n - 1)), n);
}
const strandsOf = (n: number) => Array.from({ length: n - 1 }, (_, strand) => strand);

/** Two-shot all-reduce, a strand for each peer: strand s takes share s of every rank's part. */
export function meshAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  const shares = n - 1;
  return program(
    { ...settings("mesh-all-reduce", args), collective: allReduce(n, { ...args, chunks: n * shares }) },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n * shares));
      for (const s of strandsOf(n)) {
        for (const step of strandsOf(n))
          for (const rank of p.ranks) {
            const owner = peerAt(rank.id, s, step, n);
            p.copy(inbox[owner]!.at(rank.id * shares + s), rank.input.at(owner * shares + s), s);
          }
        for (const owner of p.ranks) {
          const c = owner.id * shares + s;
          const others = p.ranks
            .filter((rank) => rank !== owner)
            .map((rank) => inbox[owner.id]!.at(rank.id * shares + s));
          p.reduce(owner.output.at(c), owner.input.at(c), others, s);
        }
        for (const step of strandsOf(n))
          for (const owner of p.ranks) {
            const c = owner.id * shares + s;
            p.copy(p.rank(peerAt(owner.id, s, step, n)).output.at(c), owner.output.at(c), s);
          }
      }
    },
  );
}

/** Direct reduce-scatter, a strand for each peer; the owner adds up in one. */
export function meshReduceScatter(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("mesh-reduce-scatter", args), collective: reduceScatter(n, args) }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(n));
    for (const rank of p.ranks)
      for (const s of strandsOf(n)) {
        const owner = peerAt(rank.id, s, 0, n);
        p.copy(inbox[owner]!.at(rank.id), rank.input.at(owner), s);
      }
    for (const owner of p.ranks) {
      const others = p.ranks.filter((rank) => rank !== owner).map((rank) => inbox[owner.id]!.at(rank.id));
      p.reduce(owner.output.at(0), owner.input.at(owner.id), others);
    }
  });
}

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** Strides whose rings pass every rank, and share no directed link with one another. */
export function ringStrides(n: number): readonly number[] {
  return strandsOf(n)
    .map((s) => s + 1)
    .filter((stride) => gcd(stride, n) === 1);
}

/** All 56 directed links of eight devices in seven rings; found by search, held by a test. */
const RINGS_OF_EIGHT: readonly (readonly number[])[] = [
  [0, 1, 5, 4, 2, 7, 3, 6],
  [0, 2, 3, 5, 6, 7, 1, 4],
  [0, 3, 1, 6, 4, 7, 2, 5],
  [0, 4, 3, 2, 6, 5, 1, 7],
  [0, 5, 7, 6, 2, 4, 1, 3],
  [0, 6, 3, 7, 4, 5, 2, 1],
  [0, 7, 5, 3, 4, 6, 1, 2],
];

/** Rings of all ranks, no two of which share a directed link: those of the strides, or more where they are known. */
export function disjointRings(n: number): readonly (readonly number[])[] {
  if (n === 8) return RINGS_OF_EIGHT;
  return ringStrides(n).map((stride) => Array.from({ length: n }, (_, place) => modulo(place * stride, n)));
}

/** Ring all-reduce on several rings at once, one a strand, no two of which share a link. */
export function multiRingAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  const rings = disjointRings(n);
  return program(
    {
      ...settings("multi-ring-all-reduce", args),
      collective: allReduce(n, { ...args, chunks: n * rings.length }),
    },
    (p) => {
      for (const [strand, ring] of rings.entries()) {
        const inbox = p.ranks.map((rank) => rank.scratch(n - 1));
        const rankAt = (place: number) => p.rank(ring[modulo(place, n)]!);
        const chunk = (part: number) => modulo(part, n) * rings.length + strand;
        const places = p.ranks.map((_, place) => place);
        for (let step = 0; step < n - 1; step++) {
          for (const place of places) {
            const c = chunk(place - step);
            const rank = rankAt(place);
            p.copy(inbox[rankAt(place + 1).id]!.at(step), step === 0 ? rank.input.at(c) : rank.output.at(c), strand);
          }
          for (const place of places) {
            const c = chunk(place - 1 - step);
            const rank = rankAt(place);
            p.reduce(rank.output.at(c), rank.input.at(c), [inbox[rank.id]!.at(step)], strand);
          }
        }
        for (let step = 0; step < n - 1; step++)
          for (const place of places) {
            const c = chunk(place + 1 - step);
            p.copy(rankAt(place + 1).output.at(c), rankAt(place).output.at(c), strand);
          }
      }
    },
  );
}
