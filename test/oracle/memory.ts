/**
 * The oracle's memory: weakly ordered, as docs/semantics.md section 4 and 5 allow. Every place keeps the history of
 * what was written to it. An agent (a strand, or a proxy) has a view, the oldest entry of each place that it may still
 * read, and a store buffer, whose writes become visible to others in any order except on one place. A release empties
 * the buffer and hands the view on; an acquire takes it.
 */
import type { Random } from "./random.ts";

export type View = Map<number, number>;
interface Entry {
  readonly value: number;
  /** 0 for plain data; for packets 1 + the launch that wrote them. */
  readonly packet: number;
}
interface Buffered extends Entry {
  readonly place: number;
  readonly op: number;
}

export function joinInto(view: View, other: View | undefined): void {
  if (other === undefined) return;
  for (const [place, index] of other) if ((view.get(place) ?? 0) < index) view.set(place, index);
}

export class OracleMemory {
  readonly #history: Entry[][];
  readonly #random: Random;
  /** Reads that could have got another value: how much depended on timing in this run. */
  tension = 0;
  constructor(initial: readonly number[], random: Random) {
    this.#history = initial.map((value) => [{ value, packet: 0 }]);
    this.#random = random;
  }
  last(place: number): Entry {
    return this.#history[place]!.at(-1)!;
  }
  history(place: number): readonly Entry[] {
    return this.#history[place]!;
  }
  append(place: number, entry: Entry): number {
    this.#history[place]!.push(entry);
    return this.#history[place]!.length - 1;
  }
  get random(): Random {
    return this.#random;
  }
}

/** What a read of packets as plain data gives: nothing of use, but the same wherever the same packet lies. */
const undefinedRead = ({ value }: Entry): number => (value ^ 0x9e3779b9) >>> 0;

/** Someone who reads and writes: a strand or a proxy. */
export class Agent {
  readonly view: View = new Map();
  readonly buffer: Buffered[] = [];
  readonly #memory: OracleMemory;
  /** How likely a plain read is an old one, and how likely a write is visible at once. */
  readonly #stale: number;
  readonly #eager: number;
  constructor(memory: OracleMemory, stale: number, eager: number) {
    this.#memory = memory;
    this.#stale = stale;
    this.#eager = eager;
  }

  #own(place: number): Buffered | undefined {
    return this.buffer.findLast((entry) => entry.place === place);
  }

  /** Says whether a packet of a launch may be seen at a place. */
  seesPacket(place: number, packet: number): boolean {
    if (this.#own(place)?.packet === packet) return true;
    const history = this.#memory.history(place);
    for (let i = history.length - 1; i >= (this.view.get(place) ?? 0); i--)
      if (history[i]!.packet === packet) return true;
    return false;
  }

  read(place: number, packet: number): number {
    const { random } = this.#memory;
    const own = this.#own(place);
    if (own !== undefined) return own.packet === packet ? own.value : undefinedRead(own);
    const history = this.#memory.history(place);
    const from = this.view.get(place) ?? 0;
    if (from < history.length - 1) this.#memory.tension++;
    let index = history.length - 1;
    if (packet !== 0) {
      const seen: number[] = [];
      for (let i = from; i < history.length; i++) if (history[i]!.packet === packet) seen.push(i);
      if (seen.length === 0) return random.u32();
      index = random.pick(seen);
    } else if (index > from && random.chance(this.#stale)) index = from + random.below(index - from + 1);
    this.view.set(place, index);
    const entry = history[index]!;
    return entry.packet === packet ? entry.value : undefinedRead(entry);
  }

  /** What lies there, packet or not. */
  readRaw(place: number): Entry {
    const own = this.#own(place);
    if (own !== undefined) return own;
    const history = this.#memory.history(place);
    this.view.set(place, history.length - 1);
    return history.at(-1)!;
  }

  write(place: number, value: number, packet: number, op: number): void {
    this.buffer.push({ place, value, packet, op });
    if (this.#memory.random.chance(this.#eager)) this.drainOne(this.buffer.length - 1);
  }

  /** Makes one buffered write visible: the oldest to its place, when number `index` is not it. */
  drainOne(index: number): void {
    const wanted = this.buffer[index];
    if (wanted === undefined) return;
    const first = this.buffer.findIndex((entry) => entry.place === wanted.place);
    const [entry] = this.buffer.splice(first, 1);
    this.view.set(entry!.place, this.#memory.append(entry!.place, entry!));
  }

  drain(): void {
    while (this.buffer.length > 0) this.drainOne(0);
  }
}
