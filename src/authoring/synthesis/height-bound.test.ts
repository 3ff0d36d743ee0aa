import { describe, expect, it } from "vitest";
import { resolveHardware } from "../../machine/hardware/index.ts";
import { type CertifiedCollective, checkCertificate, type Network } from "../certificate/index.ts";
import { certify } from "./certify.ts";
import { networkOf } from "./network-of.ts";
import { programOf } from "./program-of.ts";
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

describe("heights of optimal schedules", () => {
  // By packing alone 7, 14, 7, 14 and 8; the bounds are 3, 4, 2, 4 and 1.
  it.each([
    ["mi250x-8", "all_gather", 3],
    ["mi250x-8", "all_reduce", 6],
    ["2x hgx-a100-8", "all_gather", 2],
    ["2x hgx-a100-8", "all_reduce", 4],
    ["4x hgx-h100-8", "all_gather", 2],
  ] as const)("%s, %s: %i", async (preset, collective, height) => {
    const result = await synthesize(networkOf(await resolveHardware(preset)), collective);
    expect(result).toMatchObject({ isOptimal: true, height });
    expect(checkCertificate(certify(result)).faults).toEqual([]);
  });

  it("mi250x-8 with two trees for each rank, all_gather: 3", async () => {
    const result = await synthesize(networkOf(await resolveHardware("mi250x-8")), "all_gather", { treesPerRoot: 2 });
    expect(result.height).toBe(3);
    expect(result.schedule.kind === "trees" && result.schedule.trees.length).toBeLessThanOrEqual(16);
    expect(() => programOf(result)).not.toThrow();
  });
});

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
