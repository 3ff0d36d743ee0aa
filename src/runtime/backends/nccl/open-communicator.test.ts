/** Communicators that come from others, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

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
        const numKept: number[] = [];
        for (let i = 0; i < 5; i++) {
          const group = await comm.split(world.rank === i % 2 ? 0 : -1);
          await comm.barrier();
          await group?.close();
          // NCCL may write to it until the parent is done, which the poller sees.
          for (let k = 0; k < 500 && handles.length > 0; k++) await new Promise((resolve) => setTimeout(resolve, 10));
          numKept.push(handles.length);
        }
        return numKept;
      },
    });
    expect(kept).toEqual(Array.from({ length: 2 }, () => [0, 0, 0, 0, 0]));
  });
});
