/** One strand during an exploration: where it stands, what it knows, and what it can prove to have been performed. */
import type { ExecutionPlan, SimpleOp } from "../ir.ts";
import { type Clock, join, withStrand } from "./clocks.ts";
import type { Link, Past } from "./memory.ts";

export interface StrandState {
  readonly g: number;
  readonly rank: number;
  segment: number;
  phase: number;
  clock: Clock;
  parked: boolean;
  /** For plans with packets: what was performed (see `Past` in `memory.ts`). */
  known: Clock;
  phaseStart: number;
  base: Link | undefined;
  links: Map<number, Link>;
  seq: number;
  launch: number;
  op: number;
  body: number;
  iteration: number;
  done: boolean;
  queued: boolean;
}

/**
 * Up to this many lanes a strand keeps a clock of what was performed. Beyond, clocks would fill the memory (4,096 strands
 * of 64 ranks: 16 KB each, one for each strand and phase); the packets are followed back one by one instead.
 */
const MAX_KNOWN_LANES = 600;

/** A block-wide synchronisation: everything before is done before anything after. */
export function separate(strand: StrandState, size: number, hasPackets: boolean): void {
  strand.segment++;
  strand.phase++;
  strand.phaseStart = strand.segment;
  if (!hasPackets) return;
  const keepsClock = size <= MAX_KNOWN_LANES;
  if (!keepsClock) strand.known = strand.clock;
  if (strand.links.size === 0) {
    if (keepsClock) strand.known = join(strand.known, strand.clock);
    return;
  }
  const links = [...strand.links.values()];
  if (keepsClock) {
    let known = join(strand.known, strand.clock);
    const seen = new Set<Link>();
    for (let link of links as (Link | undefined)[]) {
      for (; link !== undefined && link !== strand.base && !seen.has(link); link = link.next) {
        seen.add(link);
        const node = link.from;
        if (node === undefined) continue;
        known = join(known, node.known);
        if (node.own > 0) known = withStrand(known, node.lane, node.own, size);
      }
    }
    strand.known = known;
  }
  strand.base = links.length === 1 ? links[0] : { from: undefined, next: strand.base, more: links };
  strand.links = new Map();
}

/** A strand learns what another had performed. */
export function learn(strand: StrandState, known: Clock, link: Link | undefined, hasPackets: boolean): void {
  if (!hasPackets) return;
  const size = strand.clock?.length ?? known?.length ?? 0;
  strand.known = size > MAX_KNOWN_LANES ? strand.clock : join(join(strand.known, known), strand.clock);
  if (link === undefined || link === strand.base) return;
  strand.base = strand.base === undefined ? link : { from: undefined, next: strand.base, more: [link] };
}

/** Everything a strand has read as packets. */
export function allLinks(strand: StrandState): Link | undefined {
  if (strand.links.size === 0) return strand.base;
  return { from: undefined, next: strand.base, more: [...strand.links.values()] };
}

export function past(strand: StrandState, own: number): Past {
  return {
    known: strand.known,
    own,
    seq: strand.seq,
    link: (position) => strand.links.get(position) ?? strand.base,
  };
}

/** Says whether any operation moves packets. */
export function usesPackets(plan: ExecutionPlan): boolean {
  const packets = (op: SimpleOp) =>
    (op.kind === "copy" && op.format !== "plain") ||
    (op.kind === "put" && op.format !== "plain") ||
    (op.kind === "reduce" && op.packets) ||
    (op.kind === "switch-broadcast" && op.format === "forward");
  return plan.ranks.some((rank) =>
    rank.strands.some((strand) =>
      strand.ops.some((op) => (op.kind === "pipeline" ? op.body.some(packets) : packets(op))),
    ),
  );
}
