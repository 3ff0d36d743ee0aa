/** Sketches of the collectives that are timed at scale. Sources are those of the algorithms' plans. */
import type { Sketch, SketchStep } from "./sketch.ts";

const mod = (i: number, n: number) => ((i % n) + n) % n;

/** Ring all-reduce: 2 (n - 1) steps of n-th parts to the next rank. */
export function ringAllReduceSketch(numRanks: number, sizeBytes: number, shift?: number): Sketch {
  const bytes = sizeBytes / numRanks;
  return {
    name: "ring all-reduce",
    numRanks,
    numLanes: 1,
    ...(shift === undefined ? {} : { shift }),
    numSteps: () => 2 * (numRanks - 1),
    step: (rank, _, index) => ({
      sendTo: mod(rank + 1, numRanks),
      bytes,
      receiveFrom: mod(rank - 1, numRanks),
      ...(index < numRanks - 1 ? { reduceBytes: bytes } : {}),
    }),
  };
}

/** Ring all-gather or reduce-scatter: n - 1 steps. */
export function ringHalfSketch(numRanks: number, sizeBytes: number, reduces: boolean, shift?: number): Sketch {
  const whole = ringAllReduceSketch(numRanks, sizeBytes, shift);
  return {
    ...whole,
    name: reduces ? "ring reduce-scatter" : "ring all-gather",
    numSteps: () => numRanks - 1,
    step: (rank, lane, index) => {
      const { sendTo, bytes, receiveFrom } = whole.step(rank, lane, index) as Required<SketchStep>;
      return { sendTo, bytes, receiveFrom, ...(reduces ? { reduceBytes: bytes } : {}) };
    },
  };
}

/** Everybody sends its part to everybody, a lane for each distance: all-gather, reduce-scatter and all-to-all. */
export function directSketch(name: string, numRanks: number, sizeBytes: number, reduces: boolean, shift = 1): Sketch {
  const bytes = sizeBytes / numRanks;
  return {
    name,
    numRanks,
    numLanes: numRanks - 1,
    shift,
    numSteps: () => 1,
    step: (rank, lane) => ({
      sendTo: mod(rank + lane + 1, numRanks),
      bytes,
      receiveFrom: mod(rank - lane - 1, numRanks),
      ...(reduces ? { reduceBytes: bytes } : {}),
    }),
  };
}

/** Two-shot all-reduce: direct reduce-scatter, then direct all-gather. */
export function twoShotSketch(numRanks: number, sizeBytes: number, shift = 1): Sketch {
  const half = directSketch("two-shot all-reduce", numRanks, sizeBytes, true, shift);
  const rest = directSketch("two-shot all-reduce", numRanks, sizeBytes, false, shift);
  return {
    ...half,
    numSteps: () => 2,
    step: (rank, lane, index) => (index === 0 ? half : rest).step(rank, lane, 0),
  };
}

interface TreePlace {
  readonly parent: number | undefined;
  readonly children: readonly number[];
}

/**
 * A binary tree over nodes 0 … n - 1 in which node 0 has one child, and every other's is found from the lowest set bit of
 * its number (Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; NCCL's
 * `src/graph/trees.cc` describes the same shape).
 */
export function binaryTreePlace(node: number, n: number): TreePlace {
  const lowest = node === 0 ? 2 ** Math.ceil(Math.log2(Math.max(2, n))) : node & -node;
  let parent: number | undefined;
  if (node !== 0) {
    parent = (node ^ lowest) | (lowest << 1);
    if (parent >= n) parent = node ^ lowest;
  }
  const children: number[] = [];
  if (node === 0) {
    if (n > 1) children.push(lowest >> 1);
  } else {
    let step = lowest >> 1;
    if (step > 0) {
      children.push(node - step);
      while (step > 0 && node + step >= n) step >>= 1;
      if (step > 0) children.push(node + step);
    }
  }
  return { parent, children };
}

/**
 * Double binary tree all-reduce: each tree carries half of the data in `numChunks` chunks up to its root and down again.
 * The second tree is the first mirrored (even numbers of nodes) or shifted by one node (odd numbers), so that leaves of
 * one are inner nodes of the other. With `ranksPerNode`, trees join the first ranks of the nodes, and within a node the
 * data goes along a chain of ranks.
 */
