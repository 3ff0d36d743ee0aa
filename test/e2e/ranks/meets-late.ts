import { joinWorld } from "chorale";

// Rank 1 comes 1.5 s late to a call that waits 6 s for it: while both are stopped, nobody is late.
const world = await joinWorld();
if (world.rank === 0) console.log("waits");
else await new Promise((resolve) => setTimeout(resolve, 1_500));
await world.comm.allReduce(new Float32Array(4), { timeoutMs: 6_000 });
console.log("met");
await world.close();
