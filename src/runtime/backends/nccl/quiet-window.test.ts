/** Closed groups of programs that never pause, over the stand-in library. */
import type { World } from "chorale";
import { describe, expect, it } from "vitest";
import { fakeGpuFolder, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
/** After so long the group is taken not to be freed, ms: several times what calls are held back for it. */
const MOST_MS = 40_000;

/** Closes a group and goes on with calls, one of which is always on its way. @returns whether the group was freed meanwhile */
async function closeAndGoOn(world: World, mostMs: number): Promise<boolean> {
  const comm = world.comm as import("./communicator.ts").NcclCommunicator;
  const { endings } = comm.parts.rank;
  const x = world.tensor("f32", [64]);
  const group = await comm.split(0);
  await group?.allReduce(x);
  await group?.close();
  let last = comm.allReduce(x);
  const start = performance.now();
  for (let i = 1; ; i++) {
    const next = comm.allReduce(x);
    await last;
    last = next;
    if (i % 200 !== 0) continue;
    // The ranks stop together.
    const isLate = performance.now() - start > mostMs;
    const numFreed = Float32Array.of(endings.numRetired === 0 || isLate ? 1 : 0);
    const agreed = comm.allReduce(numFreed);
    last = comm.allReduce(x);
    await agreed;
    if (numFreed[0] === world.size) break;
  }
  const freed = endings.numRetired === 0;
  await last;
  return freed;
}

describe.skipIf(!available)("closed groups of a program that never pauses (needs a C++ compiler)", () => {
  it.each(["thread", "process"] as const)("are freed, ranks as %s", { timeout: 90_000 }, async (isolation) => {
    const folder = fakeGpuFolder();
    try {
      const freed = await launch({
        ranks: 2,
        backend: "nccl",
        isolation,
        timeoutMs: 80_000,
        ...(isolation === "process" ? { env: { FAKE_GPU_FOLDER: folder.path } } : {}),
        data: MOST_MS,
        run: closeAndGoOn,
      });
      expect(freed).toEqual([true, true]);
    } finally {
      folder.remove();
    }
  });
});
