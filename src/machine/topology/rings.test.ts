/** Rings of nodes whose links differ, and pairs that agree with the direct links. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { detect } from "../hardware/index.ts";
import { islands, presetInventory, relate, ringOrder, ringOrders } from "./index.ts";
import type { Inventory, Link } from "./inventory.ts";

const roots = fileURLToPath(new URL("../../../test/fixtures/machines/roots", import.meta.url));
const recorded = (name: string) => detect({ root: join(roots, name) });
const ids = (inventory: Inventory) =>
  inventory.devices.flatMap((d) => (d.family === "cpu" || d.parent !== undefined ? [] : [d.id]));

function graphOf(num: number, links: readonly Link[]): Inventory["topology"] {
  return {
    nodes: Array.from({ length: num }, (_, i) => ({ id: `gpu${i}`, kind: "device" as const })),
    links: [...links],
  };
}
const xgmi = (a: number, b: number, facts: Partial<Link> = {}): Link => ({
  a: `gpu${a}`,
  b: `gpu${b}`,
  kind: "xgmi",
  ...facts,
});

describe("rings", () => {
  it("runs over the direct and widest links of an MI250X node, not in index order", async () => {
    const node = await recorded("amd-mi250x-8");
    const ring = ringOrder(node.topology, ids(node));
    expect(ring.order.map((id) => Number(id.slice(3)))).toEqual([0, 1, 3, 2, 4, 5, 7, 6]);
    expect(ring.bandwidthGBps).toBe(50);
  });

  it.each([
    ["neuron-trn1.32xlarge", "neuronlink"],
    ["tpu-v5e-host-8", "ici"],
    ["amd-two-xgmi-islands", "xgmi"],
  ])("takes only direct links on %s", async (name, kind) => {
    const node = await recorded(name);
    for (const island of islands(node)) {
      for (const { order } of ringOrders(node.topology, island.devices)) {
        for (const [i, a] of order.entries()) {
          const b = order[(i + 1) % order.length];
          const link = node.topology.links.find((l) => (l.a === a && l.b === b) || (l.a === b && l.b === a));
          expect(link?.kind, `${a} ${b}`).toBe(kind);
        }
      }
    }
  });

  it("takes a way over another device only for what it leaves of that device's links", () => {
    // A chain of four: the ring must close over two relays, which share the chain's links with the other steps.
    const chain = graphOf(
      4,
      [0, 1, 2].map((i) => xgmi(i, i + 1, { bandwidthGBps: 60 })),
    );
    expect(ringOrder(chain, ["gpu0", "gpu1", "gpu2", "gpu3"]).bandwidthGBps).toBe(30);
  });

  it("states no width where a rate is unknown", async () => {
    const trn1 = await recorded("neuron-trn1.32xlarge");
    expect(ringOrder(trn1.topology, ids(trn1))).not.toHaveProperty("bandwidthGBps");
    expect(islands(trn1)[0]).not.toHaveProperty("bandwidthGBps");
    const preset = presetInventory("trn1.32xlarge");
    expect(ringOrder(preset.topology, ids(preset)).bandwidthGBps).toBe(96);
  });
});

describe("pairs", () => {
  it("say the direct link, though a way over others is wider, and the hops where there is none", () => {
    const square = graphOf(4, [
      xgmi(0, 1, { count: 1, bandwidthGBps: 50 }),
      xgmi(0, 2, { count: 4, bandwidthGBps: 200 }),
      xgmi(2, 1, { count: 4, bandwidthGBps: 200 }),
      xgmi(1, 3, { count: 1, bandwidthGBps: 50 }),
    ]);
    expect(relate(square, "gpu0", "gpu1")).toEqual({
      a: "gpu0",
      b: "gpu1",
      relation: "XGMI",
      count: 1,
      hops: 1,
      bandwidthGBps: 50,
    });
    expect(relate(square, "gpu2", "gpu3")).toEqual({
      a: "gpu2",
      b: "gpu3",
      relation: "XGMI",
      hops: 2,
      bandwidthGBps: 50,
    });
  });

  it("say no count that no source stated", () => {
    expect(relate(graphOf(2, [xgmi(0, 1)]), "gpu0", "gpu1")).toEqual({
      a: "gpu0",
      b: "gpu1",
      relation: "XGMI",
      hops: 1,
    });
  });

  it("of a hive alone name the fabric and no link, and its devices are an island", () => {
    const hive = { ...graphOf(3, []), pairs: [{ a: "gpu0", b: "gpu1", relation: "XGMI" }] };
    expect(relate(hive, "gpu0", "gpu1", "XGMI")).toEqual({ a: "gpu0", b: "gpu1", relation: "XGMI" });
    const devices = [0, 1, 2].map((i) => ({
      id: `gpu${i}`,
      family: "amd-gpu" as const,
      vendor: "AMD",
      name: "",
      index: i,
      visible: true,
    }));
    expect(islands({ devices, topology: hive })).toEqual([
      { id: "island0", devices: ["gpu0", "gpu1"], kind: "xgmi" },
      { id: "island1", devices: ["gpu2"] },
    ]);
  });
});
