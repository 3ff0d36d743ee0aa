/** One strand during an exploration: where it stands, what it knows, and what it can prove to have been performed. */
import { joinClocks, Listener, type VectorClock, withSteps } from "../../core/internal.ts";
import { bodyOf, type ExecutionPlan, type SimpleOp } from "../plan/index.ts";
import type { AccessLog, Past } from "./access-log.ts";

export interface StrandState {
  readonly g: number;
  readonly rank: number;
  segment: number;
  phase: number;
  clock: VectorClock;
  readonly listener: Listener;
  parked: boolean;
  /** For plans with packets: what was performed (see `Past` in `access-log.ts`). */
  known: VectorClock;
  phaseStart: number;
  /**
   * Where waits are not block-wide: what thread i has heard of since the last block-wide synchronisation, and the snapshots
   * that the whole strand learns there. Empty elsewhere.
   */
  heardByThread: VectorClock[];
  unlearned: { readonly known: VectorClock; readonly link: number }[];
  /** Link of the packets read before the last synchronisation; 0 for none. */
  base: number;
  /** Link of the packets read since, by position. */
  links: Map<number, number>;
  seq: number;
  launch: number;
  op: number;
  body: number;
  iteration: number;
  done: boolean;
  queued: boolean;
}

/**
 * Up to this many lanes a strand keeps a clock of what was performed. Beyond, the packets are followed back one by one
 * instead, which needs no memory for each strand and phase.
 */
const MAX_KNOWN_LANES = 600;

export function newStrand(g: number, rank: number): StrandState {
  return {
    g,
    rank,
    segment: 0,
    phase: 0,
    clock: undefined,
    listener: new Listener(),
    parked: false,
    known: undefined,
    phaseStart: 0,
    heardByThread: [],
    unlearned: [],
    base: 0,
    links: new Map(),
    seq: 0,
    launch: 0,
    op: 0,
    body: 0,
    iteration: 0,
    done: false,
    queued: true,
  };
}

/** What strands hear of each other beyond their clocks; without packets there is nothing to hear. */
export class Hearsay {
  readonly #log: AccessLog;
  readonly #hasPackets: boolean;
  readonly #keepsClock: boolean;
  /**
   * @param size lanes
   * @param isUneven chunks may be short: what packets prove depends on their level, which a clock does not hold
   */
  constructor(log: AccessLog, size: number, hasPackets: boolean, isUneven: boolean) {
    this.#log = log;
    this.#hasPackets = hasPackets;
    this.#keepsClock = size <= MAX_KNOWN_LANES && !isUneven;
  }

  /** A block-wide synchronisation: everything before is done before anything after. */
  separate(strand: StrandState): void {
    this.gather(strand);
    strand.segment++;
    strand.phase++;
    strand.phaseStart = strand.segment;
    if (!this.#hasPackets) return;
    const keepsClock = this.#keepsClock;
    if (!keepsClock) strand.known = strand.clock;
    if (strand.links.size === 0) {
      if (keepsClock) strand.known = joinClocks(strand.known, strand.clock);
      return;
    }
    const log = this.#log;
    const links = [...strand.links.values()];
    if (keepsClock) {
      let known = joinClocks(strand.known, strand.clock);
      const seen = new Set<number>();
      for (let link of links) {
        for (; link !== 0 && link !== strand.base && !seen.has(link); link = log.linkBehind(link)) {
          seen.add(link);
          const node = log.linkFrom(link);
          if (node === 0) continue;
          known = joinClocks(known, log.known(node));
          if (log.own(node) > 0) known = withSteps(known, log.lane(node), log.own(node));
        }
      }
      strand.known = known;
    }
    strand.base = links.length === 1 ? links[0]! : log.link(0, strand.base, links);
    strand.links = new Map();
  }

  /** All threads of a strand learn what single ones have waited for. */
  gather(strand: StrandState): void {
    if (strand.heardByThread.length === 0) return;
    for (const clock of strand.heardByThread) strand.clock = joinClocks(strand.clock, clock);
    const unlearned = strand.unlearned;
    strand.heardByThread = [];
    strand.unlearned = [];
    for (const { known, link } of unlearned) this.learn(strand, known, link);
  }

  /** A strand learns what another had performed. */
  learn(strand: StrandState, known: VectorClock, link: number): void {
    if (!this.#hasPackets) return;
    strand.known = !this.#keepsClock ? strand.clock : joinClocks(joinClocks(strand.known, known), strand.clock);
    if (link === 0 || link === strand.base) return;
    strand.base = strand.base === 0 ? link : this.#log.link(0, strand.base, [link]);
  }

  /** A strand has read a packet at a position. @param from the write of it */
  heard(strand: StrandState, position: number, from: number): void {
    strand.links.set(position, this.#log.link(from, strand.links.get(position) ?? strand.base));
  }

  /** Everything a strand has read as packets. */
  allLinks(strand: StrandState): number {
    if (strand.links.size === 0) return strand.base;
    return this.#log.link(0, strand.base, [...strand.links.values()]);
  }

  /** What several links stand for together. */
  together(links: ReadonlySet<number>): number {
    return links.size === 0 ? 0 : this.#log.link(0, 0, [...links]);
  }
}

export function past(strand: StrandState, own: number): Past {
  return {
    known: strand.known,
    own,
    seq: strand.seq,
    link: (position) => strand.links.get(position) ?? strand.base,
  };
}

/** Says whether an operation sends or receives packets. */
export function movesPackets(op: SimpleOp): boolean {
  return (
    (op.kind === "copy" && op.format !== "plain") ||
    (op.kind === "put" && op.format !== "plain") ||
    (op.kind === "reduce" && (op.packets || op.packetDst !== undefined)) ||
    (op.kind === "switch-broadcast" && op.format === "forward")
  );
}

/** Says whether any operation moves packets. */
export function usesPackets(plan: ExecutionPlan): boolean {
  return plan.ranks.some((rank) =>
    rank.strands.some((strand) => strand.ops.some((op) => bodyOf(op).some(movesPackets))),
  );
}
