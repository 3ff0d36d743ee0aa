/**
 * What plans do first to meet. The ranks have met when a plan is launched: a signal before any data says nothing new, and
 * the wait for it is over. Left out are signals and waits at the beginning of strands that match each other exactly, which
 * is what remains of a run that executes them before everything else.
 */
import {
  type ChannelKind,
  channelOrdinal,
  type ExecutionPlan,
  type Op,
  type RankPlan,
} from "../../../authoring/plan/index.ts";

/** Counters by rank and number; a rank's own are those that it waits for. */
export interface CounterRef {
  readonly rank: number;
  readonly counter: number;
}

/** A rank's number of the counter of one of its channels: memory channels first, then port channels. */
export function counterOf(rank: RankPlan, kind: ChannelKind, id: number): number {
  return kind === "memory" ? id : rank.channels.memory.length + id;
}

/** The counters at the other ends of a rank's channels: the k-th to a rank pairs with its k-th to this one. */
export function pairedCounters(
  plan: ExecutionPlan,
  rank: RankPlan,
  kind: ChannelKind,
  ids: readonly number[],
): CounterRef[] {
  const peers = rank.channels[kind];
  return ids.flatMap((id) => {
    const peer = plan.ranks[peers[id] ?? -1];
    if (peer === undefined) return [];
    const wanted = channelOrdinal(peers, id);
    let seen = 0;
    const at = peer.channels[kind].findIndex((back) => back === rank.rank && seen++ === wanted);
    // A channel that the peer has no end of: nobody can wait for it.
    return at < 0 ? [] : [{ rank: peer.rank, counter: counterOf(peer, kind, at) }];
  });
}

/** By rank and strand: how many operations at its beginning are done when the ranks have met. */
export function leadingSync(plan: ExecutionPlan): readonly (readonly number[])[] {
  /** Counters whose leading signals somebody waits for later: those stay. */
  const kept = new Set<string>();
  for (;;) {
    const { done, raised } = runLeading(plan, kept);
    const left = [...raised].filter(([, times]) => times > 0).map(([key]) => key);
    if (left.length === 0) return done;
    for (const key of left) kept.add(key);
  }
}

function runLeading(plan: ExecutionPlan, kept: ReadonlySet<string>) {
  const raised = new Map<string, number>();
  const done = plan.ranks.map(({ strands }) => strands.map(() => 0));
  const step = (rank: RankPlan, op: Op | undefined): boolean => {
    if (op?.kind === "nop" || op?.kind === "flush") return true;
    if (op?.kind !== "signal" && op?.kind !== "wait") return false;
    const refs =
      op.kind === "signal"
        ? pairedCounters(plan, rank, op.channelKind, op.channels)
        : op.channels.map((id) => ({ rank: rank.rank, counter: counterOf(rank, op.channelKind, id) }));
    const times = new Map<string, number>();
    for (const ref of refs) {
      const key = `${ref.rank} ${ref.counter}`;
      times.set(key, (times.get(key) ?? 0) + 1);
    }
    const isPossible = [...times].every(
      ([key, count]) => !kept.has(key) && (op.kind === "signal" || (raised.get(key) ?? 0) >= count),
    );
    if (!isPossible) return false;
    for (const [key, count] of times) raised.set(key, (raised.get(key) ?? 0) + (op.kind === "signal" ? count : -count));
    return true;
  };
  for (let moved = true; moved; ) {
    moved = false;
    for (const [r, rank] of plan.ranks.entries()) {
      const own = done[r] as number[];
      for (const [s, { ops }] of rank.strands.entries()) {
        while (step(rank, ops[own[s] as number])) {
          own[s] = (own[s] as number) + 1;
          moved = true;
        }
      }
    }
  }
  return { done, raised };
}
