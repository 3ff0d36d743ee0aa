/**
 * Two-level algorithms for nodes of several ranks: fast links within, slow ones between. Every local rank drives its own
 * share across nodes, so that all network cards work. Within a node ranks use memory channels, between nodes `channel`
 * (port for a network). The scheme of MSCCL++'s multi-node defaults and of Jia et al. (2018).
 */
import { InvalidArgumentError } from "../../core/index.ts";
import {
  allGather,
  allReduce,
  allToAll,
  type Program,
  type ProgramOptions,
  program,
  reduceScatter,
} from "../language/index.ts";
import { type HierarchicalArgs, modulo, others, settings } from "./algorithm-args.ts";

export interface PipelinedHierarchicalArgs extends HierarchicalArgs {
  /** Pieces that go through the levels one after the other: 1 is best for small messages, 4 to 16 for large ones. */
  readonly chunks?: number;
}

function shape(
  name: string,
  args: HierarchicalArgs,
): { readonly g: number; readonly m: number; readonly options: Omit<ProgramOptions, "collective"> } {
  const { numRanks: n, ranksPerNode: g, channel = "memory" } = args;
  if (!Number.isInteger(g) || g < 1 || n % g !== 0)
    throw new InvalidArgumentError("ranksPerNode", g, `a divisor of ${n}, the number of ranks`);
  const sameNode = (a: number, b: number) => Math.floor(a / g) === Math.floor(b / g);
  return {
    g,
    m: n / g,
    options: { ...settings(name, args), ranksPerNode: g, links: (a, b) => (sameNode(a, b) ? "memory" : channel) },
  };
}

/** The level of a piece's way through a plan. With several pieces every level has a strand of its own, so that all are busy at once. */
const strandsOf = (pieces: number) => (level: number) => (pieces > 1 ? level : 0);

/** 0 to `count` - 1. */
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i);

/**
 * All-reduce: reduce-scatter within nodes, ring all-reduce between ranks of the same local number, all-gather within. With
 * `chunks` every share goes this way in so many pieces, each level at work on another one.
 */
export function hierarchicalAllReduce(args: PipelinedHierarchicalArgs): Program {
  const { numRanks: n, chunks: pieces = 1 } = args;
  const { g, m, options } = shape("hierarchical-all-reduce", args);
  return program({ ...options, collective: allReduce(n, { ...args, chunks: g * m * pieces }) }, (p) => {
    const rankAt = (node: number, local: number) => p.rank(modulo(node, m) * g + local);
    const nodeOf = (id: number) => Math.floor(id / g);
    const inbox = p.ranks.map((rank) => rank.scratch((g - 1) * m * pieces));
    const across = p.ranks.map((rank) => rank.scratch(Math.max(0, m - 1) * pieces));
    const [scatter, sum, ring, gather] = [0, 1, 2, 3].map(strandsOf(pieces));
    const slot = (from: number, to: number) => (from > to ? from - 1 : from);
    for (const piece of upTo(pieces)) {
      // A piece of a share has a part for each node, one after the other.
      const first = (local: number) => (local * pieces + piece) * m;
      const share = (local: number): [number, number] => [first(local), first(local) + m];
      for (const rank of p.ranks) {
        const [node, local] = [nodeOf(rank.id), rank.id % g];
        for (const to of others(local, g)) {
          const at = first(slot(local, to));
          p.copy(inbox[rankAt(node, to).id]!.slice(at, at + m), rank.input.slice(...share(to)), scatter);
        }
      }
      for (const rank of p.ranks) {
        const mine = share(rank.id % g);
        const parts = upTo(g - 1).map((i) => inbox[rank.id]!.slice(...share(i)));
        if (parts.length > 0) p.reduce(rank.output.slice(...mine), rank.input.slice(...mine), parts, sum);
        else if (!args.inPlace) rank.copy(rank.output.slice(...mine), rank.input.slice(...mine), sum);
      }
      const partOf = (rank: { id: number }, step: number) => first(rank.id % g) + modulo(nodeOf(rank.id) - step, m);
      for (let step = 0; step < m - 1; step++) {
        const arrived = piece * (m - 1) + step;
        for (const rank of p.ranks) {
          const next = rankAt(nodeOf(rank.id) + 1, rank.id % g);
          p.copy(across[next.id]!.at(arrived), rank.output.at(partOf(rank, step)), ring);
        }
        for (const rank of p.ranks) {
          const c = partOf(rank, step + 1);
          p.reduce(rank.output.at(c), rank.output.at(c), [across[rank.id]!.at(arrived)], ring);
        }
      }
      for (let step = 0; step < m - 1; step++) {
        for (const rank of p.ranks) {
          const c = partOf(rank, step - 1);
          p.copy(rankAt(nodeOf(rank.id) + 1, rank.id % g).output.at(c), rank.output.at(c), ring);
        }
      }
      for (const rank of p.ranks) {
        const mine = share(rank.id % g);
        for (const to of others(rank.id % g, g))
          p.copy(rankAt(nodeOf(rank.id), to).output.slice(...mine), rank.output.slice(...mine), gather);
      }
    }
  });
}

/**
 * All-gather: between nodes first, each local rank its own part, then everything within the node. With `chunks` a part
 * crosses in so many pieces, which are passed on as they come, while the ranks of a node exchange their own.
 */
