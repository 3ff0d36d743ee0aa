/** Rank 1 waits for what nothing will resolve, before it asks for its world; the others wait for it. */
import { joinWorld } from "../../../src/index.ts";

if (process.env["CHORALE_RANK"] === "1") await new Promise(() => {});
const world = await joinWorld();
await world.comm.barrier();
