/** Prints from every rank, in pieces, on both streams. */
import { joinWorld, type World } from "chorale/world";
import { greeting } from "./lib.ts";

const world: World = await joinWorld();
const x = world.tensor("f32", [4]);
x.data.fill(world.rank + 1);
await world.comm.allReduce(x);
console.log(
  greeting(world.rank),
  "sum",
  x.data[3],
  "args",
  world.args.join(","),
  "argv",
  process.argv.slice(2).join(","),
);
for (let i = 0; i < 200; i++) process.stdout.write(i % 10 === 9 ? `${i}\n` : `${i} `);
console.error("to stderr");
process.stdout.write("no line end");
await world.close();
