/**
 * Port requests. Each rank has one proxy, which works through the requests of all its strands in the order in which
 * they were issued. What the requests of one strand do is a lane of its own, beside the strand's: ordered behind what
 * the strand had done, and behind those requests of other strands that were surely issued before.
 */

import { joinClocks, stepsKnown, type VectorClock, withSteps } from "../../core/internal.ts";
import type { Geometry } from "./cell-geometry.ts";
import type { StrandState } from "./strand-state.ts";

interface Lane {
  segment: number;
  clock: VectorClock;
  /** Issue segment and clock of every request, to order requests of other strands behind it. */
  readonly requests: { readonly strandSegment: number; readonly laneSegment: number; readonly clock: VectorClock }[];
}

export class Lanes {
  readonly #geometry: Geometry;
  readonly #lanes: (Lane | undefined)[];
  /** @param size lanes in all, those of the strands included */
  constructor(geometry: Geometry, size: number) {
    this.#geometry = geometry;
    this.#lanes = new Array<Lane | undefined>(size - geometry.strandRank.length);
  }

  /** Whether there are any: without ports no rank has a proxy. */
  get any(): boolean {
    return this.#lanes.length > 0;
  }

  /** Number of the first lane of requests: those before are the strands'. */
  get first(): number {
    return this.#geometry.strandRank.length;
  }

  /** Number of the lane that does what thread `thread` of a strand requests; one lane for all unless they differ. */
  id(strand: StrandState, thread = 0): number {
    return this.first * (1 + thread) + strand.g;
  }

  /** A new request of a strand to its rank's proxy. @returns its segment in the lane, and what it is ordered behind */
  request(strand: StrandState, thread = 0): { readonly segment: number; readonly clock: VectorClock } {
    const { strandBase } = this.#geometry;
    const numStrands = this.first;
    let lane = this.#lanes[thread * numStrands + strand.g];
    if (lane === undefined) {
      lane = { segment: 0, clock: undefined, requests: [] };
      this.#lanes[thread * numStrands + strand.g] = lane;
    }
    let clock = joinClocks(lane.clock, strand.clock);
    // Relaxed signals and waits end a segment too, but only a block-wide synchronisation orders requests behind it.
    if (strand.phaseStart > 0) clock = withSteps(clock, strand.g, strand.phaseStart);
    for (let other = 0; other * numStrands < this.#lanes.length; other++) {
      for (let g = strandBase[strand.rank]!; g < strandBase[strand.rank + 1]!; g++) {
        if (g === strand.g && other === thread) continue;
        // Other threads of the strand: what they requested before the last block-wide synchronisation.
        const known = g === strand.g ? strand.phaseStart : stepsKnown(strand.clock, g);
        const at = other * numStrands + g;
        const request = this.#lanes[at]?.requests.findLast((candidate) => candidate.strandSegment < known);
        if (request === undefined) continue;
        clock = withSteps(joinClocks(clock, request.clock), numStrands + at, request.laneSegment + 1);
      }
    }
    lane.clock = clock;
    lane.requests.push({ strandSegment: strand.segment, laneSegment: lane.segment, clock });
    return { segment: lane.segment++, clock };
  }

  /** `clock` as a signal of the proxy carries it: behind everything the strand has requested, itself included. */
  behind(strand: StrandState, clock: VectorClock, thread = 0): VectorClock {
    const { segment, clock: own } = this.request(strand, thread);
    return withSteps(joinClocks(own, clock), this.id(strand, thread), segment + 1);
  }

  /** The clock of a strand that has waited for its requests. */
  joined(strand: StrandState, clock: VectorClock): VectorClock {
    let result = clock;
    for (let thread = 0; thread * this.first < this.#lanes.length; thread++) {
      const lane = this.#lanes[thread * this.first + strand.g];
      if (lane === undefined) continue;
      result = withSteps(joinClocks(result, lane.clock), this.id(strand, thread), lane.segment);
    }
    return result;
  }
}
