/** Ranks that keep values in their world's store; rank 1 dies, and the others go on without it. */
import type { World } from "chorale";
import { storeOf } from "chorale/world";

export default async function run(first: World): Promise<unknown> {
  const store = storeOf(first);
  const ticket = await store.add("tickets");
  await store.barrier("drawn");
  if (first.rank === 1) {
    await store.set("last words", "step 17");
    throw new Error("this rank dies");
  }
  const told: string[] = [];
  // Rank 1 never comes to it.
  await store.barrier("step", { timeoutMs: 10_000 }).catch((error: Error) => told.push(error.message));
  const world = await first.rebuild();
  await store.find("tickets").catch((error: Error) => told.push(error.name));
  const next = storeOf(world);
  await next.barrier("drawn");
  return [ticket > 0, told, await next.get("last words"), await next.find("tickets"), world.generation];
}
