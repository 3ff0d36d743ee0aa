/**
 * The network: directed links with a capacity, and flows that share them fairly. A flow runs over a fixed path at one
 * rate on all of its links; rates are max-min fair (progressive filling; Bertsekas, Gallager: "Data Networks", 6.5.2),
 * each flow capped by what its thread block can move. Latency is not the network's business: it is added by who sends.
 *
 * Flows of one path and one cap get equal rates and are one class; the work of a change is proportional to the classes
 * that are connected to it through shared links, not to all flows. Changes at one moment are settled together.
 */
import { EventQueue } from "./event-queue.ts";

/** Moments closer than this are one: rounding must not tear apart what happens at once (microseconds). */
const SAME_MOMENT_US = 1e-9;

interface Pending {
  /** Service at which the flow is done. */
  readonly target: number;
  readonly bytes: number;
  readonly onDone: () => void;
}

interface FlowClass {
  readonly links: readonly number[];
  readonly capBytesPerUs: number;
  /** Flows in progress, as a heap by target. */
  readonly pending: Pending[];
  /** Bytes that each flow of the class has been served since the class began. */
  service: number;
  updatedAt: number;
  rate: number;
  version: number;
  mark: number;
}

export class Network {
  readonly queue = new EventQueue();
  now = 0;
  readonly #capacity: Float64Array;
  readonly #busyBytes: Float64Array;
  readonly #classesOf: Set<FlowClass>[];
  readonly #classes = new Map<string, FlowClass>();
  readonly #dirty = new Set<FlowClass>();
  #mark = 0;
  #flows = 0;

  /** @param capacities of the links in GB/s; 0 is a link that is down */
  constructor(capacities: readonly number[]) {
    this.#capacity = Float64Array.from(capacities, (gbps) => gbps * 1000);
    this.#busyBytes = new Float64Array(capacities.length);
    this.#classesOf = capacities.map(() => new Set());
  }

  /** Bytes that each link has carried. */
  get carriedBytes(): Float64Array {
    return this.#busyBytes;
  }
  get numFlows(): number {
    return this.#flows;
  }

  at(time: number, action: () => void): void {
    this.queue.push(Math.max(time, this.now), action);
  }

  /** Starts a flow now. `onDone` runs when its last byte has left the path's slowest link. */
  start(links: readonly number[], key: string, bytes: number, capGBps: number, onDone: () => void): void {
    this.#flows++;
    if (bytes <= 0 || (links.length === 0 && capGBps === Number.POSITIVE_INFINITY)) {
      this.at(this.now, onDone);
      return;
    }
    for (const link of links) this.#busyBytes[link] = this.#busyBytes[link]! + bytes;
    const name = `${key}|${capGBps}`;
    let flowClass = this.#classes.get(name);
    if (flowClass === undefined) {
      flowClass = {
        links,
        capBytesPerUs: capGBps * 1000,
        pending: [],
        service: 0,
        updatedAt: this.now,
        rate: 0,
        version: 0,
        mark: 0,
      };
      this.#classes.set(name, flowClass);
    }
    this.#serve(flowClass);
    if (flowClass.pending.length === 0) for (const link of links) this.#classesOf[link]!.add(flowClass);
    pushPending(flowClass.pending, { target: flowClass.service + bytes, bytes, onDone });
    this.#dirty.add(flowClass);
  }

  /** Runs until nothing is left to happen, or `until`. */
  run(until = Number.POSITIVE_INFINITY): void {
    this.#settle();
    while (this.queue.size > 0) {
      const time = this.queue.nextTime;
      if (time > until) break;
      if (time > this.now) this.now = time;
      while (this.queue.size > 0 && this.queue.nextTime <= this.now + SAME_MOMENT_US) this.queue.pop()();
      this.#settle();
    }
  }

