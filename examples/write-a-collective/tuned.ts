/**
 * Runs the ring by whatever `chorale tune ring.ts` found to be its fastest variant here, or as it is written.
 *   chorale launch -n 2 tuned.ts
 *   chorale launch -n 2 --backend cuda tuned.ts
 */
import type { World } from "chorale";
import ring from "./ring.ts";

export default async function main({ comm }: World) {
  const program = ring({ numRanks: comm.size });
  const input = new Float32Array(16_384).fill(comm.rank + 1);
  const output = new Float32Array(input.length);
  await comm.run(program, { input, output });
  const runs = Object.keys(comm.stats().choices ?? {}).filter((choice) => choice.startsWith("run "));
  if (comm.rank === 0) console.log(`sum ${output[0]}, ${runs.length === 0 ? "not tuned" : runs.join(", ")}`);
  return output[0];
}
