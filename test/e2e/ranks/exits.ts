/** Rank 1 leaves with the code that is given; the others wait for it. */
import { joinWorld } from "chorale/world";

const world = await joinWorld();
await world.comm.barrier();
if (world.rank === 1) process.exit(Number(world.args[0]));
world.comm.barrier().wait();
