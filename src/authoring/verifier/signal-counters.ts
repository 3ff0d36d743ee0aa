/**
 * Signals and semaphores as counters. A wait takes the next ticket of its counter and passes when the counter has
 * reached it; a semaphore is a counter that starts with tokens.
 *
 * Which signals surely came before a wait? With one signalling strand and one waiting strand, the first j for the j-th
 * wait. Otherwise `mustPrecede` decides by counting: signal s came before wait w (of ticket j at least) in every
 * interleaving if, were s and everything that comes after s missing, fewer than j tokens could exist. Everything that
 * itself comes after w cannot have helped and is not counted either.
 */
import { stepsKnown, type VectorClock } from "../../core/internal.ts";
import type { ChannelKind, ExecutionPlan, SimpleOp } from "../plan/index.ts";
import { type Geometry, iterationsOf } from "./cell-geometry.ts";

/** What a release carries: everything up to a segment of one strand, and what that strand had heard of. */
export interface Snapshot {
  readonly strand: number;
  readonly segments: number;
  readonly base: VectorClock;
  /** What was performed before (see `Past` in `access-log.ts`); absent in plans without packets. */
  readonly known: VectorClock;
  readonly link: number;
}

/** One executed signal (or release). */
export interface SignalEvent {
  readonly strand: number;
  /** Segment of the strand that the signal ends. */
  readonly segment: number;
  readonly clock: VectorClock;
  /** What a waiter learns; undefined when relaxed. */
  readonly snapshot: Snapshot | undefined;
}
/** One executed wait (or acquire). */
export interface WaitEvent {
  readonly strand: number;
  readonly segment: number;
  /** How many waits on this counter its strand had executed before. */
  readonly ordinal: number;
  readonly ticket: number;
  /** Under `choices`: it went on because it was chosen. One for which there was a token whoever came first has no fixed ticket. */
  readonly chosen: boolean;
  /** The clock before the wait. */
  readonly clock: VectorClock;
}

export interface Counter {
  readonly id: number;
  readonly kind: ChannelKind | "semaphore";
  /** Signalling and waiting rank; the same for semaphores. */
  readonly from: number;
  readonly to: number;
  /** The channel's (semaphore's) id at the signaller, and at the waiter (-1: the waiter has no such channel). */
  readonly fromId: number;
  readonly toId: number;
  readonly initial: number;
  readonly signallers: Set<number>;
  readonly waiters: Set<number>;
  totalSignals: number;
  totalWaits: number;
}

/** All counters of a plan, and which one a channel of a rank signals or waits on. */
export interface CounterTable {
  readonly counters: readonly Counter[];
  signalled(rank: number, kind: ChannelKind, channel: number): Counter;
  awaited(rank: number, kind: ChannelKind, channel: number): Counter;
  semaphore(rank: number, id: number): Counter;
}

export function counterTable(geometry: Geometry): CounterTable {
  const { plan } = geometry;
  const counters: Counter[] = [];
  const byPair = new Map<string, Counter>();
  const out: Record<ChannelKind, Counter[][]> = { memory: [], port: [] };
  const inn: Record<ChannelKind, Counter[][]> = { memory: [], port: [] };
  const make = (kind: Counter["kind"], from: number, to: number, fromId: number, toId: number, initial: number) => {
    const counter: Counter = {
      id: counters.length,
      kind,
      from,
      to,
      fromId,
      toId,
      initial,
      signallers: new Set(),
      waiters: new Set(),
      totalSignals: 0,
      totalWaits: 0,
    };
    counters.push(counter);
    return counter;
  };
  /** The id at `rank` of its k-th channel to `peer`, or -1. */
  const indexOf = new Map<string, number>();
  for (const kind of ["memory", "port"] as const) {
    for (const rank of plan.ranks) {
      const seen = new Map<number, number>();
      rank.channels[kind].forEach((peer, id) => {
        const ordinal = seen.get(peer) ?? 0;
        seen.set(peer, ordinal + 1);
        indexOf.set(`${kind} ${rank.rank} ${peer} ${ordinal}`, id);
      });
    }
    for (const rank of plan.ranks) {
      const seen = new Map<number, number>();
      const outgoing: Counter[] = [];
      const incoming: Counter[] = [];
      rank.channels[kind].forEach((peer, id) => {
        const ordinal = seen.get(peer) ?? 0;
        seen.set(peer, ordinal + 1);
        for (const [from, to, list] of [
          [rank.rank, peer, outgoing],
          [peer, rank.rank, incoming],
        ] as const) {
          const key = `${kind} ${from} ${to} ${ordinal}`;
          let counter = byPair.get(key);
          if (counter === undefined) {
            const other = indexOf.get(`${kind} ${peer} ${rank.rank} ${ordinal}`) ?? -1;
            counter = make(kind, from, to, list === outgoing ? id : other, list === outgoing ? other : id, 0);
            byPair.set(key, counter);
          }
          list.push(counter);
        }
      });
      out[kind].push(outgoing);
      inn[kind].push(incoming);
    }
  }
  const semaphores = plan.ranks.map((rank) =>
    rank.semaphores.map((semaphore, id) => make("semaphore", rank.rank, rank.rank, id, id, semaphore.initialValue)),
  );
  const table: CounterTable = {
    counters,
    signalled: (rank, kind, channel) => out[kind][rank]![channel]!,
    awaited: (rank, kind, channel) => inn[kind][rank]![channel]!,
    semaphore: (rank, id) => semaphores[rank]![id]!,
  };
  countTotals(plan, geometry, table);
  return table;
}

