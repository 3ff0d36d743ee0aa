/**
 * Vector clocks. A strand's life is cut into segments by its synchronising operations; an access stands in segment g of
 * its strand. A clock says, for each strand, how many of its segments are over and visible. Clocks are shared and never
 * changed; strands that have not heard of anybody have none, so that plans without signals cost nothing.
 */
export type Clock = Int32Array | undefined;

/** The pointwise maximum of two clocks; one of them where it covers the other. */
export function join(a: Clock, b: Clock): Clock {
  if (a === b || b === undefined) return a;
  if (a === undefined) return b;
  let aCovers = true;
  let bCovers = true;
  for (let i = 0; i < a.length; i++) {
    const x = a[i]!;
    const y = b[i]!;
    if (x < y) aCovers = false;
    else if (x > y) bCovers = false;
  }
  if (aCovers) return a;
  if (bCovers) return b;
  const result = new Int32Array(a.length);
  for (let i = 0; i < a.length; i++) result[i] = Math.max(a[i]!, b[i]!);
  return result;
}

/** `clock` that also knows `segments` segments of `strand`. */
export function withStrand(clock: Clock, strand: number, segments: number, size: number): Clock {
  if (clock !== undefined && clock[strand]! >= segments) return clock;
  const result = clock === undefined ? new Int32Array(size) : clock.slice();
  result[strand] = segments;
  return result;
}

/** What a release carries: everything up to a segment of one strand, and what that strand had heard of. */
export interface Snapshot {
  readonly strand: number;
  readonly segments: number;
  readonly base: Clock;
  /** What was performed before (see `Past` in `access-log.ts`); absent in plans without packets. */
  readonly known: Clock;
  readonly link: number;
}

export function acquire(clock: Clock, snapshot: Snapshot, size: number): Clock {
  return withStrand(join(clock, snapshot.base), snapshot.strand, snapshot.segments, size);
}
