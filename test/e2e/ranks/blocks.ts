/** One rank's thread waits in a system call, from which nothing but the process's end gets it back. */
import { readFileSync } from "node:fs";
import type { World } from "chorale";

export default async function run(world: World): Promise<void> {
  if (world.rank === 1) {
    console.log("rank 1 blocks");
    readFileSync(world.args[0] ?? "");
  }
  await world.comm.barrier();
}
