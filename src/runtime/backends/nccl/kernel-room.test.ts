import { expect, it } from "vitest";
import { KernelRoom } from "./kernel-room.ts";

it("has room for kernels that fit wherever their blocks go, and for no others", () => {
  const fits = (...demands: readonly (readonly [blocks: number, share: number])[]) => {
    const room = new KernelRoom(132);
    try {
      for (const [blocks, share] of demands) room.take({}, { blocks, share });
      return true;
    } catch {
      return false;
    }
  };
  // Alone: as many as there are places.
  expect([fits([132, 1]), fits([133, 1]), fits([264, 0.5])]).toEqual([true, false, true]);
  // Each block may be alone on a multiprocessor, of which there are enough.
  expect([fits([8, 1], [124, 1]), fits([8, 1], [125, 0.25])]).toEqual([true, false]);
  // By what they take together.
  expect([fits([128, 0.25], [64, 0.5]), fits([128, 0.5], [64, 0.5])]).toEqual([true, false]);
});
