/** Carries messages between ranks of one test in a random order, and copies each when it is delivered. */
import { expect } from "vitest";
import type { Carrier } from "../../src/runtime/hosts/index.ts";
import type { Random } from "../oracle/random.ts";

export class MessageExchange {
  readonly #random: Random;
  readonly #posts = new Map<string, { into: Uint8Array; done: () => void }>();
  readonly #sent: { key: string; payload: Uint8Array; done: () => void }[] = [];
  numMessages = 0;
  bytes = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  of(rank: number): Carrier {
    return {
      send: (to, slot, payload, _extra, done) => void this.#sent.push({ key: `${rank} ${to} ${slot}`, payload, done }),
      receive: (from, slot, into, _extra, done) => {
        const key = `${from} ${rank} ${slot}`;
        expect(this.#posts.has(key), `two receives of message ${key}`).toBe(false);
        this.#posts.set(key, { into, done });
      },
    };
  }

  /** Delivers one message that is waited for. @returns whether there was one */
  step(): boolean {
    const ready = this.#sent.filter(({ key }) => this.#posts.has(key));
    const chosen = ready[this.#random.below(Math.max(1, ready.length))];
    if (chosen === undefined) return false;
    this.#sent.splice(this.#sent.indexOf(chosen), 1);
    const post = this.#posts.get(chosen.key);
    this.#posts.delete(chosen.key);
    expect(post?.into.length, `size of message ${chosen.key}`).toBe(chosen.payload.length);
    post?.into.set(chosen.payload);
    this.numMessages++;
    this.bytes += chosen.payload.length;
    chosen.done();
    post?.done();
    return true;
  }

  get left(): number {
    return this.#sent.length + this.#posts.size;
  }
}
