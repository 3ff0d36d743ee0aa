/**
 * Proxies that are held up. The signal of a put comes after all that its strand had done, and no block-wide
 * synchronisation need stand between: the threads of a strand that wait for packets at some positions may have issued the
 * put at others. Until those packets are there the proxy cannot raise the signal, and it does nothing else meanwhile: the
 * requests that other strands of the rank issue now have to wait too.
 *
 * One run decides about this as well, the worst one: in it, a request comes behind every such stall of another strand
 * of its rank that may be reached before it is issued. In any run fewer requests are held up; where this one ends, all
 * do. Where it does not, some request can only go on if its strand was quick, and the plan is refused.
 */
import { stepsKnown, type VectorClock } from "../../core/internal.ts";
import { bodyOf, type ExecutionPlan, type SimpleOp } from "../plan/index.ts";
import type { Geometry } from "./cell-geometry.ts";
import { overtaken } from "./packet-lookahead.ts";
import type { StrandState } from "./strand-state.ts";

/** What a strand knew when it had passed a stall. */
export interface StallEvent {
  readonly clock: VectorClock;
  readonly known: VectorClock;
}
/** By strand, the stalls that it passed, in order. */
export type Stalls = ReadonlyMap<number, readonly StallEvent[]>;

interface Held {
  readonly strand: StrandState;
  /** What the request does once the proxy gets to it. */
  readonly effect: () => void;
  /** Of which counters it is the signal. */
  readonly counters: readonly number[];
  /** By strand, stalls that come before it. */
  readonly behind: ReadonlyMap<number, number>;
}

const isRequest = (op: SimpleOp) => (op.kind === "put" || op.kind === "signal") && op.channelKind === "port";

/** Numbers (`Geometry.opBase`) of the operations that wait for packets while a put behind them may be issued already. */
function stallingOps(plan: ExecutionPlan, opBase: Geometry["opBase"]): Set<number> {
  const stalling: number[] = [];
  let g = 0;
  for (const rank of plan.ranks) {
    const asks = rank.strands.map((strand) => strand.ops.some((op) => bodyOf(op).some(isRequest)));
    const many = asks.filter(Boolean).length > 1;
    for (const [s, strand] of rank.strands.entries()) {
      const first = opBase[g++]!;
      if (many && asks[s])
        stalling.push(
          ...overtaken(
            strand.ops,
            first,
            (op) => op.kind === "put" && op.channelKind === "port" && op.notify !== "none",
          ),
        );
    }
  }
  return new Set(stalling);
}

export class Proxies {
  readonly #stalling: ReadonlySet<number>;
  readonly #geometry: Geometry;
  readonly #wake: (strand: StrandState) => void;
  readonly #events = new Map<number, StallEvent[]>();
  /** From an earlier run; absent where proxies are never held up. */
  readonly #stalls: Stalls | undefined;
  #held: Held[] = [];
  readonly #blocked = new Set<StrandState>();

  constructor(geometry: Geometry, wake: (strand: StrandState) => void, stalls: Stalls | undefined) {
    this.#geometry = geometry;
    this.#wake = wake;
    this.#stalls = stalls;
    this.#stalling = stallingOps(geometry.plan, geometry.opBase);
  }

  /** The stalls that strands passed in this run. */
  get stalls(): Stalls {
    return this.#events;
  }

  /** A strand has done operation `id`. */
  passed(strand: StrandState, id: number): void {
    if (!this.#stalling.has(id)) return;
    const events = this.#events.get(strand.g) ?? [];
    events.push({ clock: strand.clock, known: strand.known });
    this.#events.set(strand.g, events);
    if (this.#stalls === undefined) return;
    const held = this.#held;
    this.#held = [];
    for (const request of held) {
      if (this.#isHeld(request.behind)) this.#held.push(request);
      else request.effect();
    }
    for (const blocked of this.#blocked) this.#wake(blocked);
    this.#blocked.clear();
  }

  #isHeld(behind: ReadonlyMap<number, number>): boolean {
    for (const [g, count] of behind) if ((this.#events.get(g)?.length ?? 0) < count) return true;
    return false;
  }

  /** The stalls of other strands that a request issued now may have to wait for. */
  #behind(strand: StrandState): Map<number, number> {
    const behind = new Map<number, number>();
    const { strandBase } = this.#geometry;
    for (let g = strandBase[strand.rank]!; g < strandBase[strand.rank + 1]!; g++) {
      const events = g === strand.g ? undefined : this.#stalls?.get(g);
      if (events === undefined) continue;
      // Who surely comes after the request cannot hold it up.
      const after = events.findIndex(
        ({ clock, known }) =>
          stepsKnown(clock, strand.g) > strand.segment || stepsKnown(known, strand.g) > strand.segment,
      );
      if (after !== 0) behind.set(g, after < 0 ? events.length : after);
    }
    return behind;
  }

  /** Does what a request does, now or when the proxy gets to it. */
  request(strand: StrandState, counters: readonly number[], effect: () => void): void {
    const behind = this.#stalls === undefined ? undefined : this.#behind(strand);
    if (behind === undefined || !this.#isHeld(behind)) effect();
    else this.#held.push({ strand, effect, counters, behind });
  }

  /** Says whether an operation may run that ends only when the proxy has done what it asks for. */
  mayRun(strand: StrandState, op: SimpleOp): boolean {
    if (this.#stalls === undefined) return true;
    if (op.kind === "flush") {
      if (!this.#held.some((request) => request.strand === strand)) return true;
    } else {
      const waits = op.kind === "put" && op.channelKind === "port";
      // Packets are not held back one by one: the strand waits for the proxy instead.
      if (!waits || (op.notify !== "signal-flush" && op.format === "plain")) return true;
      if (!this.#isHeld(this.#behind(strand))) return true;
    }
    this.#blocked.add(strand);
    return false;
  }

  /** Strands whose stalls keep a strand from going on, where the proxy is what it waits for. */
  holding(strand: StrandState): number[] | undefined {
    if (!this.#blocked.has(strand)) return undefined;
    const own = this.#held.filter((request) => request.strand === strand).map(({ behind }) => behind);
    return this.#open([...own, this.#behind(strand)]);
  }

  /** Strands whose stalls keep signals of a counter from being raised. */
  holdingCounter(counter: number): number[] {
    return this.#open(this.#held.filter(({ counters }) => counters.includes(counter)).map(({ behind }) => behind));
  }

  #open(lists: readonly ReadonlyMap<number, number>[]): number[] {
    const open = new Set<number>();
    for (const behind of lists)
      for (const [g, count] of behind) if ((this.#events.get(g)?.length ?? 0) < count) open.add(g);
    return [...open];
  }
}
