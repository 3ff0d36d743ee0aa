/** A map from integers to values that is constant on intervals: sorted disjoint pieces, binary search, splice. */
export interface Piece<V> {
  start: number;
  /** Exclusive. */
  end: number;
  value: V;
}

export class IntervalMap<V> {
  private readonly pieces: Piece<V>[] = [];

  /** Index of the first piece that ends after `start`. */
  private first(start: number): number {
    let low = 0;
    let high = this.pieces.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.pieces[middle] as Piece<V>).end > start) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Calls `visit` with every value within [start, end). */
  visit(start: number, end: number, visit: (value: V) => void): void {
    if (end <= start) return;
    for (let i = this.first(start); i < this.pieces.length; i++) {
      const piece = this.pieces[i] as Piece<V>;
      if (piece.start >= end) return;
      visit(piece.value);
    }
  }

  /** Replaces what is within [start, end), gaps (undefined) included. Pieces are cut at the edges. */
  update(start: number, end: number, change: (old: V | undefined) => V): void {
    if (end <= start) return;
    const at = this.first(start);
    const fresh: Piece<V>[] = [];
    let cursor = start;
    let i = at;
    for (; i < this.pieces.length; i++) {
      const piece = this.pieces[i] as Piece<V>;
      if (piece.start >= end) break;
      if (piece.start < start) fresh.push({ start: piece.start, end: start, value: piece.value });
      const from = Math.max(piece.start, start);
      if (from > cursor) fresh.push({ start: cursor, end: from, value: change(undefined) });
      const to = Math.min(piece.end, end);
      fresh.push({ start: from, end: to, value: change(piece.value) });
      cursor = to;
      if (piece.end > end) fresh.push({ start: end, end: piece.end, value: piece.value });
    }
    if (cursor < end) fresh.push({ start: cursor, end, value: change(undefined) });
    fresh.sort((a, b) => a.start - b.start);
    this.pieces.splice(at, i - at, ...fresh);
  }
}
