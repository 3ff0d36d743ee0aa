/**
 * Which blocks a pipeline takes: near ones, since each stage sends to the next. Blocks are sorted by place, so the next
 * ones in order are tried first; where those are not next to each other, every place to start from is tried, and each
 * next stage goes to the nearest block that is left.
 */
import type { BlockClass } from "./blocks.ts";
import type { Fabric, GroupLink } from "./fabric.ts";

export type Block = readonly string[];

export interface Picked {
  readonly blocks: readonly Block[];
  /** From each stage to the next; undefined after the last. */
  readonly hops: readonly (GroupLink | undefined)[];
}

/** What a hop adds to a pipeline's time. */
export type HopCost = (hop: GroupLink | undefined) => number;

/** Above this many free blocks only their order is tried. */
const MAX_COMPARED = 48;

/** Most places to start from that are tried. */
const MAX_STARTS = 32;

/**
 * Picks one free block of class `order[stage]` for each stage; undefined when the free ones cannot all reach each other.
 * @param taken blocks that are in use
 */
export function pickBlocks(
  order: readonly number[],
  classes: readonly BlockClass[],
  taken: ReadonlySet<Block>,
  fabric: Fabric,
  hopCost: HopCost,
): Picked | undefined {
  const costOf = ({ hops }: Picked) => hops.reduce((sum, hop) => sum + hopCost(hop), 0);
  const free = classes.map(({ blocks }) => (taken.size === 0 ? blocks : blocks.filter((block) => !taken.has(block))));
  const inOrder = sequential(order, free, fabric);
  if (inOrder?.hops.every((hop) => hop === undefined || hop.scope === "island" || hop.scope === "device"))
    return inOrder;
  // Large clusters are regular and listed by place: their order is near enough, and trying all would take seconds.
  if (inOrder !== undefined && free.reduce((sum, blocks) => sum + blocks.length, 0) > MAX_COMPARED) return inOrder;
  let best = inOrder;
  let bestCost = inOrder === undefined ? Number.POSITIVE_INFINITY : costOf(inOrder);
  const starts = startsOf(free[order[0] ?? 0] ?? [], fabric);
  let bestLeft = Number.POSITIVE_INFINITY;
  if (inOrder !== undefined) {
    const place = placeKey(inOrder.blocks[0], fabric);
    bestLeft = starts.find((start) => placeKey(start.block, fabric) === place)?.numNear ?? bestLeft;
  }
  for (const { block, numNear } of starts) {
    const picked = nearest(order, free, block, fabric, hopCost);
    if (picked === undefined) continue;
    const cost = costOf(picked);
    // Of equal ones, the place that has the fewest blocks left over keeps the roomier ones whole.
    if (cost < bestCost * (1 - 1e-9) || (cost <= bestCost * (1 + 1e-9) && numNear < bestLeft)) {
      best = picked;
      bestCost = cost;
      bestLeft = numNear;
    }
  }
  return best;
}

/** Picks the next free blocks in order; undefined when two that follow each other have no link. */
export function nextBlocks(
  order: readonly number[],
  classes: readonly BlockClass[],
  taken: ReadonlySet<Block>,
  fabric: Fabric,
): Picked | undefined {
  const free = classes.map(({ blocks }) => blocks.filter((block) => !taken.has(block)));
  return sequential(order, free, fabric);
}

function sequential(order: readonly number[], free: readonly (readonly Block[])[], fabric: Fabric): Picked | undefined {
  const next = free.map(() => 0);
  const blocks: Block[] = [];
  for (const cls of order) {
    const at = next[cls] ?? 0;
    const block = free[cls]?.[at];
    if (block === undefined) return undefined;
    next[cls] = at + 1;
    blocks.push(block);
  }
  const hops: (GroupLink | undefined)[] = [];
  for (const [stage, block] of blocks.entries()) {
    const after = blocks[stage + 1];
    if (after === undefined) hops.push(undefined);
    else {
      const hop = fabric.pair(block[0] ?? "", after[0] ?? "");
      if (hop === undefined) return undefined;
      hops.push(hop);
    }
  }
  return { blocks, hops };
}

function placeKey(block: Block | undefined, fabric: Fabric): string {
  const { host, island } = fabric.place(block?.[0] ?? "");
  return `${host} ${island}`;
}

/** One block for each island (and host) that has free ones, and how many it has. */
function startsOf(blocks: readonly Block[], fabric: Fabric): { block: Block; numNear: number }[] {
  const byPlace = new Map<string, { block: Block; numNear: number }>();
  for (const block of blocks) {
    const key = placeKey(block, fabric);
    const known = byPlace.get(key);
    if (known === undefined) byPlace.set(key, { block, numNear: 1 });
    else known.numNear++;
  }
  return [...byPlace.values()].slice(0, MAX_STARTS);
}

function nearest(
  order: readonly number[],
  free: readonly (readonly Block[])[],
  start: Block,
  fabric: Fabric,
  hopCost: HopCost,
): Picked | undefined {
  const blocks: Block[] = [start];
  const hops: (GroupLink | undefined)[] = [];
  const used = new Set<Block>([start]);
  for (const cls of order.slice(1)) {
    const from = blocks.at(-1)?.[0] ?? "";
    let best: { block: Block; hop: GroupLink; cost: number } | undefined;
    for (const block of free[cls] ?? []) {
      if (used.has(block)) continue;
      const hop = fabric.pair(from, block[0] ?? "");
      if (hop === undefined) continue;
      const cost = hopCost(hop);
      if (best === undefined || cost < best.cost) best = { block, hop, cost };
      // Nothing is nearer than the same island.
      if (hop.scope === "island" || hop.scope === "device") break;
    }
    if (best === undefined) return undefined;
    blocks.push(best.block);
    hops.push(best.hop);
    used.add(best.block);
  }
  return { blocks, hops: [...hops, undefined] };
}
