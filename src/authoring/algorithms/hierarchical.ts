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

/** All-reduce: reduce-scatter within nodes, ring all-reduce between ranks of the same local number, all-gather within. */
export function hierarchicalAllReduce(args: HierarchicalArgs): Program {
  const { numRanks: n } = args;
  const { g, m, options } = shape("hierarchical-all-reduce", args);
  return program({ ...options, collective: allReduce(n, { ...args, chunks: g * m }) }, (p) => {
    const rankAt = (node: number, local: number) => p.rank(modulo(node, m) * g + local);
    const nodeOf = (id: number) => Math.floor(id / g);
    const inbox = p.ranks.map((rank) => rank.scratch((g - 1) * m));
    const across = p.ranks.map((rank) => rank.scratch(Math.max(0, m - 1)));
    const share = (local: number): [number, number] => [local * m, local * m + m];
    const slot = (from: number, to: number) => (from > to ? from - 1 : from);
    for (const rank of p.ranks) {
      const [node, local] = [nodeOf(rank.id), rank.id % g];
      for (const to of others(local, g)) {
        const at = slot(local, to) * m;
        p.copy(inbox[rankAt(node, to).id]!.slice(at, at + m), rank.input.slice(...share(to)));
      }
    }
    for (const rank of p.ranks) {
      const mine = share(rank.id % g);
      const parts = Array.from({ length: g - 1 }, (_, i) => inbox[rank.id]!.slice(i * m, i * m + m));
      if (parts.length > 0) p.reduce(rank.output.slice(...mine), rank.input.slice(...mine), parts);
      else if (!args.inPlace) rank.copy(rank.output.slice(...mine), rank.input.slice(...mine));
    }
    for (let step = 0; step < m - 1; step++) {
      for (const rank of p.ranks) {
        const next = rankAt(nodeOf(rank.id) + 1, rank.id % g);
        p.copy(across[next.id]!.at(step), rank.output.at((rank.id % g) * m + modulo(nodeOf(rank.id) - step, m)));
      }
      for (const rank of p.ranks) {
        const c = (rank.id % g) * m + modulo(nodeOf(rank.id) - 1 - step, m);
        p.reduce(rank.output.at(c), rank.output.at(c), [across[rank.id]!.at(step)]);
      }
    }
    for (let step = 0; step < m - 1; step++) {
      for (const rank of p.ranks) {
        const c = (rank.id % g) * m + modulo(nodeOf(rank.id) + 1 - step, m);
        p.copy(rankAt(nodeOf(rank.id) + 1, rank.id % g).output.at(c), rank.output.at(c));
      }
    }
    for (const rank of p.ranks) {
      const mine = share(rank.id % g);
      for (const to of others(rank.id % g, g))
        p.copy(rankAt(nodeOf(rank.id), to).output.slice(...mine), rank.output.slice(...mine));
    }
  });
}

/** All-gather: between nodes first, each local rank its own part, then everything within the node. */
export function hierarchicalAllGather(args: HierarchicalArgs): Program {
  const { numRanks: n, inPlace } = args;
  const { g, m, options } = shape("hierarchical-all-gather", args);
  return program({ ...options, collective: allGather(n, args) }, (p) => {
    const nodeOf = (id: number) => Math.floor(id / g);
    for (const rank of p.ranks) {
      if (!inPlace) rank.copy(rank.output.at(rank.id), rank.input.at(0));
      for (let node = 0; node < m; node++) {
        if (node !== nodeOf(rank.id)) p.copy(p.rank(node * g + (rank.id % g)).output.at(rank.id), rank.input.at(0));
      }
    }
    for (const rank of p.ranks) {
      for (const local of others(rank.id % g, g)) {
        const peer = p.rank(nodeOf(rank.id) * g + local);
        for (let node = 0; node < m; node++) {
          const c = node * g + (rank.id % g);
          p.copy(peer.output.at(c), c === rank.id ? rank.input.at(0) : rank.output.at(c));
        }
      }
    }
  });
}

/** Reduce-scatter: within nodes first, then between ranks of the same local number. */
export function hierarchicalReduceScatter(args: HierarchicalArgs): Program {
  const { numRanks: n } = args;
  const { g, m, options } = shape("hierarchical-reduce-scatter", args);
  return program({ ...options, collective: reduceScatter(n, args) }, (p) => {
    const nodeOf = (id: number) => Math.floor(id / g);
    const inbox = p.ranks.map((rank) => rank.scratch((g - 1) * m));
    const sums = p.ranks.map((rank) => rank.scratch(m));
    const across = p.ranks.map((rank) => rank.scratch(m));
    for (const rank of p.ranks) {
      for (const to of others(rank.id % g, g)) {
        const peer = nodeOf(rank.id) * g + to;
        const slot = rank.id % g > to ? (rank.id % g) - 1 : rank.id % g;
        for (let node = 0; node < m; node++) p.copy(inbox[peer]!.at(slot * m + node), rank.input.at(node * g + to));
      }
    }
    for (const rank of p.ranks) {
      for (let node = 0; node < m; node++) {
        const parts = Array.from({ length: g - 1 }, (_, i) => inbox[rank.id]!.at(i * m + node));
        const own = rank.input.at(node * g + (rank.id % g));
        if (parts.length > 0) p.reduce(sums[rank.id]!.at(node), own, parts);
        else rank.copy(sums[rank.id]!.at(node), own);
      }
    }
    for (const rank of p.ranks) {
      for (let node = 0; node < m; node++) {
        if (node !== nodeOf(rank.id))
          p.copy(across[node * g + (rank.id % g)]!.at(nodeOf(rank.id)), sums[rank.id]!.at(node));
      }
    }
    for (const rank of p.ranks) {
      const parts = Array.from({ length: m }, (_, node) => node).filter((node) => node !== nodeOf(rank.id));
      const own = sums[rank.id]!.at(nodeOf(rank.id));
      if (parts.length > 0)
        p.reduce(
          rank.output.at(0),
          own,
          parts.map((node) => across[rank.id]!.at(node)),
        );
      else rank.copy(rank.output.at(0), own);
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
