/** Ends itself before what it called is done, and before anybody could tell it so at the close of its world. */
import { joinWorld } from "chorale";

const world = await joinWorld();
const t = world.tensor("f32", [4]).fill(world.rank + 1);
world.comm.allReduce(t);
process.exit(0);
