/** Ranks of a world whose hosts come and go: they count each other, share their state, and end when they are as many as asked. */
import type { World } from "chorale";
import { shareState } from "chorale/world";

export default async function run(first: World, { until }: { until: number }): Promise<unknown> {
  let world = first;
  const counted = new Float64Array(1);
  let steps = 0;
  for (;;) {
    try {
      steps = (await shareState(world, { counted }, steps)).progress;
      for (let said = false; ; said = true) {
        const x = world.tensor("i32", [1]);
        x.data[0] = 1;
        await world.comm.allReduce(x);
        counted[0] = (counted[0] ?? 0) + (x.data[0] ?? 0);
        steps++;
        if (!said && world.rank === 0) console.log(`generation ${world.generation}: ${x.data[0]}`);
        if (x.data[0] === until) {
          await world.comm.barrier();
          return [world.rank, world.size, process.env["CHORALE_NODE_RANK"], steps, counted[0]];
        }
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    } catch (error) {
      if (!/RankFailedError|ClosedError/.test((error as Error).name)) throw error;
      world = await world.rebuild();
    }
  }
}
