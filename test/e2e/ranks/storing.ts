/** Ranks that keep values in their world's store; one of them dies, and the others go on without it. */
import type { World } from "chorale";
import { storeOf } from "chorale/world";

export default async function run(first: World, { dying }: { dying: number }): Promise<unknown> {
  const store = storeOf(first);
  const ticket = await store.add("tickets");
  await store.barrier("drawn");
  if (first.rank === dying) {
    await store.set("last words", "step 17");
    throw new Error("this rank dies");
  }
  const told: string[] = [];
  // The one that dies never comes to it.
  await store.barrier("step", { timeoutMs: 10_000 }).catch((error: Error) => told.push(error.message));
  const world = await first.rebuild();
  await store.find("tickets").catch((error: Error) => told.push(error.name));
  const next = storeOf(world);
  await next.barrier("drawn");
  return [ticket > 0, told, await next.get("last words"), await next.find("tickets"), world.generation];
}
