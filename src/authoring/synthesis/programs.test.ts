import { describe, expect, it } from "vitest";
import { presetInventory } from "../../machine/topology/index.ts";
import { CERTIFIED_COLLECTIVES, type CertifiedCollective } from "../certificate/index.ts";
import { compile } from "../language/index.ts";
import { networkOf } from "./network-of.ts";
import { mostPieces, programOf } from "./program-of.ts";
import { numHops } from "./schedule-hops.ts";
import { synthesize } from "./synthesize.ts";

describe("unequal shares", () => {
  const network = networkOf(presetInventory("mi250x-8"));
  // One rank with nothing of its own; one with a quarter of all.
  const shares = ["1/4", "0", "1/8", "1/8", "1/8", "1/8", "1/8", "1/8"];

  it.each(["all_gather", "reduce_scatter"] as const)("the program of %s is proved right", async (collective) => {
    const result = await synthesize(network, collective, { shares });
    const plan = compile(programOf(result, { pieces: 2 }));
    const { operation, counts = [] } = plan.collective;
    expect(operation).toBe(`${collective}_v`);
    const total = counts.reduce((a, b) => a + b);
    expect(counts.map((count) => (8 * count) / total)).toEqual([2, 0, 1, 1, 1, 1, 1, 1]);
  });

  it("are refused for scatter and gather", async () => {
    const result = await synthesize(network, "scatter", { shares });
    expect(() => programOf(result)).toThrow(/unequal shares of scatter/);
  });
});

it("refuses more pieces than can be compiled, and says how many can be", async () => {
  const result = await synthesize(networkOf(presetInventory("mi250x-8")), "all_reduce");
  expect(mostPieces(result)).toBe(Math.floor(524_288 / numHops(result.schedule)));
  for (const pieces of [mostPieces(result) + 1, 0, 1.5])
    expect(() => programOf(result, { pieces })).toThrow(/^pieces is .*an integer from 1 to \d+/);
});

describe.each(["mi250x-8", "hgx-a100-8", "mi300x-8"])("on %s", (name) => {
  const network = networkOf(presetInventory(name));
  it.each(
    CERTIFIED_COLLECTIVES.flatMap((collective) =>
      [1, 3].map((pieces) => [collective, pieces] as [CertifiedCollective, number]),
    ),
  )("the program of %s in %i pieces is proved right", async (collective, pieces) => {
    const result = await synthesize(network, collective, {
      root: /^(scatter|gather|broadcast|reduce)$/.test(collective) ? 3 : 0,
    });
    expect(result.isOptimal).toBe(true);
    const plan = compile(programOf(result, { pieces }));
    expect(plan.ranks).toHaveLength(8);
  });
});
