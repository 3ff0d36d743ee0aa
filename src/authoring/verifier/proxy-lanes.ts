/**
 * Port requests. Each rank has one proxy, which works through the requests of all its strands in the order in which
 * they were issued. What the requests of one strand do is a lane of its own, beside the strand's: ordered behind what
 * the strand had done, and behind those requests of other strands that were surely issued before.
 */

import type { Geometry } from "./cell-geometry.ts";
import type { StrandState } from "./strand-state.ts";
import { type Clock, join, withStrand } from "./vector-clocks.ts";

interface Lane {
  segment: number;
  clock: Clock;
  /** Issue segment and clock of every request, to order requests of other strands behind it. */
  readonly requests: { readonly strandSegment: number; readonly laneSegment: number; readonly clock: Clock }[];
}

export class Lanes {
  readonly #geometry: Geometry;
  readonly #lanes: (Lane | undefined)[];
  readonly #size: number;
  /** @param size lanes in all, those of the strands included */
  constructor(geometry: Geometry, size: number) {
    this.#geometry = geometry;
    this.#size = size;
    this.#lanes = new Array<Lane | undefined>(geometry.strandRank.length);
  }

  /** Number of the first lane of requests: those before are the strands'. */
  get first(): number {
    return this.#geometry.strandRank.length;
  }

  /** Number of the lane that does a strand's requests. */
  id(strand: StrandState): number {
    return this.#geometry.strandRank.length + strand.g;
  }

  /** A new request of a strand to its rank's proxy. @returns its segment in the lane, and what it is ordered behind */
  request(strand: StrandState): { readonly segment: number; readonly clock: Clock } {
    let lane = this.#lanes[strand.g];
    if (lane === undefined) {
      lane = { segment: 0, clock: undefined, requests: [] };
      this.#lanes[strand.g] = lane;
    }
    let clock = join(lane.clock, strand.clock);
    // Relaxed signals and waits end a segment too, but only a block-wide synchronisation orders requests behind it.
    if (strand.phaseStart > 0) clock = withStrand(clock, strand.g, strand.phaseStart, this.#size);
    const { strandBase, strandRank } = this.#geometry;
    for (let g = strandBase[strand.rank]!; g < strandBase[strand.rank + 1]!; g++) {
      const other = this.#lanes[g];
      const known = strand.clock?.[g] ?? 0;
      if (g === strand.g || other === undefined || known === 0) continue;
      const request = other.requests.findLast((candidate) => candidate.strandSegment < known);
      if (request === undefined) continue;
      clock = withStrand(join(clock, request.clock), strandRank.length + g, request.laneSegment + 1, this.#size);
    }
    lane.clock = clock;
    lane.requests.push({ strandSegment: strand.segment, laneSegment: lane.segment, clock });
    return { segment: lane.segment++, clock };
  }

  /** `clock` as a signal of the proxy carries it: behind everything the strand has requested, itself included. */
  behind(strand: StrandState, clock: Clock): Clock {
    const { segment, clock: own } = this.request(strand);
    return withStrand(join(own, clock), this.id(strand), segment + 1, this.#size);
  }

  /** The strand has waited for its requests. */
  join(strand: StrandState): void {
    const lane = this.#lanes[strand.g];
    if (lane === undefined) return;
    strand.clock = withStrand(join(strand.clock, lane.clock), this.id(strand), lane.segment, this.#size);
  }
}