export function doubleTreeSketch(numRanks: number, sizeBytes: number, ranksPerNode: number, numChunks: number): Sketch {
  const nodes = numRanks / ranksPerNode;
  const bytes = sizeBytes / 2 / numChunks;
  /** Parent and children in tree 0 or 1, as ranks. */
  const place = (rank: number, tree: number): { parent: number | undefined; children: number[] } => {
    const node = Math.floor(rank / ranksPerNode);
    const local = rank % ranksPerNode;
    const children: number[] = local + 1 < ranksPerNode ? [rank + 1] : [];
    if (local > 0) return { parent: rank - 1, children };
    // Its own inverse for an even number of nodes.
    const mirrored = (position: number) => nodes - 1 - position;
    const even = nodes % 2 === 0;
    const at = binaryTreePlace(tree === 0 ? node : even ? mirrored(node) : mod(node - 1, nodes), nodes);
    const nodeAt = (position: number) => (tree === 0 ? position : even ? mirrored(position) : mod(position + 1, nodes));
    const head = (position: number) => nodeAt(position) * ranksPerNode;
    children.push(...at.children.map(head));
    return { parent: at.parent === undefined ? undefined : head(at.parent), children };
  };
  const places = [0, 1].map((tree) => Array.from({ length: numRanks }, (_, rank) => place(rank, tree)));
  const steps = new Map<number, readonly SketchStep[]>();
  // Lanes 2t: up in tree t; 2t + 1: down. The root's last receive on the way up starts its way down.
  const stepsOf = (rank: number, lane: number): readonly SketchStep[] => {
    const key = rank * 4 + lane;
    let list = steps.get(key);
    if (list !== undefined) return list;
    const tree = lane >> 1;
    const { parent, children } = places[tree]![rank]!;
    const all: SketchStep[] = [];
    for (let chunk = 0; chunk < numChunks; chunk++) {
      if (lane % 2 === 0) {
        for (const child of children) all.push({ receiveFrom: child, reduceBytes: bytes });
        if (parent !== undefined) all.push({ sendTo: parent, bytes });
        // The root turns around: it sends down as soon as a chunk is complete.
        else for (const child of children) all.push({ sendTo: child, bytes, toLane: lane + 1 });
      } else if (parent !== undefined) {
        all.push({ receiveFrom: parent });
        for (const child of children) all.push({ sendTo: child, bytes });
      }
    }
    list = all;
    steps.set(key, list);
    return list;
  };
  return {
    name: "double binary tree all-reduce",
    numRanks,
    numLanes: 4,
    numSteps: (rank, lane) => stepsOf(rank, lane).length,
    step: (rank, lane, index) => stepsOf(rank, lane)[index]!,
  };
}

/**
 * Hierarchical all-reduce: direct reduce-scatter within a node, a ring all-reduce of every local rank's part across the
 * nodes, direct all-gather within the node.
 */
export function hierarchicalSketch(numRanks: number, sizeBytes: number, ranksPerNode: number): Sketch {
  const nodes = numRanks / ranksPerNode;
  const part = sizeBytes / ranksPerNode;
  const ring = part / nodes;
  const local = ranksPerNode - 1;
  const across = 2 * (nodes - 1);
  return {
    name: "hierarchical all-reduce",
    numRanks,
    numLanes: 1,
    shift: ranksPerNode,
    numSteps: () => 2 * local + across,
    step: (rank, _, index) => {
      const node = Math.floor(rank / ranksPerNode);
      const at = rank % ranksPerNode;
      const near = (position: number) => node * ranksPerNode + mod(position, ranksPerNode);
      if (index < local)
        return { sendTo: near(at + index + 1), bytes: part, receiveFrom: near(at - index - 1), reduceBytes: part };
      if (index < local + across) {
        const step = index - local;
        return {
          sendTo: mod(node + 1, nodes) * ranksPerNode + at,
          bytes: ring,
          receiveFrom: mod(node - 1, nodes) * ranksPerNode + at,
          ...(step < nodes - 1 ? { reduceBytes: ring } : {}),
        };
      }
      const step = index - local - across;
      return { sendTo: near(at + step + 1), bytes: part, receiveFrom: near(at - step - 1) };
    },
  };
}
