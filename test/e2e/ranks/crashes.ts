/** Rank 1 fails outside of any await that the launcher sees. */
import { joinWorld } from "chorale/world";

const world = await joinWorld();
await world.comm.barrier();
if (world.rank === 1) {
  if (world.args[0] === "rejection") void Promise.reject(new Error("unhandled"));
  else
    setTimeout(() => {
      throw new Error("in a timer");
    }, 1);
}
await world.comm.barrier();
