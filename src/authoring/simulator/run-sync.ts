/**
 * Signals, waits, semaphores and barriers of a run. A counter per channel and direction: a signal raises it when it is
 * visible at the receiver, a wait takes from it.
 */
import { type ChannelKind, channelOrdinal } from "../plan/index.ts";
import type { RunCore } from "./run-core.ts";
import type { Counter, Strand } from "./run-state.ts";

export class Synchronisation {
  readonly #core: RunCore;
  readonly #counters = new Map<string, Counter>();
  /** Counters by channel: of those that a rank signals, and of those it waits for. */
  readonly #ends: Readonly<Record<ChannelKind, readonly [Counter[][], Counter[][]]>>;
  readonly #barriers = new Map<string, Strand[]>();

  constructor(core: RunCore) {
    this.#core = core;
    const table = (): Counter[][] => core.plan.ranks.map(() => []);
    this.#ends = { memory: [table(), table()], port: [table(), table()] };
  }

  peers(strand: Strand, op: { readonly channelKind: ChannelKind; readonly channels: readonly number[] }): number[] {
    return op.channels.map((id) => this.#core.rankPlan(strand).channels[op.channelKind][id]!);
  }

  #counter(key: string, what: string, from: number, initial: number): Counter {
    let counter = this.#counters.get(key);
    if (counter === undefined) {
      counter = {
        what,
        from,
        arrived: initial,
        taken: 0,
        records: new Array<number>(initial).fill(-1),
        waiting: new Set(),
      };
      this.#counters.set(key, counter);
    }
    return counter;
  }

  channel(rank: number, kind: ChannelKind, id: number, out: boolean): Counter {
    const ends = this.#ends[kind][out ? 0 : 1][rank]!;
    let counter = ends[id];
    if (counter === undefined) {
      counter = this.#end(rank, kind, id, out);
      ends[id] = counter;
    }
    return counter;
  }

  /** The n-th channel to a peer meets that peer's n-th channel to this rank. */
  #end(rank: number, kind: ChannelKind, id: number, out: boolean): Counter {
    const peers = this.#core.plan.ranks[rank]!.channels[kind];
    const peer = peers[id]!;
    const [from, to] = out ? [rank, peer] : [peer, rank];
    return this.#counter(`${kind}${from}>${to}.${channelOrdinal(peers, id)}`, `a signal of rank ${from}`, from, 0);
  }

  semaphore(rank: number, id: number): Counter {
    return this.#counter(
      `s${rank}.${id}`,
      `semaphore ${id} of its rank`,
      rank,
      this.#core.plan.ranks[rank]!.semaphores[id]!.initialValue,
    );
  }

  arrive(counter: Counter, time: number, record: number): void {
    this.#core.net.at(time, () => {
      counter.arrived++;
      counter.records.push(record);
      const waiting = [...counter.waiting];
      counter.waiting.clear();
      for (const strand of waiting) this.#core.advance(strand);
    });
  }

  /** A signal over memory or a switch. It does not overtake what was stored before it, unless it is relaxed. */
  signal(strand: Strand, kind: ChannelKind, channels: readonly number[], relaxed: boolean, record: number): void {
    for (const id of channels) {
      const { latencyUs } = this.#core.machine.route(strand.rank, this.#core.rankPlan(strand).channels[kind][id]!);
      const at = strand.time + latencyUs;
      this.arrive(this.channel(strand.rank, kind, id, true), relaxed ? at : Math.max(at, strand.visibleAt), record);
    }
  }

  wait(strand: Strand, counters: readonly Counter[]): boolean {
    for (const counter of counters) {
      if (counter.arrived > counter.taken) continue;
      counter.waiting.add(strand);
      strand.waitingFor = { why: counter.what, ranks: [counter.from] };
      return false;
    }
    let cause = -1;
    for (const counter of counters) {
      const record = counter.records[counter.taken++] ?? -1;
      // Who came last held it up, if it was held up at all.
      if (record >= 0 && strand.time <= this.#core.net.now) cause = record;
    }
    strand.time += this.#core.costs.waitUs;
    this.#core.record(
      strand,
      cause,
      counters.map((counter) => counter.from),
      0,
    );
    return true;
  }

  barrier(strand: Strand, barrier: number, numStrands: number): boolean {
    const key = `${strand.rank} ${barrier}`;
    const waiting = this.#barriers.get(key) ?? [];
    waiting.push(strand);
    this.#barriers.set(key, waiting);
    if (waiting.length < numStrands) {
      strand.waitingFor = { why: `barrier ${barrier} of its rank`, ranks: [] };
      return false;
    }
    this.#barriers.delete(key);
    const time = Math.max(...waiting.map((member) => member.time)) + this.#core.costs.barrierUs;
    const last = waiting.reduce((a, b) => (b.time > a.time ? b : a));
    for (const member of waiting) {
      const cause = member === last ? -1 : last.lastRecord;
      member.time = time;
      if (member !== strand) this.#core.net.at(time, () => this.#core.finish(member, cause, [], 0));
    }
    this.#core.record(strand, strand === last ? -1 : last.lastRecord, [], 0);
    return true;
  }
}
