/** Ranks that share a state: with parts that differ on rank 1 when `differs`, else from wherever `progress` says. */
import type { World } from "chorale";
import { shareState } from "chorale/world";

export default async function run(world: World, { progress, differs }: { progress: number[]; differs: boolean }) {
  const { rank } = world;
  const weights = new Float64Array(differs && rank === 1 ? 4 : 3).fill(rank + 1);
  const moments = world.tensor("bf16", [5]);
  moments.data.fill(rank + 1);
  const before = await shareState(world, { weights, moments }, progress[rank] ?? 0);
  const again = await shareState(world, { weights, moments }, before.progress);
  return [before, again.behind, [...weights], [...moments.data]];
}
