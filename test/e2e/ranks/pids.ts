import type { World } from "chorale";

/** Says who it is, meets the others, and then does what it is told. */
export default async (world: World) => {
  console.log(`pid ${process.pid}`);
  await world.comm.barrier();
  console.log("met");
  const [mode] = world.args;
  if (mode === "return") return;
  if (mode === "loop") for (;;);
  // Rank 0 never comes: the others block in the wait, with no turn of the event loop.
  if (mode === "wait" && world.rank > 0) world.comm.barrier().wait();
  await new Promise(() => setInterval(() => {}, 1000));
};
