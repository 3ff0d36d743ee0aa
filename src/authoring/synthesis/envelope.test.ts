import { describe, expect, it } from "vitest";
import type { Network } from "../certificate/index.ts";
import { proofOf } from "../plan/index.ts";
import { parametersFor } from "../simulator/index.ts";
import { type EnvelopePoint, envelope } from "./envelope.ts";
import { inventoryOf } from "./inventory-of.ts";

const both = (from: string, to: string, capacity: string, latencyUs = 1) => [
  { from, to, capacity, latencyUs },
  { from: to, to: from, capacity, latencyUs },
];

/** A square with one side missing: a line of four. */
const line: Network = {
  nodes: ["a", "b", "c", "d"].map((id) => ({ id, kind: "rank" })),
  edges: [...both("a", "b", "50"), ...both("b", "c", "50"), ...both("c", "d", "50")],
};

describe("envelope", () => {
  it("is never faster than its bounds, and never slower than the library", async () => {
    const parameters = parametersFor("ideal");
    const sizes = [1024, 2 ** 26];
    const { points, plans } = await envelope(line, "all_reduce", { inventory: inventoryOf(line), parameters, sizes });
    for (const { timeUs, libraryUs, latencyBoundUs, bandwidthBoundUs } of points) {
      expect(latencyBoundUs).toBe(3);
      expect(timeUs).toBeGreaterThanOrEqual(Math.max(latencyBoundUs, bandwidthBoundUs) * (1 - 1e-9));
      expect(timeUs).toBeLessThanOrEqual(libraryUs ?? Number.POSITIVE_INFINITY);
    }
    // On a line any tree is the line itself, up and down: 4/3 of what reduce-scatter and all-gather reach.
    const last = points[points.length - 1];
    expect(last?.use).toMatch(/^synthesised-all-reduce-(fewest-steps|one-tree|forest)-\d+(-i\d+)?-h[0-9a-f]{8}$/);
    expect((last?.libraryUs as number) / (last?.timeUs as number)).toBeGreaterThan(1.3);
    expect([...plans.values()].every((plan) => proofOf(plan)?.ok)).toBe(true);
    expect([...plans.keys()]).toEqual(expect.arrayContaining([last?.use]));
  });

  it("takes few steps for small data and the whole forest for large data", async () => {
    // Two rows of three.
    const ids = ["a", "b", "c", "d", "e", "f"];
    const sides = ["ab", "bc", "de", "ef", "ad", "be", "cf"];
    const mesh: Network = {
      nodes: ids.map((id) => ({ id, kind: "rank" })),
      edges: sides.flatMap(([from, to]) => both(from as string, to as string, "50", 2)),
    };
    const { points } = await envelope(mesh, "all_gather", {
      inventory: inventoryOf(mesh),
      parameters: parametersFor("ideal"),
      sizes: [512, 2 ** 30],
    });
    const [small, large] = points as [EnvelopePoint, EnvelopePoint];
    expect(small.latencyBoundUs).toBe(6);
    expect(small.use).toMatch(/fewest-steps-1-|^[a-z-]+-all-gather$/);
    expect(large.use).toMatch(/^synthesised-all-gather-(fewest-steps|forest)-\d+-/);
    expect(large.bandwidthBoundUs / large.timeUs).toBeGreaterThan(0.96);
  });

  it("refuses links that differ by direction, and sizes that do not ascend", async () => {
    const oneWay: Network = { ...line, edges: line.edges.slice(1) };
    expect(() => inventoryOf(oneWay)).toThrow(/the same both ways/);
    const options = { inventory: inventoryOf(line), parameters: parametersFor("ideal") };
    await expect(envelope(line, "all_reduce", { ...options, sizes: [2, 1] })).rejects.toThrow(
      /sizes above 0 that ascend/,
    );
  });
});
