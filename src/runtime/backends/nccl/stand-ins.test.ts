/** How much memory stands in for buffers that peers cannot be told of, and for how long. */
import { expect, it } from "vitest";
import type { Allocation, CudaStream, PeerMemory } from "../../device/index.ts";
import { StandIns } from "./stand-ins.ts";

const stream = {} as CudaStream;

function standIns() {
  const live = new Set<Allocation>();
  let address = 4096n;
  const pool = {
    allocate: (sizeBytes: number, on: CudaStream): Allocation => {
      expect(on).toBe(stream);
      address += BigInt(sizeBytes);
      const made = { address, sizeBytes, pendingUses: 0, exposures: 0 };
      live.add(made);
      return made;
    },
    free: (one: Allocation) => void live.delete(one),
  };
  const held = new StandIns({ names: () => false, pool } as unknown as PeerMemory, stream);
  return { held, pool, live, bytes: () => [...live].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) };
}

it("holds no more than four times the largest buffer, whatever sizes came before", () => {
  const { held, live, bytes } = standIns();
  const places = new Set<number>();
  for (let size = 1; size <= 10_000; size++) places.add(held.of("output", 1, size, false));
  expect(bytes()).toBeLessThan(40_000);
  expect(places.size).toBe(live.size);
  // One place serves all sizes that fit.
  expect(held.of("output", 1, 5, false)).toBe(held.of("output", 1, 9_000, false));
  held.close();
  expect(live.size).toBe(0);
});

it("gives those of captured calls to whoever has the graph, each call its own", () => {
  const { held, pool, live } = standIns();
  const [a, b] = [held.of("input", 1, 100, true), held.of("input", 1, 100, true)];
  expect(a).not.toBe(b);
  const taken = held.takeCaptured();
  expect(taken.map(({ address }) => Number(address))).toEqual([a, b]);
  expect(held.takeCaptured()).toEqual([]);
  held.close();
  expect(live.size).toBe(2);
  for (const one of taken) pool.free(one);
});
