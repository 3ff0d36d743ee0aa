/**
 * The network: directed links with a capacity, and flows that share them fairly. A flow runs over a fixed path at one
 * rate on all of its links; rates are max-min fair (progressive filling; Bertsekas, Gallager: "Data Networks", 6.5.2),
 * each flow capped by what its thread block can move. Latency is not modelled here: the sender adds it.
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

/** Flows of one path and one cap. Whoever starts many keeps it, and saves the look-up. */
export interface FlowClass {
  readonly links: readonly number[];
  readonly capBytesPerUs: number;
  /** Flows in progress, as a heap by target. */
  readonly pending: Pending[];
  /** Bytes that each flow of the class has been served since the class began. */
  service: number;
  updatedAt: number;
  rate: number;
  /** Target of the flow that the pending event ends. */
  nextTarget: number;
  version: number;
  mark: number;
  settled: boolean;
}

export class Network {
  readonly queue = new EventQueue();
  now = 0;
  readonly #capacity: Float64Array;
  readonly #busyBytes: Float64Array;
  readonly #classesOf: Set<FlowClass>[];
  /** Room for one sharing: capacity left and flows not settled, by link. */
  readonly #left: Float64Array;
  readonly #open: Int32Array;
  readonly #linkMark: Int32Array;
  readonly #classes = new Map<string, FlowClass>();
  readonly #dirty = new Set<FlowClass>();
  #mark = 0;

  /** @param capacities of the links in GB/s; 0 is a link that is down */
  constructor(capacities: readonly number[]) {
    this.#capacity = Float64Array.from(capacities, (gbps) => gbps * 1000);
    this.#busyBytes = new Float64Array(capacities.length);
    this.#classesOf = capacities.map(() => new Set());
    this.#left = new Float64Array(capacities.length);
    this.#open = new Int32Array(capacities.length);
    this.#linkMark = new Int32Array(capacities.length).fill(-1);
  }

  /** Bytes that each link has carried. */
  get carriedBytes(): Float64Array {
    return this.#busyBytes;
  }

  /** What is infinitely far off never happens. */
  at(time: number, action: () => void): void {
    if (Number.isFinite(time)) this.queue.push(Math.max(time, this.now), action);
  }

