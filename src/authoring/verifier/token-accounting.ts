/** Signals, waits and semaphores during an exploration: who may go on, and what one side learns of the other. */
import { joinClocks, type VectorClock, withSteps } from "../../core/internal.ts";
import type { SimpleOp } from "../plan/index.ts";
import type { Lanes } from "./proxy-lanes.ts";
import type { Proxies } from "./proxy-stalls.ts";
import {
  type Counter,
  type CounterTable,
  counterUse,
  type SignalEvent,
  type Snapshot,
  type WaitEvent,
} from "./signal-counters.ts";
import type { Hearsay, StrandState } from "./strand-state.ts";

/** How waits on contested counters are admitted. */
export type Policy =
  | { readonly kind: "greedy" }
  /** A wait passes when the counter reaches `needed(counter, strand, ordinal)`. */
  | { readonly kind: "pessimistic"; readonly needed: (counter: Counter, strand: number, ordinal: number) => number }
  /** At the i-th moment when only contested waits can go on, number choices[i] of them goes first. */
  | { readonly kind: "choices"; readonly contested: ReadonlySet<number>; readonly choices: readonly number[] };

/** One strand signals and one waits: the j-th wait belongs to the j-th signal. */
export function simple(counter: Counter): boolean {
  return counter.signallers.size <= 1 && counter.waiters.size <= 1;
}

export interface TokenParts {
  readonly table: CounterTable;
  readonly policy: Policy;
  /** For counters shared by several strands: signals that precede a wait, by `counter:strand:ordinal`. */
  readonly derived: ReadonlyMap<string, readonly string[]>;
  readonly lanes: Lanes;
  readonly hearsay: Hearsay;
  readonly proxies: Proxies;
  /** Signals and waits are done by one thread each and synchronise no other: MSCCL++'s executor. */
  readonly threadwise: boolean;
  readonly wake: (strand: StrandState) => void;
}

export class Tokens {
  readonly #in: TokenParts;
  readonly #count: Int32Array;
  readonly #taken: Int32Array;
  readonly signals = new Map<number, SignalEvent[]>();
  readonly waits = new Map<number, WaitEvent[]>();
  /** `counter:strand:ordinal` of each signal, in the order of `signals`. */
  readonly signalKeys = new Map<number, string[]>();
  /** Under `choices`: strands that wait for contested tokens. */
  readonly contestedReady = new Set<StrandState>();
  /** By counter, snapshots of signals by number, until they are taken. */
  readonly #snapshots: (Snapshot | undefined)[][];
  readonly #waiters = new Map<number, Set<StrandState>>();
  readonly #ordinals = new Map<string, number>();
  readonly #snapshotsByKey = new Map<string, Snapshot | undefined>();
  /**
   * By lane, segments that were over when a signal was raised that somebody waited for, relaxed or not. A relaxed wait
   * makes nothing visible to its strand, but it does not end before the proxy is done with what the signal stands behind.
   */
  arrived: VectorClock;

  constructor(parts: TokenParts) {
    this.#in = parts;
    const counters = parts.table.counters.length;
    this.#count = new Int32Array(counters);
    this.#taken = new Int32Array(counters);
    this.#snapshots = parts.table.counters.map(() => []);
  }

