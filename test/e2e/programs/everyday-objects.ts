/** Configuration and results as programs pass them around: not only what JSON can hold. */
import type { World } from "chorale";

export default async function run(world: World): Promise<void> {
  const settings = world.rank === 0 ? { epochs: 3, started: new Date(0), layers: new Map([["q", 4]]) } : undefined;
  const { epochs, started, layers } = await world.comm.broadcastObject(settings);
  const results = await world.comm.gatherObjects({ loss: Number.NaN, best: new Float32Array([world.rank]) });
  if (world.rank !== 1) return;
  const losses = results.map(({ loss }) => loss).join(" ");
  const best = results.map((result) => result.best[0]).join(" ");
  console.log(`${epochs} ${started.toISOString()} q=${layers.get("q")} losses ${losses} best ${best}`);
}