  /** The class of flows over `links` of at most `capGBps` each; `key` names the path. */
  classOf(links: readonly number[], key: string, capGBps: number): FlowClass {
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
        nextTarget: -1,
        version: 0,
        mark: 0,
        settled: false,
      };
      this.#classes.set(name, flowClass);
    }
    return flowClass;
  }

  /** Starts a flow now. `onDone` runs when its last byte has left the path's slowest link. */
  start(links: readonly number[], key: string, bytes: number, capGBps: number, onDone: () => void): void {
    this.startIn(this.classOf(links, key, capGBps), bytes, onDone);
  }

  /** Starts a flow of a class now. */
  startIn(flowClass: FlowClass, bytes: number, onDone: () => void): void {
    const { links } = flowClass;
    if (bytes <= 0 || (links.length === 0 && flowClass.capBytesPerUs === Number.POSITIVE_INFINITY)) {
      this.at(this.now, onDone);
      return;
    }
    for (const link of links) this.#busyBytes[link] = this.#busyBytes[link]! + bytes;
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

  /** Something is left to happen. */
  get hasEvents(): boolean {
    return this.queue.size > 0;
  }

  #serve(flowClass: FlowClass): void {
    flowClass.service += flowClass.rate * (this.now - flowClass.updatedAt);
    flowClass.updatedAt = this.now;
  }

  /** Recomputes the rates of everything that shares a link with what changed. */
  #settle(): void {
    if (this.#dirty.size === 0) return;
    const mark = ++this.#mark;
    // Sharing starts no flow and ends none: nothing becomes dirty meanwhile.
    for (const start of this.#dirty) {
      if (start.mark === mark) continue;
      if (this.#isAlone(start)) {
        this.#shareAlone(start);
        continue;
      }
      const component: FlowClass[] = [];
      const links: number[] = [];
      const stack = [start];
      start.mark = mark;
      while (stack.length > 0) {
        const flowClass = stack.pop()!;
        component.push(flowClass);
        for (const link of flowClass.links) {
          if (this.#linkMark[link] === mark) continue;
          this.#linkMark[link] = mark;
          links.push(link);
          for (const other of this.#classesOf[link]!) {
            if (other.mark === mark) continue;
            other.mark = mark;
            stack.push(other);
          }
        }
      }
      this.#share(component, links);
    }
    this.#dirty.clear();
  }

  #isAlone(flowClass: FlowClass): boolean {
    for (const link of flowClass.links) {
      const here = this.#classesOf[link]!;
      if (here.size > 1 || (here.size === 1 && flowClass.pending.length === 0)) return false;
    }
    return true;
  }

  /** A class that meets no other: its flows share the narrowest link. */
  #shareAlone(flowClass: FlowClass): void {
    this.#serve(flowClass);
    const count = flowClass.pending.length;
    if (count === 0) return;
    let rate = flowClass.capBytesPerUs;
    for (const link of flowClass.links) rate = Math.min(rate, Math.max(0, this.#capacity[link]!) / count);
    this.#setRate(flowClass, rate);
  }

  /** Progressive filling of one component. */
  #share(component: readonly FlowClass[], links: readonly number[]): void {
    const capacity = this.#left;
    const flows = this.#open;
    for (const link of links) {
      capacity[link] = this.#capacity[link]!;
      flows[link] = 0;
    }
    const open: FlowClass[] = [];
    for (const flowClass of component) {
      this.#serve(flowClass);
      if (flowClass.pending.length === 0) continue;
      open.push(flowClass);
      flowClass.settled = false;
      for (const link of flowClass.links) flows[link] = flows[link]! + flowClass.pending.length;
    }
    open.sort((a, b) => a.capBytesPerUs - b.capBytesPerUs);
    const fix = (flowClass: FlowClass, rate: number) => {
      flowClass.settled = true;
      this.#setRate(flowClass, rate);
      const count = flowClass.pending.length;
      for (const link of flowClass.links) {
        capacity[link] = capacity[link]! - rate * count;
        flows[link] = flows[link]! - count;
      }
    };
    let left = open.length;
    let nextByCap = 0;
    while (left > 0) {
      let share = Number.POSITIVE_INFINITY;
      for (const link of links) {
        if (flows[link] === 0) continue;
        const fair = capacity[link]! <= 0 ? 0 : capacity[link]! / flows[link]!;
        if (fair < share) share = fair;
      }
      while (nextByCap < open.length && open[nextByCap]!.settled) nextByCap++;
      const capped = open[nextByCap]!;
      if (capped.capBytesPerUs <= share || share === Number.POSITIVE_INFINITY) {
        // Everyone whose own cap is no more than the fair share has what it can use.
        for (
          let i = nextByCap;
          i < open.length && open[i]!.capBytesPerUs <= Math.max(share, capped.capBytesPerUs);
          i++
        ) {
          if (open[i]!.settled) continue;
          fix(open[i]!, open[i]!.capBytesPerUs);
          left--;
        }
        continue;
      }
      // Links that are as narrow as the narrowest settle everyone on them at this share.
      const limit = share * (1 + 1e-12);
      for (const link of links) {
        if (flows[link] === 0 || Math.max(0, capacity[link]!) / flows[link]! > limit) continue;
        for (const flowClass of this.#classesOf[link]!) {
          if (flowClass.settled || flowClass.pending.length === 0) continue;
          fix(flowClass, share);
          left--;
        }
      }
    }
  }

  #setRate(flowClass: FlowClass, rate: number): void {
    const first = flowClass.pending[0];
    // Nothing changed for this class: the event that ends its first flow stands.
    if (rate === flowClass.rate && first?.target === flowClass.nextTarget) return;
    flowClass.rate = rate;
    flowClass.nextTarget = first?.target ?? -1;
    const version = ++flowClass.version;
    if (first === undefined || rate <= 0) return;
    const time = this.now + Math.max(0, first.target - flowClass.service) / rate;
    if (!Number.isFinite(time)) return;
    this.queue.push(time, () => {
      if (flowClass.version === version) this.#finish(flowClass);
    });
  }

  #finish(flowClass: FlowClass): void {
    this.#serve(flowClass);
    flowClass.nextTarget = -1;
    // The event was its first flow's: that one is done, even where the clock's last digit is longer than what is left.
    const done = [popPending(flowClass.pending)];
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
      flowClass.nextTarget = -1;
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