  #serve(flowClass: FlowClass): void {
    flowClass.service += flowClass.rate * (this.now - flowClass.updatedAt);
    flowClass.updatedAt = this.now;
  }

  /** Recomputes the rates of everything that shares a link with what changed. */
  #settle(): void {
    if (this.#dirty.size === 0) return;
    const dirty = [...this.#dirty];
    this.#dirty.clear();
    const mark = ++this.#mark;
    for (const start of dirty) {
      if (start.mark === mark) continue;
      const component: FlowClass[] = [];
      const links = new Set<number>();
      const stack = [start];
      start.mark = mark;
      while (stack.length > 0) {
        const flowClass = stack.pop()!;
        component.push(flowClass);
        for (const link of flowClass.links) {
          if (links.has(link)) continue;
          links.add(link);
          for (const other of this.#classesOf[link]!) {
            if (other.mark === mark) continue;
            other.mark = mark;
            stack.push(other);
          }
        }
      }
      this.#share(component, links);
    }
  }

  /** Progressive filling of one component. */
  #share(component: readonly FlowClass[], links: ReadonlySet<number>): void {
    const left = new Map<number, { capacity: number; flows: number }>();
    for (const link of links) left.set(link, { capacity: this.#capacity[link]!, flows: 0 });
    const open = component.filter((flowClass) => {
      this.#serve(flowClass);
      return flowClass.pending.length > 0;
    });
    for (const flowClass of open) for (const link of flowClass.links) left.get(link)!.flows += flowClass.pending.length;
    const order = [...open].sort((a, b) => a.capBytesPerUs - b.capBytesPerUs);
    const settled = new Set<FlowClass>();
    let nextByCap = 0;
    while (settled.size < open.length) {
      let share = Number.POSITIVE_INFINITY;
      let narrowest = -1;
      for (const [link, state] of left) {
        if (state.flows === 0) continue;
        const fair = Math.max(0, state.capacity) / state.flows;
        if (fair < share) {
          share = fair;
          narrowest = link;
        }
      }
      while (nextByCap < order.length && settled.has(order[nextByCap]!)) nextByCap++;
      const capped = order[nextByCap];
      const fix = (flowClass: FlowClass, rate: number) => {
        settled.add(flowClass);
        this.#setRate(flowClass, rate);
        for (const link of flowClass.links) {
          const state = left.get(link)!;
          state.capacity -= rate * flowClass.pending.length;
          state.flows -= flowClass.pending.length;
        }
      };
      if (capped !== undefined && capped.capBytesPerUs <= share) fix(capped, capped.capBytesPerUs);
      else if (narrowest < 0) {
        for (const flowClass of open) if (!settled.has(flowClass)) fix(flowClass, flowClass.capBytesPerUs);
      } else {
        // Everyone on the narrowest link, and on links that are exactly as narrow, is settled at this share.
        for (const flowClass of this.#classesOf[narrowest]!) {
          if (!settled.has(flowClass) && flowClass.pending.length > 0) fix(flowClass, share);
        }
        left.get(narrowest)!.flows = 0;
      }
    }
  }

  #setRate(flowClass: FlowClass, rate: number): void {
    flowClass.rate = rate;
    const version = ++flowClass.version;
    const first = flowClass.pending[0];
    if (first === undefined || rate <= 0) return;
    const time = this.now + Math.max(0, first.target - flowClass.service) / rate;
    this.queue.push(time, () => {
      if (flowClass.version === version) this.#finish(flowClass);
    });
  }

  #finish(flowClass: FlowClass): void {
    this.#serve(flowClass);
    const done: Pending[] = [];
    // Whoever would end within the same moment ends now.
    const reach = flowClass.service + flowClass.rate * SAME_MOMENT_US;
    while (flowClass.pending.length > 0) {
      const first = flowClass.pending[0]!;
      if (first.target > reach && first.target - flowClass.service > first.bytes * 1e-12) break;
      done.push(popPending(flowClass.pending));
    }
    if (flowClass.pending.length === 0) {
      flowClass.rate = 0;
      flowClass.service = 0;
      for (const link of flowClass.links) {
        this.#classesOf[link]!.delete(flowClass);
        for (const other of this.#classesOf[link]!) this.#dirty.add(other);
      }
    }
    this.#dirty.add(flowClass);
    for (const { onDone } of done) onDone();
  }
}

function pushPending(heap: Pending[], item: Pending): void {
  let i = heap.length;
  heap.push(item);
  while (i > 0) {
    const parent = (i - 1) >> 1;
    if (heap[parent]!.target <= item.target) break;
    heap[i] = heap[parent]!;
    i = parent;
  }
  heap[i] = item;
}

function popPending(heap: Pending[]): Pending {
  const top = heap[0]!;
  const last = heap.pop()!;
  const n = heap.length;
  if (n === 0) return top;
  let i = 0;
  for (;;) {
    let child = 2 * i + 1;
    if (child >= n) break;
    if (child + 1 < n && heap[child + 1]!.target < heap[child]!.target) child++;
    if (heap[child]!.target >= last.target) break;
    heap[i] = heap[child]!;
    i = child;
  }
  heap[i] = last;
  return top;
}
