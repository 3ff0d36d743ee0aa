/** At which step a piece of a schedule takes which way: what programs and times at a finite size are made of. */
import type { Network, NetworkRoute, Schedule, ScheduleTree } from "../certificate/index.ts";

const firstOf = (route: NetworkRoute): string => route[0] as string;
const lastOf = (route: NetworkRoute): string => route[route.length - 1] as string;

/** A route of a tree and the step at which a piece takes it, from 0. */
export interface Hop {
  readonly from: number;
  readonly to: number;
  readonly way: NetworkRoute;
  readonly up: boolean;
  readonly step: number;
}

/** The hops of a tree, in an order in which each can be done: up from the leaves, then down from the root. */
export function hopsOf(tree: ScheduleTree, rankOf: (id: string) => number): { hops: Hop[]; gathered: number } {
  const pairs = (routes: readonly NetworkRoute[] | undefined) =>
    (routes ?? []).map((way) => [rankOf(firstOf(way)), { to: rankOf(lastOf(way)), way }] as const);
  const parent = new Map(pairs(tree.up));
  // A rank sends up once its last child has; ranks are visited from the leaves by the number of children to come.
  const ready = new Map<number, number>();
  const pending = new Map<number, number>();
  for (const { to } of parent.values()) pending.set(to, (pending.get(to) ?? 0) + 1);
  const hops: Hop[] = [];
  const queue = [...parent.keys()].filter((rank) => !pending.has(rank));
  for (const from of queue) {
    const above = parent.get(from);
    if (above === undefined) continue;
    const { to, way } = above;
    const step = ready.get(from) ?? 0;
    hops.push({ from, to, way, up: true, step });
    ready.set(to, Math.max(ready.get(to) ?? 0, step + 1));
    const left = (pending.get(to) as number) - 1;
    pending.set(to, left);
    if (left === 0) queue.push(to);
  }
  const root = rankOf(tree.root);
  const gathered = ready.get(root) ?? 0;
  const children = new Map<number, { readonly to: number; readonly way: NetworkRoute }[]>();
  for (const [from, child] of pairs(tree.down)) children.set(from, [...(children.get(from) ?? []), child]);
  let level = [root];
  for (let step = gathered; level.length > 0; step++) {
    for (const from of level)
      for (const { to, way } of children.get(from) ?? []) hops.push({ from, to, way, up: false, step });
    level = level.flatMap((from) => (children.get(from) ?? []).map(({ to }) => to));
  }
  return { hops, gathered };
}

/** Hops of one piece of every tree or path; relays between two ranks count for paths. */
export function numHops(schedule: Schedule): number {
  return schedule.kind === "trees"
    ? schedule.trees.reduce((sum, { up = [], down = [] }) => sum + up.length + down.length, 0)
    : schedule.paths.reduce((sum, { route }) => sum + route.length - 1, 0);
}

/** Whether any data passes what is no rank: there, ways from one rank to several others share links. */
export function passesRelays(schedule: Schedule, network: Network): boolean {
  const relays = new Set(network.nodes.filter(({ kind }) => kind !== "rank").map(({ id }) => id));
  const passes = (route: NetworkRoute) => route.some((node) => relays.has(node));
  return schedule.kind === "trees"
    ? schedule.trees.some(({ up = [], down = [] }) => up.some(passes) || down.some(passes))
    : schedule.paths.some(({ route }) => passes(route));
}
