/**
 * Tree algorithms: binomial trees for small rooted collectives, chains for large ones, and the double binary tree of
 * Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35
 * (2009), with ranks placed as NCCL places them (a leaf of one tree is an inner node of the other).
 */
import {
  allReduce,
  type Buffer,
  type Builder,
  broadcast,
  type Chunk,
  gather,
  type Program,
  program,
  type RankHandle,
  reduce,
  scatter,
} from "../language/index.ts";
import { type AlgorithmArgs, after, modulo, type RootedArgs, settings } from "./algorithm-args.ts";

export interface PipelineArgs extends RootedArgs {
  /** Pieces that follow each other through the tree; more hide latency on large messages. */
  readonly chunks?: number;
}

/** The rank that stands at place v when the root is at place 0. */
function placing<P>(p: Builder<P>, root: number): (v: number) => RankHandle<P> {
  return (v) => p.rank(modulo(v + root, p.numRanks));
}
/** The root's data is in its input, everybody else's where it arrived: in output. */
function sourceOf<P>(rank: RankHandle<P>, root: number): Buffer<P, "input"> | Buffer<P, "output"> {
  return rank.id === root ? rank.input : rank.output;
}

/** Broadcast along a binomial tree: log2(n) steps. */
export function binomialBroadcast(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program({ ...settings("binomial-broadcast", args), collective: broadcast(n, { ...args, root }) }, (p) => {
    const at = placing(p, root);
    if (!inPlace) p.copy(p.rank(root).output.all, p.rank(root).input.all, 1);
    for (let distance = 2 ** Math.ceil(Math.log2(n)) / 2; distance >= 1; distance /= 2) {
      for (let v = 0; v + distance < n; v += 2 * distance)
        p.copy(at(v + distance).output.all, sourceOf(at(v), root).all);
    }
  });
}

/** Broadcast down a chain, chunk after chunk: bandwidth-optimal for large messages. */
export function chainBroadcast(args: PipelineArgs): Program {
  const { numRanks: n, root = 0, inPlace, chunks = 8 } = args;
  return program({ ...settings("chain-broadcast", args), collective: broadcast(n, { ...args, chunks, root }) }, (p) => {
    const at = placing(p, root);
    if (!inPlace) p.copy(p.rank(root).output.all, p.rank(root).input.all, 1);
    for (let c = 0; c < chunks; c++) {
      for (let v = 0; v + 1 < n; v++) p.copy(at(v + 1).output.at(c), sourceOf(at(v), root).at(c));
    }
  });
}

/** Broadcast by scatter and ring all-gather (van de Geijn): large messages, all links busy. */
export function scatterAllGatherBroadcast(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program(
    { ...settings("scatter-all-gather-broadcast", args), collective: broadcast(n, { ...args, chunks: n, root }) },
    (p) => {
      const at = placing(p, root);
      if (!inPlace) p.copy(p.rank(root).output.all, p.rank(root).input.all, 1);
      for (let v = 1; v < n; v++) p.copy(at(v).output.at(v), at(0).input.at(v));
      for (let step = 0; step < n - 1; step++) {
        for (let v = 0; v < n; v++) {
          const c = modulo(v - step, n);
          // The root has everything already.
          if ((v + 1) % n !== 0) p.copy(at(v + 1).output.at(c), sourceOf(at(v), root).at(c));
        }
      }
    },
  );
}

/** Reduce along a binomial tree. */
export function binomialReduce(args: RootedArgs): Program {
  const { numRanks: n, root = 0 } = args;
  return program({ ...settings("binomial-reduce", args), collective: reduce(n, { ...args, root }) }, (p) => {
    climb(p, root);
  });
}
function climb<P>(p: Builder<P>, root: number): void {
  const n = p.numRanks;
  const at = placing(p, root);
  const partial: Chunk<P>[] = p.ranks.map((_, v) => at(v).input.all);
  if (n === 1) p.copy(at(0).output.all, at(0).input.all);
  for (let distance = 1; distance < n; distance *= 2) {
    for (let v = 0; v + distance < n; v += 2 * distance) {
      const parent = at(v);
      const inbox = parent.scratch(1).all;
      const sum = v === 0 ? parent.output.all : partial[v]!.buffer === 2 ? partial[v]! : parent.scratch(1).all;
      p.copy(inbox, partial[v + distance]!);
      p.reduce(sum, partial[v]!, [inbox]);
      partial[v] = sum;
    }
  }
}

