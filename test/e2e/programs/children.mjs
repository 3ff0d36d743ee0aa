// Ranks that start programs: a data loader of a shell, one beside it, and a service that is to outlive the run.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { joinWorld } from "chorale";

const world = await joinWorld();
if (world.rank === 0) {
  const service = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
  console.log(`detached child ${service.pid}`);
}
const loader = spawn("/bin/sh", ["-c", "sleep 60 & echo $!; wait"], { stdio: ["ignore", "pipe", "ignore"] });
const [line] = await once(loader.stdout, "data");
if (world.rank === 0) console.log(`child ${loader.pid}`);
console.log(`child ${String(line).trim()}`);
await world.comm.barrier();
if (world.rank === 0) throw new Error("boom");
await world.comm.barrier();
