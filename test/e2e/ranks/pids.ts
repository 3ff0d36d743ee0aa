import type { World } from "chorale";

/** Says who it is, meets the others, and then does what it is told. */
export default async (world: World) => {
  console.log(`pid ${process.pid}`);
  const [mode] = world.args;
  // A child that holds none of the launcher's pipes, and does not look whether its parent lives.
  if (mode === "children") {
    const { spawn } = await import("node:child_process");
    console.log(`child ${spawn("sleep", ["120"], { stdio: "ignore" }).pid}`);
  }
  await world.comm.barrier();
  console.log("met");
  if (mode === "return") return;
  if (mode === "loop") for (;;);
  // Rank 0 never comes: the others block in the wait, with no turn of the event loop.
  if (mode === "wait" && world.rank > 0) world.comm.barrier().wait();
  await new Promise(() => setInterval(() => {}, 1000));
};
