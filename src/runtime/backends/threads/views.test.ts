import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { attachThreads, createThreadsHost } from "./index.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Runs the collector and the finalizers that it queues, which come late on a busy machine: until `isDone`, or 100 times. */
async function settle(isDone = () => false, most = 100): Promise<void> {
  for (let i = 0; i < most && !isDone(); i++) {
    collectGarbage();
    await setImmediate();
  }
}

it("keeps the memory of a tensor of which only the elements are still held, and frees it after", async () => {
  await using backend = attachThreads(createThreadsHost({ ranks: 1, generation: 1 }), 0);
  const used = () => backend.world.stats().memory.usedBytes;
  const before = used();
  let views: Float32Array[] | undefined = Array.from({ length: 50 }, (_, i) =>
    backend.tensor("f32", [1000]).data.fill(i + 1),
  );
  await settle(undefined, 5);
  // Memory that was given back would come again here.
  for (let i = 0; i < 50; i++) backend.tensor("f32", [1000]).data.fill(-1);
  expect(views.map((view) => view.every((value) => value === view[0]) && view[0])).toEqual(
    Array.from({ length: 50 }, (_, i) => i + 1),
  );
  views = undefined;
  await settle(() => used() === before);
  expect(used()).toBe(before);
});
