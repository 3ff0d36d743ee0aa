/** A small seeded generator (mulberry32 by Tommy Ettinger, public domain), so that every run can be repeated. */
export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  /** An integer in [0, 2^32). */
  u32(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }
  /** A number in [0, 1). */
  fraction(): number {
    return this.u32() / 2 ** 32;
  }
  below(n: number): number {
    return this.u32() % n;
  }
  chance(p: number): boolean {
    return this.u32() < p * 4294967296;
  }
  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }
}
