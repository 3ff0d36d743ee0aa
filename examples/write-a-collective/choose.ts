/**
 * The ring in a program: run as what it is, named for one call, and left to a table that says which sizes it serves.
 *   chorale launch -n 2 choose.ts
 */
import type { World } from "chorale";
import { registerAlgorithm } from "chorale/executor";
import ring from "./ring.ts";

export default async function main(world: World) {
  const { comm } = world;
  const ones = () => world.tensor("f32", [4096]).fill(1);
  // As what it is. Every rank makes the same program.
  const summed = await comm.run(ring({ numRanks: comm.size }), { input: ones(), output: ones() });
  // By a name, with which calls of allReduce can ask for it, and tables of choices (see choices.test.ts).
  registerAlgorithm({ name: "my-ring", collective: "all_reduce", make: ({ numRanks }) => ring({ numRanks }) });
  const named = ones();
  await comm.allReduce(named, { algorithm: "my-ring" });
  // By size: what serves this call is up to the tables.
  const chosen = ones();
  await comm.allReduce(chosen);
  const { choices } = comm.stats();
  if (comm.rank === 0)
    console.log(`sums ${summed?.at(0)}, ${named.at(0)}, ${chosen.at(0)}; ${JSON.stringify(choices)}`);
  return choices;
}
