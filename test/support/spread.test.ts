import { afterEach, expect, it, vi } from "vitest";

afterEach(() => {
  vi.unstubAllEnvs();
  vi.resetModules();
});

async function spreadOf(seed: string) {
  vi.stubEnv("CHORALE_SEED", seed);
  vi.stubEnv("CHORALE_FULL", "");
  vi.resetModules();
  return (await import("./spread.ts")).spread;
}

it("takes some of any cases with every seed, and all of them with as many seeds as it divides by", async () => {
  for (const numCases of [1, 2, 3, 5, 8])
    for (const of of [2, 3, 6]) {
      const cases = Array.from({ length: numCases }, (_, i) => i);
      const taken = new Set<number>();
      for (let seed = 268_435_450; seed < 268_435_450 + of; seed++) {
        const some = (await spreadOf(String(seed)))(cases, of, 1);
        expect(some.length).toBeGreaterThan(0);
        for (const one of some) taken.add(one);
      }
      expect(taken.size).toBe(numCases);
    }
});

it.each(["abc", "1.5", "Infinity"])("refuses seed %s, with which it would take no case", async (seed) => {
  await expect(spreadOf(seed)).rejects.toThrow(`CHORALE_SEED is ${seed}; expected an integer`);
});
