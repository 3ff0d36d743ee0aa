/** What each rank of hosts.mjs does: seeded random collectives with checked results until the world has failed, or long enough. */

import { manyDrawsOf, say } from "./draws-and-waits.mjs";

function check(data, expected, what) {
  const at = data.findIndex((value) => value !== expected);
  if (at >= 0) throw new Error(`WRONG: ${what}: element ${at} is ${data[at]}, not ${expected}`);
}

async function callOnce(world, draw) {
  const { comm, rank, size } = world;
  const count = 1 + Math.floor(2 ** (draw() * 15));
  const total = (size * (size + 1)) / 2;
  const kind = Math.floor(draw() * 4);
  const root = Math.floor(draw() * size);
  const x = world.tensor("i32", [count]);
  x.data.fill(rank + 1);
  if (kind === 0) {
    await comm.allReduce(x);
    check(x.data, total, `all_reduce of ${count}`);
  } else if (kind === 1) {
    await comm.broadcast(x, { root });
    check(x.data, root + 1, `broadcast of ${count} from ${root}`);
  } else if (kind === 2) {
    await comm.reduce(x, { root });
    if (rank === root) check(x.data, total, `reduce of ${count} to ${root}`);
  } else await comm.barrier();
}

export default async function run(world, _data) {
  const [seed, steps, mode] = world.args;
  let now = world;
  for (;;) {
    const draw = manyDrawsOf(Number(seed) + now.generation);
    try {
      say({
        kind: "ready",
        rank: now.rank,
        size: now.size,
        generation: now.generation,
        at: Date.now(),
        pid: process.pid,
      });
      let saidAt = Date.now();
      // The world after a failure proves itself and ends.
      for (let step = 0; now.generation === 1 || step < Number(steps); step++) {
        await callOnce(now, draw);
        if (Date.now() - saidAt < 500) continue;
        saidAt = Date.now();
        say({ kind: "step", rank: now.rank, generation: now.generation, at: saidAt });
      }
      say({ kind: "finished", rank: now.rank, size: now.size, generation: now.generation });
      return;
    } catch (error) {
      say({ kind: "told", rank: now.rank, at: Date.now(), code: error.code, dead: error.rank, message: error.message });
      if (mode !== "shrink") throw error;
      now = await now.rebuild();
    }
  }
}
