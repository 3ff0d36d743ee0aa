/** What stands in for buffers that peers cannot be told of. */
import { expect, it } from "vitest";
import type { Allocation, CudaStream, PeerMemory } from "../../device/index.ts";
import { StandIns } from "./stand-ins.ts";

function standIns() {
  const live = new Set<Allocation>();
  let address = 4096n;
  const pool = {
    allocate: (sizeBytes: number): Allocation => {
      address += BigInt(sizeBytes);
      const made = { address, sizeBytes, pendingUses: 0, exposures: 0 };
      live.add(made);
      return made;
    },
    free: (one: Allocation) => void live.delete(one),
  };
  const peers = { names: (at: bigint) => at === 7n, pool } as unknown as PeerMemory;
  // Nothing is captured here for the driver to refuse.
  const stream = { device: { relaxed: (body: () => unknown) => body() } } as CudaStream;
  return { held: new StandIns(peers, stream, { numTaken: 0, firstOpen: 1 }), live };
}

it("take the place of what peers cannot be told of, inputs and outputs apart", () => {
  const { held, live } = standIns();
  expect(held.of("input", 7, 100, false)).toBe(7);
  expect(live.size).toBe(0);
  const [input, output] = [held.of("input", 8, 100, false), held.of("output", 8, 100, false)];
  expect(input).not.toBe(output);
  expect(held.of("input", 9, 50, false)).toBe(input);
  const captured = [held.of("output", 8, 10, true), held.of("input", 8, 10, true)];
  const taken = held.takeCaptured();
  expect(taken.map((one) => Number(one.address)).sort()).toEqual(captured.sort());
  held.close();
  expect([...live]).toEqual(expect.arrayContaining([...taken]));
  expect(live.size).toBe(2);
});
