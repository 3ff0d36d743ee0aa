/** A binary heap of numbers, the least first: no comparator is called, for those that have millions of them. */
export class NumberHeap {
  readonly #items: number[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The least; `undefined` of an empty heap. */
  get first(): number | undefined {
    return this.#items[0];
  }

  push(item: number): void {
    const items = this.#items;
    let i = items.length;
    items.push(item);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      const above = items[parent]!;
      if (above <= item) break;
      items[i] = above;
      i = parent;
    }
    items[i] = item;
  }

  /** Takes the least out. The heap must not be empty. */
  pop(): number {
    const items = this.#items;
    const top = items[0]!;
    const last = items.pop()!;
    const n = items.length;
    if (n === 0) return top;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= n) break;
      if (child + 1 < n && items[child + 1]! < items[child]!) child++;
      const below = items[child]!;
      if (below >= last) break;
      items[i] = below;
      i = child;
    }
    items[i] = last;
    return top;
  }
}
