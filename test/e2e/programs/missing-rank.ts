/** Three ranks wait for rank 2, which is busy with something else. */
import type { World } from "chorale";

export default async function run(world: World): Promise<void> {
  await world.comm.barrier();
  if (world.rank === 2) await new Promise((resolve) => setTimeout(resolve, 60_000));
  await world.comm.allReduce(new Float32Array([1]));
}