/** Reduce up a chain, chunk after chunk. */
export function chainReduce(args: PipelineArgs): Program {
  const { numRanks: n, root = 0, chunks = 8 } = args;
  return program({ ...settings("chain-reduce", args), collective: reduce(n, { ...args, chunks, root }) }, (p) => {
    const at = placing(p, root);
    const inbox = p.ranks.map((_, v) => at(v).scratch(v < n - 1 ? chunks : 0));
    const sums = p.ranks.map((_, v) => at(v).scratch(v > 0 && v < n - 1 ? chunks : 0));
    if (n === 1) p.copy(at(0).output.all, at(0).input.all);
    for (let c = 0; c < chunks; c++) {
      for (let v = n - 1; v > 0; v--) {
        p.copy(inbox[v - 1]!.at(c), v === n - 1 ? at(v).input.at(c) : sums[v]!.at(c));
        p.reduce(v === 1 ? at(0).output.at(c) : sums[v - 1]!.at(c), at(v - 1).input.at(c), [inbox[v - 1]!.at(c)]);
      }
    }
  });
}

/** Reduce by direct reduce-scatter and gather: large messages. */
export function scatterGatherReduce(args: RootedArgs): Program {
  const { numRanks: n, root = 0 } = args;
  return program(
    { ...settings("scatter-gather-reduce", args), collective: reduce(n, { ...args, chunks: n, root }) },
    (p) => {
      const inbox = p.ranks.map((rank) => rank.scratch(n));
      const sums = p.ranks.map((rank) => rank.scratch(rank.id === root ? 0 : 1));
      for (const rank of p.ranks) {
        for (const owner of after(p.ranks, rank)) p.copy(inbox[owner.id]!.at(rank.id), rank.input.at(owner.id));
      }
      for (const owner of p.ranks) {
        const to = owner.id === root ? owner.output.at(owner.id) : sums[owner.id]!.at(0);
        const others = p.ranks.filter((rank) => rank !== owner).map((rank) => inbox[owner.id]!.at(rank.id));
        if (others.length === 0) p.copy(to, owner.input.at(owner.id));
        else p.reduce(to, owner.input.at(owner.id), others);
      }
      for (const owner of p.ranks)
        if (owner.id !== root) p.copy(p.rank(root).output.at(owner.id), sums[owner.id]!.at(0));
    },
  );
}

/** The root puts all of it to everybody. */
export function directBroadcast(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program({ ...settings("direct-broadcast", args), collective: broadcast(n, { ...args, root }) }, (p) => {
    for (const rank of p.ranks) {
      if (rank.id !== root || !inPlace) p.copy(rank.output.all, p.rank(root).input.all);
    }
  });
}

/** Everybody puts its part to the root. */
export function directGather(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program({ ...settings("direct-gather", args), collective: gather(n, { ...args, root }) }, (p) => {
    for (const rank of p.ranks) {
      if (rank.id !== root || !inPlace) p.copy(p.rank(root).output.at(rank.id), rank.input.at(0));
    }
  });
}

/** Gather along a binomial tree: blocks grow towards the root. */
export function binomialGather(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program({ ...settings("binomial-gather", args), collective: gather(n, { ...args, root }) }, (p) => {
    const at = placing(p, root);
    /** Each inner node keeps the blocks of its subtree, its own first. */
    const subtree = (v: number) => (v === 0 ? n : Math.min(v & -v, n - v));
    const held = p.ranks.map((_, v) => at(v).scratch(v > 0 && subtree(v) > 1 ? subtree(v) : 0));
    if (!inPlace) p.copy(at(0).output.at(root), at(0).input.at(0));
    for (let v = 1; v < n; v++) if (held[v]!.size > 0) p.copy(held[v]!.at(0), at(v).input.at(0));
    for (let distance = 1; distance < n; distance *= 2) {
      for (let v = 0; v + distance < n; v += 2 * distance) {
        const child = v + distance;
        for (let i = 0; i < subtree(child); i++) {
          const src = held[child]!.size > 0 ? held[child]!.at(i) : at(child).input.at(0);
          p.copy(v === 0 ? at(0).output.at(modulo(child + i + root, n)) : held[v]!.at(distance + i), src);
        }
      }
    }
  });
}

/** The root puts everybody's part. */
export function directScatter(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program({ ...settings("direct-scatter", args), collective: scatter(n, { ...args, root }) }, (p) => {
    for (const rank of p.ranks) {
      if (rank.id !== root || !inPlace) p.copy(rank.output.at(0), p.rank(root).input.at(rank.id));
    }
  });
}

