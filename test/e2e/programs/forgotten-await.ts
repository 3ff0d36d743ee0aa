/** What a beginner writes: the result is read before the call was awaited. */
import type { World } from "chorale";

export default function run(world: World): void {
  const t = world.tensor("f32", [4]);
  t.data.fill(world.rank + 1);
  world.comm.allReduce(t);
}