/** Counters an operation raises and takes from, in order. */
export function counterUse(
  table: CounterTable,
  rank: number,
  op: SimpleOp,
): { readonly raise: readonly Counter[]; readonly take: readonly Counter[] } {
  switch (op.kind) {
    case "signal":
      return { raise: op.channels.map((id) => table.signalled(rank, op.channelKind, id)), take: [] };
    case "wait":
      return { raise: [], take: op.channels.map((id) => table.awaited(rank, op.channelKind, id)) };
    case "put":
      return op.notify === "none"
        ? NONE
        : { raise: op.channels.map((id) => table.signalled(rank, op.channelKind, id)), take: [] };
    case "release":
      return { raise: op.semaphores.map((id) => table.semaphore(rank, id)), take: [] };
    case "acquire":
      return { raise: [], take: op.semaphores.map((id) => table.semaphore(rank, id)) };
    default:
      return NONE;
  }
}
const NONE = { raise: [], take: [] } as const;

function countTotals(plan: ExecutionPlan, geometry: Geometry, table: CounterTable): void {
  for (const rank of plan.ranks) {
    rank.strands.forEach((strand, index) => {
      const g = geometry.strandBase[rank.rank]! + index;
      const count = (op: SimpleOp, times: number) => {
        const { raise, take } = counterUse(table, rank.rank, op);
        for (const counter of raise) {
          counter.totalSignals += times;
          if (times > 0) counter.signallers.add(g);
        }
        for (const counter of take) {
          counter.totalWaits += times;
          if (times > 0) counter.waiters.add(g);
        }
      };
      for (const op of strand.ops) {
        if (op.kind === "pipeline") {
          const times = iterationsOf(op, geometry) * geometry.launches;
          for (const inner of op.body) count(inner, times);
        } else count(op, geometry.launches);
      }
    });
  }
}

/** Says whether event a (a signal or wait that ends a segment) comes before an event with `clock` on `strand`. */
function before(
  a: { strand: number; segment: number },
  b: { strand: number; segment: number; clock: VectorClock },
): boolean {
  return a.strand === b.strand ? a.segment < b.segment : stepsKnown(b.clock, a.strand) > a.segment;
}

/** Counters with more events than this get no derived order (fewer orderings: never unsound). */
const MAX_COUNTED_EVENTS = 3000;

/**
 * The signals that precede each wait in every interleaving, for a counter that several strands share.
 * @param fixed whose tickets are the same in every interleaving: of one waiting strand `all`, in one order of rivals those that were
 * `chosen`; of any other wait only those that surely came before it are counted
 * @returns for each wait (in the order given) indices in `signals`
 */
export function mustPrecede(
  initial: number,
  signals: readonly SignalEvent[],
  waits: readonly WaitEvent[],
  fixed: "all" | "chosen" | "none",
): readonly (readonly number[])[] {
  if (signals.length * Math.max(1, waits.length) > MAX_COUNTED_EVENTS * 100 || signals.length > MAX_COUNTED_EVENTS) {
    return waits.map(() => []);
  }
  // Row by row: which signals are the row's own or come after it.
  const n = signals.length;
  const gone = new Uint8Array(n * n);
  for (let row = 0; row < n; row++)
    for (let other = 0; other < n; other++)
      if (other === row || before(signals[row]!, signals[other]!)) gone[row * n + other] = 1;
  return waits.map((wait) => {
    const ticket =
      fixed === "all" || (fixed === "chosen" && wait.chosen)
        ? wait.ticket
        : 1 + waits.filter((other) => other !== wait && before(other, wait)).length;
    if (ticket <= initial) return [];
    const possible: number[] = [];
    for (let i = 0; i < n; i++) if (!before(wait, signals[i]!)) possible.push(i);
    const result: number[] = [];
    for (let row = 0; row < n; row++) {
      let without = 0;
      for (const other of possible) if (gone[row * n + other] === 0) without++;
      if (initial + without < ticket) result.push(row);
    }
    return result;
  });
}

/** Says whether every two waits are ordered, so that each always gets the same ticket. */
export function areOrdered(waits: readonly WaitEvent[]): boolean {
  for (let i = 1; i < waits.length; i++) if (!before(waits[i - 1]!, waits[i]!)) return false;
  return true;
}

/** How many of `waits` come after `wait` for certain. */
export function laterWaits(wait: WaitEvent, waits: readonly WaitEvent[]): number {
  return waits.filter((other) => other !== wait && before(wait, other)).length;
}