export function hierarchicalAllGather(args: PipelinedHierarchicalArgs): Program {
  const { numRanks: n, inPlace, chunks: pieces = 1 } = args;
  const { g, m, options } = shape("hierarchical-all-gather", args);
  return program({ ...options, collective: allGather(n, args) }, (p) => {
    const nodeOf = (id: number) => Math.floor(id / g);
    const [cross, own, pass, keep] = [0, 1, 2, 3].map(strandsOf(pieces));
    const nodesFrom = (first: number) => upTo(m).map((i) => modulo(first + i, m));
    for (const rank of p.ranks) {
      const home = rank.output.slice(rank.id * pieces, (rank.id + 1) * pieces);
      if (!inPlace) rank.copy(home, rank.input.all, keep);
      for (const piece of upTo(pieces))
        for (const node of pieces > 1 ? nodesFrom(nodeOf(rank.id)) : upTo(m)) {
          const to = p.rank(node * g + (rank.id % g));
          if (to !== rank) p.copy(to.output.at(rank.id * pieces + piece), rank.input.at(piece), cross);
        }
    }
    for (const rank of p.ranks) {
      const peers = others(rank.id % g, g).map((local) => p.rank(nodeOf(rank.id) * g + local));
      const sendOwn = (peer: (typeof peers)[number], strand: number | undefined) =>
        p.copy(peer.output.slice(rank.id * pieces, (rank.id + 1) * pieces), rank.input.all, strand);
      if (pieces > 1) for (const peer of peers) sendOwn(peer, own);
      for (const piece of upTo(pieces))
        for (const peer of peers)
          for (let node = 0; node < m; node++) {
            const c = (node * g + (rank.id % g)) * pieces + piece;
            if (node !== nodeOf(rank.id)) p.copy(peer.output.at(c), rank.output.at(c), pass);
            else if (pieces === 1) sendOwn(peer, pass);
          }
    }
  });
}

/**
 * Reduce-scatter: within nodes first, then between ranks of the same local number. With `chunks` a part goes this way in so
 * many pieces, what other nodes wait for first.
 */
export function hierarchicalReduceScatter(args: PipelinedHierarchicalArgs): Program {
  const { numRanks: n, chunks: pieces = 1 } = args;
  const { g, m, options } = shape("hierarchical-reduce-scatter", args);
  return program({ ...options, collective: reduceScatter(n, args) }, (p) => {
    const nodeOf = (id: number) => Math.floor(id / g);
    const inbox = p.ranks.map((rank) => rank.scratch((g - 1) * m * pieces));
    const sums = p.ranks.map((rank) => rank.scratch(m * pieces));
    const across = p.ranks.map((rank) => rank.scratch(m * pieces));
    const [scatter, sum, cross, end] = [0, 1, 2, 3].map(strandsOf(pieces));
    const nodesFor = (rank: { id: number }) =>
      pieces > 1 ? upTo(m).map((i) => modulo(nodeOf(rank.id) + 1 + i, m)) : upTo(m);
    for (const piece of upTo(pieces)) {
      const place = (part: number) => part * pieces + piece;
      for (const rank of p.ranks) {
        for (const to of others(rank.id % g, g)) {
          const peer = nodeOf(rank.id) * g + to;
          const slot = rank.id % g > to ? (rank.id % g) - 1 : rank.id % g;
          for (const node of nodesFor(rank))
            p.copy(inbox[peer]!.at(place(slot * m + node)), rank.input.at(place(node * g + to)), scatter);
        }
      }
      for (const rank of p.ranks) {
        for (const node of nodesFor(rank)) {
          const parts = upTo(g - 1).map((i) => inbox[rank.id]!.at(place(i * m + node)));
          const own = rank.input.at(place(node * g + (rank.id % g)));
          if (parts.length > 0) p.reduce(sums[rank.id]!.at(place(node)), own, parts, sum);
          else rank.copy(sums[rank.id]!.at(place(node)), own, sum);
        }
      }
      for (const rank of p.ranks) {
        for (const node of nodesFor(rank)) {
          if (node === nodeOf(rank.id)) continue;
          const to = across[node * g + (rank.id % g)]!.at(place(nodeOf(rank.id)));
          p.copy(to, sums[rank.id]!.at(place(node)), cross);
        }
      }
      for (const rank of p.ranks) {
        const own = sums[rank.id]!.at(place(nodeOf(rank.id)));
        const parts = upTo(m)
          .filter((node) => node !== nodeOf(rank.id))
          .map((node) => across[rank.id]!.at(place(node)));
        if (parts.length > 0) p.reduce(rank.output.at(piece), own, parts, end);
        else rank.copy(rank.output.at(piece), own, end);
      }
    }
  });
}

/** All-to-all: within the node, collect what goes to each local number; then one message to each node. */
export function hierarchicalAllToAll(args: HierarchicalArgs): Program {
  const { numRanks: n } = args;
  const { g, m, options } = shape("hierarchical-all-to-all", args);
  return program({ ...options, collective: allToAll(n, { ...args, inPlace: false }) }, (p) => {
    const nodeOf = (id: number) => Math.floor(id / g);
    /** outbox[node * g + local]: from the local rank `local`, for the rank of this local number on `node`. */
    const outbox = p.ranks.map((rank) => rank.scratch(n));
    for (const rank of p.ranks) {
      for (const to of [...others(rank.id, n), rank.id]) {
        const carrier = p.rank(nodeOf(rank.id) * g + (to % g));
        const direct = nodeOf(to) === nodeOf(rank.id);
        p.copy(
          direct ? carrier.output.at(rank.id) : outbox[carrier.id]!.at(nodeOf(to) * g + (rank.id % g)),
          rank.input.at(to),
        );
      }
    }
    for (const rank of p.ranks) {
      for (let node = 0; node < m; node++) {
        if (node === nodeOf(rank.id)) continue;
        const to = p.rank(node * g + (rank.id % g));
        const start = nodeOf(rank.id) * g;
        p.copy(to.output.slice(start, start + g), outbox[rank.id]!.slice(node * g, node * g + g));
      }
    }
  });
}
