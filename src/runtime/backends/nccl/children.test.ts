/** Communicators that come from others, over the stand-in library. */
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";

const available = useFakeGpu();

describe.skipIf(!available)("communicators from others (needs a C++ compiler)", () => {
  it.each([true, false])("keeps nothing of splits without a color (blocking: %s)", async (blocking) => {
    const kept = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 30_000,
      backendOptions: { timeoutMs: 15_000, blocking },
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const { handles } = comm.parts.rank;
        const numMost: number[] = [];
        for (let i = 0; i < 5; i++) {
          const group = await comm.split(world.rank === i % 2 ? 0 : -1);
          numMost.push(handles.length);
          await comm.barrier();
          await group?.close();
        }
        for (let i = 0; i < 100 && handles.length > 0; i++) await new Promise((resolve) => setTimeout(resolve, 10));
        return [Math.max(...numMost) <= 1, handles.length];
      },
    });
    expect(kept).toEqual([
      [true, 0],
      [true, 0],
    ]);
  });
});
