/** A queue of timed events: earliest first, of equal times the one that was added first. So runs repeat exactly. */
export class EventQueue {
  readonly #times: number[] = [];
  readonly #order: number[] = [];
  readonly #actions: (() => void)[] = [];
  #next = 0;

  get size(): number {
    return this.#times.length;
  }

  /** Time of the earliest event, Infinity when there is none. */
  get nextTime(): number {
    return this.#times[0] ?? Number.POSITIVE_INFINITY;
  }

  push(time: number, action: () => void): void {
    const times = this.#times;
    const order = this.#order;
    const actions = this.#actions;
    const seq = this.#next++;
    let i = times.length;
    times.push(time);
    order.push(seq);
    actions.push(action);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (times[parent]! <= time) break;
      times[i] = times[parent]!;
      order[i] = order[parent]!;
      actions[i] = actions[parent]!;
      i = parent;
    }
    times[i] = time;
    order[i] = seq;
    actions[i] = action;
  }

  pop(): () => void {
    const times = this.#times;
    const order = this.#order;
    const actions = this.#actions;
    const top = actions[0]!;
    const time = times.pop()!;
    const seq = order.pop()!;
    const action = actions.pop()!;
    const n = times.length;
    if (n === 0) return top;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= n) break;
      const right = child + 1;
      if (
        right < n &&
        (times[right]! < times[child]! || (times[right] === times[child] && order[right]! < order[child]!))
      )
        child = right;
      if (time < times[child]! || (time === times[child] && seq < order[child]!)) break;
      times[i] = times[child]!;
      order[i] = order[child]!;
      actions[i] = actions[child]!;
      i = child;
    }
    times[i] = time;
    order[i] = seq;
    actions[i] = action;
    return top;
  }
}
