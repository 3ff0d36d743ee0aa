// Works with bf16 as with any other dtype.
import { joinWorld } from "chorale";

const world = await joinWorld();
const x = world.tensor("bf16", [2, 2]).set([
  [1, 2],
  [3, 4],
]);
await world.comm.allReduce(x, { op: "max" });
const shift = world.tensor("bf16", [1]).fill(0.25);
await world.comm.allReduce(shift);
x.set(x.toArray().map((value) => value + shift.at(0)));
console.log(x);
console.log(`largest ${Math.max(...x.toArray())}, last ${x.at(-1, -1)}`);
await world.close();
