import { describe, expect, it } from "vitest";
import { publishedNetwork, publishedTopologies } from "../../../test/support/published-topologies.ts";
import { resolveHardware } from "../../machine/hardware/index.ts";
import { checkCertificate, type Network } from "../certificate/index.ts";
import { certify } from "./certify.ts";
import { checkNetwork } from "./network.ts";
import { networkOf } from "./network-of.ts";
import { programOf } from "./program-of.ts";
import { scaleNetwork } from "./scaled-graph.ts";
import { symmetryOf } from "./symmetry.ts";
import { synthesize } from "./synthesize.ts";

/** A torus of two dimensions. */
function torus(rows: number, columns: number): Network {
  const id = (row: number, column: number) => `n${(row % rows) * columns + (column % columns)}`;
  const cells = Array.from({ length: rows * columns }, (_, i) => [Math.floor(i / columns), i % columns] as const);
  const both = (from: string, to: string) => [
    { from, to, capacity: "50" },
    { from: to, to: from, capacity: "50" },
  ];
  return {
    nodes: cells.map(([row, column]) => ({ id: id(row, column), kind: "rank" as const })),
    edges: cells.flatMap(([row, column]) => [
      ...both(id(row, column), id(row + 1, column)),
      ...both(id(row, column), id(row, column + 1)),
    ]),
  };
}

const graphOf = (network: Network) => scaleNetwork(checkNetwork(network));

describe("symmetryOf", () => {
  it("finds one orbit of ranks for a torus, and elements that are symmetries and a group", () => {
    const graph = graphOf(torus(4, 6));
    const { elements, roots, edgeOrbitSizes } = symmetryOf(
      graph,
      graph.ranks.map(() => 1),
    );
    expect({ elements: elements.length, roots: roots.length }).toEqual({ elements: 24, roots: 1 });
    expect(edgeOrbitSizes.reduce((a, b) => a + b)).toBe(graph.edges.length);
    const capacity = new Map(graph.edges.map(({ from, to, capacity }) => [`${from} ${to}`, capacity]));
    const keys = new Set(elements.map((element) => element.join()));
    for (const element of elements) {
      for (const edge of graph.edges)
        expect(capacity.get(`${element[edge.from]} ${element[edge.to]}`)).toBe(edge.capacity);
      expect(keys.has(element.map((node) => elements[1]?.[node] as number).join())).toBe(true);
    }
  });

  it("has only the identity for a network that has no other symmetry, and keeps apart ranks of other weights", () => {
    const { nodes, edges } = torus(3, 4);
    const changed = { nodes, edges: edges.map((edge, i) => ({ ...edge, capacity: `${50 + i}` })) };
    const graph = graphOf(changed);
    expect(symmetryOf(graph, Array(12).fill(1)).elements).toHaveLength(1);
    const plain = graphOf(torus(3, 4));
    expect(symmetryOf(plain, [2, ...Array(11).fill(1)]).roots[0]).toEqual({ node: 0, size: 1 });
  });
});

describe("forests by symmetry", () => {
  it.each([
    ["5x hgx-h100-8", async () => networkOf(await resolveHardware("5x hgx-h100-8"))],
    ["5x mi250x-8", async () => networkOf(await resolveHardware("5x mi250x-8"))],
    ["a torus of 5x8", async () => torus(5, 8)],
  ])("reach the optimum of all_gather and all_reduce on %s", async (_, make) => {
    const network = await make();
    for (const collective of ["all_gather", "all_reduce"] as const) {
      const result = await synthesize(network, collective);
      expect(result.isOptimal).toBe(true);
      expect(checkCertificate(certify(result)).faults).toEqual([]);
    }
  });

  it("are cut into few enough parts for a plan", async () => {
    const published = publishedTopologies.find(({ name }) => name === "torus4x4x4");
    const network = publishedNetwork(published as (typeof publishedTopologies)[number]);
    const result = await synthesize(network, "all_gather");
    expect(result.isOptimal).toBe(true);
    // Its fewest trees reach the optimum with weights of nine digits: 1,113,833,472 chunks.
    expect(() => programOf(result)).not.toThrow();
  });

  it("keep to the trees that are asked for, and say the gap", async () => {
    const result = await synthesize(torus(5, 8), "all_gather", { treesPerRoot: 2 });
    expect(result.schedule.kind === "trees" && result.schedule.trees.length).toBeLessThanOrEqual(2 * 40);
    const gap = result.time.over(result.bound).toNumber();
    expect(gap).toBeGreaterThanOrEqual(1);
    expect(gap).toBeLessThan(1.3);
  });
});
