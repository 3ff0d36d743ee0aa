/** Signals and semaphores (docs/semantics.md, section 6): a counter each, with what its raisers had seen. */
import type { ChannelKind, ExecutionPlan } from "../../src/authoring/plan/execution-plan.ts";
import type { View } from "./memory.ts";

export interface Counter {
  count: number;
  taken: number;
  readonly initial: number;
  readonly views: (View | undefined)[];
}

export class Counters {
  readonly #plan: ExecutionPlan;
  readonly #counters = new Map<string, Counter>();
  readonly #byChannel = new Map<number, Counter>();
  constructor(plan: ExecutionPlan) {
    this.#plan = plan;
  }

  #counter(key: string, initial = 0): Counter {
    let counter = this.#counters.get(key);
    if (counter === undefined) {
      counter = { count: 0, taken: 0, initial, views: [] };
      this.#counters.set(key, counter);
    }
    return counter;
  }

  /** The counter of a channel, from `rank` to its peer (`out`) or from the peer to `rank`. */
  channel(rank: number, kind: ChannelKind, id: number, out: boolean): Counter {
    const place = ((rank * 256 + id) * 2 + (kind === "port" ? 1 : 0)) * 2 + (out ? 1 : 0);
    const known = this.#byChannel.get(place);
    if (known !== undefined) return known;
    const peers = this.#plan.ranks[rank]!.channels[kind];
    const peer = peers[id]!;
    const ordinal = peers.slice(0, id).filter((other) => other === peer).length;
    const counter = this.#counter(out ? `${kind} ${rank}>${peer} ${ordinal}` : `${kind} ${peer}>${rank} ${ordinal}`);
    this.#byChannel.set(place, counter);
    return counter;
  }

  semaphore(rank: number, id: number): Counter {
    return this.#counter(`semaphore ${rank} ${id}`, this.#plan.ranks[rank]!.semaphores[id]!.initialValue);
  }

  /** A counter that was not raised as often as it was taken, in words. */
  unequal(): string | undefined {
    for (const [key, counter] of this.#counters) {
      if (counter.count !== counter.taken) return `${key}: raised ${counter.count} times, taken ${counter.taken} times`;
    }
    return undefined;
  }
}
