/** Deadlines of calls that are pending together, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";

const available = useFakeGpu();

describe.skipIf(!available)("deadlines of pending calls (needs a C++ compiler)", () => {
  const places = [
    ["on the stream", "allReduce", undefined, 300],
    ["held back", "recv", undefined, 300],
    // The group's own deadline, 5000 ms, which forming it has to meet as well, behind a call that has more time.
    ["behind one with a longer deadline", "allReduce", 60_000, undefined],
  ] as const;
  it.each(spread(places, 2))("ends a call at its own deadline behind another: %s", async (_, op, first, second) => {
    const [found] = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 60_000,
      backendOptions: { timeoutMs: first === undefined ? 15_000 : 5000 },
      data: { op, first, second, ended: new Int32Array(new SharedArrayBuffer(4)) },
      run: async (world, { op, first, second, ended }) => {
        const group = await world.comm.split(0);
        const [x, y] = [world.tensor("f32", [4]), world.tensor("f32", [4])];
        await group?.allReduce(x);
        await group?.allReduce(y);
        if (world.rank === 1) {
          while (Atomics.load(ended, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 5));
          return undefined;
        }
        const make = (tensor: typeof x, timeoutMs: number | undefined) => {
          const given = timeoutMs === undefined ? {} : { timeoutMs };
          return op === "recv" ? group?.recv(tensor, 1, given) : group?.allReduce(tensor, given);
        };
        const start = performance.now();
        const works = [make(x, first), make(y, second)];
        const codes: unknown[] = [];
        for (const work of works) await work?.then(undefined, (error) => codes.push([error.code, error.timeoutMs]));
        const tookMs = performance.now() - start;
        Atomics.store(ended, 0, 1);
        return { codes, tookMs };
      },
    });
    const timeoutMs = second ?? 5000;
    expect(found?.codes).toEqual(Array(2).fill(["TIMEOUT", timeoutMs]));
    expect(found?.tookMs).toBeGreaterThanOrEqual(timeoutMs);
    expect(found?.tookMs).toBeLessThan(25_000);
  });
});
