import { describe, expect, it } from "vitest";
import { presetInventory } from "../../machine/topology/index.ts";
import { switchAllReduce } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import { parametersFor, simulate } from "../simulator/index.ts";
import { multicastTemplate } from "./multicast.ts";
import { networkOf } from "./network-of.ts";
import { lowerBound } from "./synthesize.ts";

describe("the template of a switch that multicasts and reduces", () => {
  it("is below the bound of switches that only forward, and takes what it says", async () => {
    const inventory = presetInventory("hgx-h100-8");
    const network = networkOf(inventory);
    // 18 links of 26.562 GB/s.
    const { bound, time, switch: node } = multicastTemplate(network) ?? {};
    const plain = await lowerBound(network, "all_reduce");
    expect([`${bound}`, `${time}`, node, `${plain.bound}`]).toEqual([
      "250/119529",
      "125/53124",
      "nvswitch0",
      "875/239058",
    ]);
    const plan = compile(switchAllReduce({ numRanks: 8, inPlace: true }));
    const options = { inventory, parameters: parametersFor("ideal"), sizeBytes: 1e9, switchOps: true };
    expect(simulate(plan, options).timeUs / ((time?.toNumber() ?? 0) * 1e6)).toBeCloseTo(1, 2);
  });

  it("is there only where a switch joins all ranks, and may be asked for of some relays only", () => {
    expect(multicastTemplate(networkOf(presetInventory("mi250x-8")))).toBeUndefined();
    expect(multicastTemplate(networkOf(presetInventory("hgx-h100-8")), () => false)).toBeUndefined();
  });

  it("has a bound by the narrowest cut, either way", () => {
    const edge = (from: string, to: string, capacity: string) => ({ from, to, capacity });
    const nodes = ["a", "b", "c"].map((id) => ({ id, kind: "rank" as const }));
    const network = {
      nodes: [...nodes, { id: "s", kind: "relay" as const }],
      edges: nodes.flatMap(({ id }) => [edge(id, "s", id === "b" ? "5" : "10"), edge("s", id, "10")]),
    };
    const { bound, time } = multicastTemplate(network) ?? {};
    expect([`${bound}`, `${time}`]).toEqual(["1/5", "4/15"]);
  });
});
