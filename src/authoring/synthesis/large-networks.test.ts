import { describe, expect, it } from "vitest";
import { type Inventory, parseSystem } from "../../machine/topology/index.ts";
import type { Network } from "../certificate/index.ts";
import { breadthFirst } from "./breadth-first.ts";
import { gatherBound } from "./cut-bounds.ts";
import { checkNetwork } from "./network.ts";
import { networkOf } from "./network-of.ts";
import { scaleNetwork } from "./scaled-graph.ts";
import { symmetryOf } from "./symmetry.ts";
import { synthesize } from "./synthesize.ts";

const graphOf = (network: Network) => scaleNetwork(checkNetwork(network));

/** Ranks around one switch. */
function star(numRanks: number): Network {
  const ids = Array.from({ length: numRanks }, (_, rank) => `g${rank}`);
  return {
    nodes: [...ids.map((id) => ({ id, kind: "rank" as const })), { id: "s", kind: "relay" as const }],
    edges: ids.flatMap((id) => [
      { from: id, to: "s", capacity: "1" },
      { from: "s", to: id, capacity: "1" },
    ]),
  };
}

describe("networks of hundreds of ranks", () => {
  it("have the bound and the witness that all their ranks give, by one rank of each orbit", () => {
    const graph = graphOf(networkOf(parseSystem("6x hgx-h100-8") as Inventory));
    for (const weights of [graph.ranks.map(() => 1), graph.ranks.map((_, rank) => (rank === 5 ? 1 : 0))]) {
      expect(symmetryOf(graph, weights).roots.length).toBeLessThan(graph.ranks.length);
      expect(gatherBound(graph, weights)).toEqual(gatherBound(graph, weights, graph.ranks));
    }
  });

  it("have schedules of the fewest steps, though they have more pairs of ranks than a call has arguments", () => {
    const graph = graphOf(star(370));
    const { height, trees } = breadthFirst(
      graph,
      graph.ranks.map(() => 1),
    );
    expect(height).toBe(1);
    expect(trees).toHaveLength(370);
  });

  it("are refused before anything is sought where a schedule would have too many routes, saying how many ranks may be", async () => {
    await expect(synthesize(star(2897), "all_gather")).rejects.toThrow(
      /ranks is 2897; expected at most 2896 for all_gather/,
    );
    expect(await synthesize(star(2897), "scatter")).toMatchObject({ isOptimal: true });
  });
});
