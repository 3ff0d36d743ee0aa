/** How much memory calls use one after the other, and for how long. */
import { expect, it } from "vitest";
import type { Allocation, CudaStream } from "../../device/index.ts";
import { ReusedMemory } from "./reused-memory.ts";

/** Whether memory is asked for as a thread that captures may ask. */
let isRelaxed = false;
const relaxed = <T>(fn: () => T): T => {
  isRelaxed = true;
  try {
    return fn();
  } finally {
    isRelaxed = false;
  }
};
const stream = { device: { relaxed } } as unknown as CudaStream;
/** How each piece was asked for. */
const asked: boolean[] = [];

function memory() {
  const live = new Set<Allocation>();
  const calls = { numTaken: 0, firstOpen: Number.POSITIVE_INFINITY };
  let address = 4096n;
  const pool = {
    allocate: (sizeBytes: number, on: CudaStream, label?: string): Allocation => {
      expect([on, label]).toEqual([stream, "of a test"]);
      asked.push(isRelaxed);
      address += BigInt(sizeBytes);
      const made = { address, sizeBytes, pendingUses: 0, exposures: 0 };
      live.add(made);
      return made;
    },
    free: (one: Allocation) => expect(live.delete(one)).toBe(true),
  };
  const reused = new ReusedMemory({ pool, stream, label: "of a test", calls });
  const bytes = () => [...live].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return { reused, calls, pool, live, bytes };
}

it("holds no more than four times the largest size while calls go on, and twice once they have ended", () => {
  const { reused, calls, live, bytes } = memory();
  calls.firstOpen = 1;
  const places = new Set<number>();
  for (let size = 1; size <= 10_000; size++) {
    calls.numTaken++;
    places.add(reused.of(size, false));
  }
  expect(bytes()).toBeLessThan(40_000);
  expect(places.size).toBe(live.size);
  // One place serves all sizes that fit.
  expect(reused.of(5, false)).toBe(reused.of(9_000, false));
  calls.firstOpen = Number.POSITIVE_INFINITY;
  reused.of(40_000, false);
  expect(asked.at(-1)).toBe(false);
  expect(bytes()).toBeLessThan(80_000);
  reused.close();
  expect(live.size).toBe(0);
});

it("gives nothing back that a call has which has not ended well", () => {
  const { reused, calls, live } = memory();
  calls.numTaken = 3;
  reused.of(10, false);
  calls.numTaken = 4;
  reused.of(20, false);
  const sizes = () => [...live].map(({ sizeBytes }) => sizeBytes);
  // The fourth may have been the last to use the first place.
  calls.firstOpen = 4;
  calls.numTaken = 5;
  reused.of(40, false);
  expect(sizes()).toEqual([10, 20, 40]);
  calls.firstOpen = 5;
  calls.numTaken = 6;
  reused.of(80, false);
  expect(sizes()).toEqual([20, 40, 80]);
});

it("has one place for all calls of a graph, which is the graph's", () => {
  const { reused, pool, live } = memory();
  const own = reused.of(100, false);
  const [a, b] = [reused.of(100, true), reused.of(60, true)];
  expect(asked.at(-1)).toBe(true);
  expect(a).toBe(b);
  expect(a).not.toBe(own);
  const larger = reused.of(101, true);
  const taken = reused.takeCaptured();
  expect(taken.map(({ address }) => Number(address))).toEqual([a, larger]);
  expect(reused.takeCaptured()).toEqual([]);
  // The next graph has its own.
  expect([a, larger]).not.toContain(reused.of(100, true));
  reused.close();
  expect([...live]).toEqual([...taken]);
  for (const one of taken) pool.free(one);
});
