/**
 * A map from integers to values that is constant on intervals: sorted disjoint pieces, found by binary search. Starts, ends
 * and values lie in three arrays, as a large program has a million pieces.
 */
export class IntervalMap<V> {
  private readonly starts: number[] = [];
  /** Exclusive. */
  private readonly ends: number[] = [];
  private readonly values: V[] = [];

  /** Index of the first piece that ends after `start`. */
  private first(start: number): number {
    const { ends } = this;
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ends[middle] as number) > start) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Calls `visit` with every value within [start, end). */
  visit(start: number, end: number, visit: (value: V) => void): void {
    if (end <= start) return;
    const { starts, values } = this;
    for (let i = this.first(start); i < starts.length && (starts[i] as number) < end; i++) visit(values[i] as V);
  }

  /** Replaces what is within [start, end), gaps (undefined) included. Pieces are cut at the edges. */
  update(start: number, end: number, change: (old: V | undefined) => V): void {
    if (end <= start) return;
    const { starts, ends, values } = this;
    let at = this.first(start);
    let cursor = start;
    while (cursor < end) {
      const from = at < starts.length ? Math.max(starts[at] as number, cursor) : end;
      if (from > cursor) {
        const to = Math.min(from, end);
        this.insert(at++, cursor, to, change(undefined));
        cursor = to;
        continue;
      }
      if ((starts[at] as number) < cursor) {
        this.insert(at, starts[at] as number, cursor, values[at] as V);
        at++;
        starts[at] = cursor;
      }
      const to = Math.min(ends[at] as number, end);
      if (to < (ends[at] as number)) {
        this.insert(at, cursor, to, values[at] as V);
        starts[at + 1] = to;
      }
      values[at] = change(values[at] as V);
      at++;
      cursor = to;
    }
  }

  private insert(at: number, start: number, end: number, value: V): void {
    this.starts.splice(at, 0, start);
    this.ends.splice(at, 0, end);
    this.values.splice(at, 0, value);
  }
}
