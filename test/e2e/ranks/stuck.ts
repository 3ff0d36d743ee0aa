/** Rank 0 throws; the others are blocked where no failure can reach them. */
import { joinWorld } from "chorale/world";

const world = await joinWorld();
await world.comm.barrier();
console.log("here");
if (world.rank === 0 && world.args[0] === "throw") {
  // The others may still be on their way out of the barrier, where the failure would reach them.
  await new Promise((resolve) => setTimeout(resolve, 300));
  throw new Error("first");
}
if (world.rank === 1) for (;;);
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
