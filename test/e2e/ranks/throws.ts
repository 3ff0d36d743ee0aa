/** Rank 1 throws while the others wait for it. */
import { joinWorld } from "chorale/world";
import { boom } from "./lib.ts";

const world = await joinWorld();
await world.comm.barrier();
const start = performance.now();
if (world.rank === 1) boom(world.rank);
try {
  await world.comm.barrier();
} catch (error) {
  const { name, rank, generation } = error as { name: string; rank: number; generation: number };
  console.log(`${name} rank=${rank} generation=${generation} afterMs=${Math.round(performance.now() - start)}`);
  throw error;
}