  #bump(kind: string, counter: Counter, strand: StrandState): number {
    const key = `${kind}${counter.id}:${strand.g}`;
    const ordinal = this.#ordinals.get(key) ?? 0;
    this.#ordinals.set(key, ordinal + 1);
    return ordinal;
  }

  /** Tokens that nobody has taken yet. */
  available(counter: Counter): number {
    return counter.initial + this.#count[counter.id]! - this.#taken[counter.id]!;
  }

  /** Raises the counters of a signal, a release, or a put that notifies. */
  raise(strand: StrandState, op: SimpleOp): void {
    const { lanes, hearsay } = this.#in;
    const { raise } = counterUse(this.#in.table, strand.rank, op);
    const relaxed = op.kind === "signal" && op.relaxed;
    const byProxy = (op.kind === "signal" || op.kind === "put") && op.channelKind === "port";
    const segmentEnded = strand.segment;
    const { threadwise } = this.#in;
    const snapshotOf = (thread: number): Snapshot | undefined => {
      if (relaxed) {
        if (byProxy) lanes.request(strand, thread);
        return undefined;
      }
      // Of a single thread only what came before the last block-wide synchronisation is sure, and what it heard itself.
      const clock = threadwise ? joinClocks(strand.clock, strand.heardByThread[thread]) : strand.clock;
      return {
        strand: strand.g,
        segments: threadwise ? strand.phaseStart : strand.segment + 1,
        base: byProxy ? lanes.behind(strand, clock, thread) : clock,
        known: strand.known,
        link: threadwise ? strand.base : hearsay.allLinks(strand),
      };
    };
    const snapshots = threadwise ? raise.map((_, thread) => snapshotOf(thread)) : [snapshotOf(0)];
    const reach = () => {
      for (const counter of raise) {
        this.#count[counter.id] = this.#count[counter.id]! + 1;
        for (const waiter of this.#waiters.get(counter.id) ?? []) this.#in.wake(waiter);
        this.#waiters.delete(counter.id);
      }
    };
    for (const [i, counter] of raise.entries()) {
      const snapshot = snapshots[threadwise ? i : 0];
      const list = this.#snapshots[counter.id]!;
      if (simple(counter)) list.push(snapshot ?? list.at(-1));
      else {
        const ordinal = this.#bump("s", counter, strand);
        const key = `${counter.id}:${strand.g}:${ordinal}`;
        this.#snapshotsByKey.set(key, snapshot);
        push(this.signals, counter.id, { strand: strand.g, segment: segmentEnded, clock: strand.clock, snapshot });
        push(this.signalKeys, counter.id, key);
      }
    }
    if (byProxy)
      this.#in.proxies.request(
        strand,
        raise.map(({ id }) => id),
        reach,
      );
    else reach();
    // Relaxed signals and notifying puts are no block-wide synchronisation, but what follows comes after them.
    if (relaxed || threadwise || op.kind === "put") strand.segment++;
    else hearsay.separate(strand);
  }

  /** Says whether a wait or acquire may go on. @param register the strand wants to be woken when it may */
  canTake(strand: StrandState, op: SimpleOp, register: boolean): boolean {
    const { take } = counterUse(this.#in.table, strand.rank, op);
    const { policy } = this.#in;
    const [only] = take;
    if (
      take.length === 1 &&
      only !== undefined &&
      simple(only) &&
      policy.kind === "greedy" &&
      this.available(only) >= 1
    )
      return true;
    const wanted = new Map<Counter, number>();
    for (const counter of take) wanted.set(counter, (wanted.get(counter) ?? 0) + 1);
    for (const [counter, number] of wanted) {
      let available = this.available(counter) >= number;
      if (policy.kind === "pessimistic" && counter.waiters.size > 1) {
        const ordinal = (this.#ordinals.get(`w${counter.id}:${strand.g}`) ?? 0) + number - 1;
        available = counter.initial + this.#count[counter.id]! >= policy.needed(counter, strand.g, ordinal);
      }
      if (available && register && policy.kind === "choices" && policy.contested.has(counter.id)) {
        const left = counter.totalWaits - this.#taken[counter.id]!;
        if (this.available(counter) < left) {
          this.contestedReady.add(strand);
          return false;
        }
      }
      if (!available) {
        if (register) {
          let waiters = this.#waiters.get(counter.id);
          if (waiters === undefined) {
            waiters = new Set();
            this.#waiters.set(counter.id, waiters);
          }
          waiters.add(strand);
          if (policy.kind === "choices") this.contestedReady.add(strand);
        }
        return false;
      }
    }
    return true;
  }

  /** Takes the tokens of a wait or acquire that may go on, and learns what their signals carry. */
  take(strand: StrandState, op: SimpleOp, chosen = false): void {
    const { take } = counterUse(this.#in.table, strand.rank, op);
    const relaxed = op.kind === "wait" && op.relaxed;
    const before = strand.clock;
    const segment = strand.segment;
    for (const [thread, counter] of take.entries()) {
      const ticket = this.#taken[counter.id]! + 1;
      this.#taken[counter.id] = ticket;
      if (simple(counter)) {
        const at = ticket - counter.initial - 1;
        const snapshots = this.#snapshots[counter.id]!;
        const snapshot = at >= 0 ? snapshots[at] : undefined;
        if (at > 0) snapshots[at - 1] = undefined;
        if (snapshot !== undefined) this.#arrive(snapshot);
        if (snapshot !== undefined && !relaxed) this.#acquire(strand, snapshot, thread);
      } else {
        const ordinal = this.#bump("w", counter, strand);
        push(this.waits, counter.id, { strand: strand.g, segment, ordinal, ticket, chosen, clock: before });
        for (const key of this.#in.derived.get(`${counter.id}:${strand.g}:${ordinal}`) ?? []) {
          const snapshot = this.#snapshotsByKey.get(key);
          if (snapshot === undefined) continue;
          this.#arrive(snapshot);
          if (!relaxed) this.#acquire(strand, snapshot, thread);
        }
      }
    }
    if (relaxed || this.#in.threadwise) strand.segment++;
    else this.#in.hearsay.separate(strand);
  }

  #arrive({ base }: Snapshot): void {
    // Only proxies are still at work when every strand has ended.
    if (this.#in.lanes.any) this.arrived = joinClocks(this.arrived, base);
  }

  #acquire(strand: StrandState, snapshot: Snapshot, thread: number): void {
    if (this.#in.threadwise) {
      const heard = joinClocks(strand.clock, strand.heardByThread[thread]);
      // No holes: the others have heard what the strand knows.
      while (strand.heardByThread.length <= thread) strand.heardByThread.push(strand.clock);
      strand.heardByThread[thread] = acquire(heard, snapshot);
      strand.unlearned.push({ known: snapshot.known, link: snapshot.link });
      return;
    }
    const { base, strand: from, segments } = snapshot;
    // What a proxy's signal carries is not what its strand knows.
    strand.clock = this.#in.lanes.any
      ? acquire(strand.clock, snapshot)
      : strand.listener.hear(strand.clock, base, from, segments);
    this.#in.hearsay.learn(strand, snapshot.known, snapshot.link);
  }

  /** The counter that keeps a wait or acquire from going on; undefined for other operations. */
  blockedOn(strand: StrandState, op: SimpleOp): Counter | undefined {
    const { take } = counterUse(this.#in.table, strand.rank, op);
    return take.find((counter) => this.available(counter) < 1) ?? take[0];
  }
}

function acquire(clock: VectorClock, { base, strand, segments }: Snapshot): VectorClock {
  return withSteps(joinClocks(clock, base), strand, segments);
}

function push<T>(map: Map<number, T[]>, key: number, item: T): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [item]);
  else list.push(item);
}
