import { describe, expect, it } from "vitest";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { synthesize } from "./synthesize.ts";

function network(links: readonly (readonly [string, string, number])[]): Network {
  const ids = [...new Set(links.flatMap(([from, to]) => [from, to]))].sort();
  return {
    nodes: ids.map((id) => ({ id, kind: id.startsWith("s") ? ("relay" as const) : ("rank" as const) })),
    edges: links.flatMap(([from, to, capacity]) => [
      { from, to, capacity: `${capacity}` },
      { from: to, to: from, capacity: `${capacity}` },
    ]),
  };
}

const LINE = network([
  ["a", "b", 1],
  ["b", "c", 1],
  ["c", "d", 1],
]);

/** A star around a0 and a line b0-b1-b2, joined by two thin links between a0 and the ends of the line. */
const TWO_BOXES = network([
  ["a0", "a1", 100],
  ["a0", "a2", 100],
  ["a0", "a3", 100],
  ["b0", "b1", 100],
  ["b1", "b2", 100],
  ["a0", "b0", 1],
  ["a0", "b2", 1],
]);

describe("the bound on steps", () => {
  it.each([
    ["all_gather", 3],
    ["reduce_scatter", 3],
    ["broadcast", 3],
    ["gather", 3],
    ["all_to_all", 3],
    // Up to b or c and down again.
    ["all_reduce", 4],
  ] as const)("is the width of a line for %s", async (collective, steps) => {
    const { heightBound, height } = await synthesize(LINE, collective);
    expect(heightBound).toBe(steps);
    expect(height).toBeGreaterThanOrEqual(steps);
  });

  it("counts relays as part of a step", async () => {
    const links = ["a", "b", "c"].map((id, i) => [id, `s${i}`, 1] as const);
    const star = network([...links, ["s0", "s1", 9], ["s1", "s2", 9]]);
    expect(await synthesize(star, "all_gather", { fewestSteps: true })).toMatchObject({ heightBound: 1, height: 1 });
  });

  it.each<CertifiedCollective>(["all_gather", "reduce_scatter"])(
    "counts that data of an optimal %s crosses the busiest cut once",
    async (collective) => {
      // From a1 over a0 to one end of the line, and along the whole line; without that demand three steps are enough.
      expect(await synthesize(TWO_BOXES, collective)).toMatchObject({ isOptimal: true, heightBound: 4, height: 4 });
      const fewest = await synthesize(TWO_BOXES, collective, { fewestSteps: true });
      expect(fewest).toMatchObject({ isOptimal: false, heightBound: 3, height: 3 });
    },
  );
});