/** Scatter along a binomial tree: each step halves what a rank passes on. */
export function binomialScatter(args: RootedArgs): Program {
  const { numRanks: n, root = 0, inPlace } = args;
  return program({ ...settings("binomial-scatter", args), collective: scatter(n, { ...args, root }) }, (p) => {
    const at = placing(p, root);
    const subtree = (v: number) => Math.min(v & -v, n - v);
    const held = p.ranks.map((_, v) => at(v).scratch(v > 0 && subtree(v) > 1 ? subtree(v) : 0));
    if (!inPlace) p.copy(at(0).output.at(0), at(0).input.at(root));
    for (let distance = 2 ** Math.ceil(Math.log2(n)) / 2; distance >= 1; distance /= 2) {
      for (let v = 0; v + distance < n; v += 2 * distance) {
        const child = v + distance;
        for (let i = 0; i < subtree(child); i++) {
          const src = v === 0 ? at(0).input.at(modulo(child + i + root, n)) : held[v]!.at(distance + i);
          p.copy(subtree(child) > 1 ? held[child]!.at(i) : at(child).output.at(0), src);
        }
      }
    }
    for (let v = 1; v < n; v++) if (subtree(v) > 1) p.copy(at(v).output.at(0), held[v]!.at(0));
  });
}

/** Parent of a rank in the first tree: an in-order binary tree by lowest set bit, rank 0 on top. */
function parentOf(rank: number, n: number): number | undefined {
  if (rank === 0) return undefined;
  const bit = rank & -rank;
  const up = (rank ^ bit) | (bit << 1);
  return up >= n ? rank ^ bit : up;
}
/** Parents in both trees: the second is the first mirrored (even counts) or shifted (odd counts). */
export function twoTrees(n: number): readonly (readonly (number | undefined)[])[] {
  const first = Array.from({ length: n }, (_, rank) => parentOf(rank, n));
  const map = (rank: number) => (n % 2 === 0 ? n - 1 - rank : (rank + 1) % n);
  const second = new Array<number | undefined>(n).fill(undefined);
  first.forEach((parent, rank) => {
    second[map(rank)] = parent === undefined ? undefined : map(parent);
  });
  return [first, second];
}

/** All-reduce over two binary trees, each with half of the chunks, up and down in pipelines. */
export function doubleBinaryTreeAllReduce(args: Omit<PipelineArgs, "root">): Program {
  const { numRanks: n, chunks = 4 } = args;
  const each = Math.max(1, Math.ceil(chunks / 2));
  return program(
    { ...settings("double-binary-tree-all-reduce", args), collective: allReduce(n, { ...args, chunks: 2 * each }) },
    (p) => {
      for (const [t, parents] of twoTrees(n).entries()) treeAllReduce(p, parents, t * each, each, 2 * t);
    },
  );
}

function treeAllReduce<P>(
  p: Builder<P>,
  parents: readonly (number | undefined)[],
  first: number,
  count: number,
  strand: number,
): void {
  const children = p.ranks.map((rank) => p.ranks.filter((other) => parents[other.id] === rank.id));
  const root = p.rank(parents.indexOf(undefined));
  const down: RankHandle<P>[] = [];
  const queue = [root];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    down.push(next);
    queue.push(...children[next.id]!);
  }
  const inboxes = p.ranks.map((rank) => children[rank.id]!.map(() => rank.scratch(count)));
  const sums = p.ranks.map((rank) => rank.scratch(rank !== root && children[rank.id]!.length > 0 ? count : 0));
  const up = [...down].reverse();
  for (let i = 0; i < count; i++) {
    const c = first + i;
    for (const rank of up) {
      const own = rank === root ? rank.output.at(c) : undefined;
      const sum = own ?? (children[rank.id]!.length > 0 ? sums[rank.id]!.at(i) : rank.input.at(c));
      const arrived = inboxes[rank.id]!.map((inbox) => inbox.at(i));
      if (arrived.length > 0) p.reduce(sum, rank.input.at(c), arrived, strand);
      else if (rank === root) p.copy(sum, rank.input.at(c), strand);
      const parent = parents[rank.id];
      if (parent !== undefined) p.copy(inboxes[parent]![children[parent]!.indexOf(rank)]!.at(i), sum, strand);
    }
    for (const rank of down)
      for (const child of children[rank.id]!) p.copy(child.output.at(c), rank.output.at(c), strand + 1);
  }
}

/** All-reduce along one binomial tree: reduce to rank 0, broadcast back. Small messages over slow networks. */
export function binomialAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("binomial-all-reduce", args), collective: allReduce(n, { ...args, chunks: 1 }) },
    (p) => {
      climb(p, 0);
      for (let distance = 2 ** Math.ceil(Math.log2(n)) / 2; distance >= 1; distance /= 2) {
        for (let v = 0; v + distance < n; v += 2 * distance)
          p.copy(p.rank(v + distance).output.all, p.rank(v).output.all);
      }
    },
  );
}
