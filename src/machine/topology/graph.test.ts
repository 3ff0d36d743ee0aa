import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  bottleneckGBps,
  composeInventory,
  type Inventory,
  inventorySchema,
  islands,
  type Link,
  parseNic,
  parseSystem,
  pathCost,
  presetInventory,
  ringOrder,
  ringOrders,
  shortestPath,
  widestPath,
} from "./index.ts";

const gpus = (inventory: Inventory) => inventory.devices.filter((d) => d.family !== "cpu").map((d) => d.id);

/** A topology of bare devices with the given links. */
function bare(size: number, links: readonly Link[]): Inventory {
  const ids = Array.from({ length: size }, (_, i) => `gpu${i}`);
  return inventorySchema.parse({
    schemaVersion: 1,
    devices: ids.map((id, index) => ({ id, index, family: "nvidia-gpu", vendor: "NVIDIA", name: "x", visible: true })),
    topology: { nodes: ids.map((id) => ({ id, kind: "device" })), links },
    warnings: [],
  });
}

describe("paths", () => {
  it("takes NVLink through the switch between two GPUs of a board", () => {
    const { topology } = presetInventory("hgx-h100-8");
    const path = widestPath(topology, "gpu0", "gpu7");
    expect(path?.nodes).toEqual(["gpu0", "nvswitch0", "gpu7"]);
    expect(path?.bandwidthGBps).toBeCloseTo(18 * 26.562, 2);
    expect(path?.latencyUs).toBeCloseTo(1.9, 6);
  });

  it("takes PCIe through the host where there is no other link", () => {
    const { topology } = presetInventory("l40s-8");
    expect(shortestPath(topology, "gpu0", "gpu1")?.nodes).toEqual(["gpu0", "numa0", "gpu1"]);
    expect(shortestPath(topology, "gpu0", "gpu7")?.nodes).toEqual(["gpu0", "numa0", "numa1", "gpu7"]);
    expect(bottleneckGBps(topology, "gpu0", "gpu1")).toBeCloseTo(31.508, 3);
  });

  it("never routes through a GPU over NVLink, but does over XGMI", () => {
    const chain = (kind: "nvlink" | "xgmi") =>
      bare(3, [
        { a: "gpu0", b: "gpu1", kind, bandwidthGBps: 50 },
        { a: "gpu1", b: "gpu2", kind, bandwidthGBps: 50 },
      ]);
    expect(widestPath(chain("nvlink").topology, "gpu0", "gpu2")).toBeUndefined();
    expect(widestPath(chain("xgmi").topology, "gpu0", "gpu2")?.hops).toBe(2);
  });

  it("crosses hosts by their NICs, and stays on the rail of the nearer NIC", () => {
    const inventory = parseSystem("2x hgx-h100-8 --nic 8xNDR") as Inventory;
    const path = widestPath(inventory.topology, "n0.gpu0", "n1.gpu0");
    expect(path?.nodes).toEqual(["n0.gpu0", "n0.pcie0", "n0.nic0", "rail0", "n1.nic0", "n1.pcie0", "n1.gpu0"]);
    expect(path?.bandwidthGBps).toBe(50);
    expect(pathCost(inventory.topology, "n0.gpu0", "n1.gpu0")?.effectiveGBps).toBeCloseTo(48, 6);
  });

  it("agrees with an all-pairs maximin computation on random graphs", () => {
    const edge = fc.tuple(fc.nat(6), fc.nat(6), fc.integer({ min: 1, max: 9 }));
    fc.assert(
      fc.property(fc.array(edge, { maxLength: 16 }), (edges) => {
        const links = edges
          .filter(([a, b]) => a !== b)
          .map(([a, b, w]): Link => ({ a: `gpu${a}`, b: `gpu${b}`, kind: "xgmi", bandwidthGBps: w }));
        const { topology } = bare(7, links);
        const width = Array.from({ length: 7 }, (_, i) =>
          Array.from({ length: 7 }, (_, j): number => (i === j ? 1e9 : 0)),
        );
        for (const { a, b, bandwidthGBps } of links) {
          const [i, j] = [Number(a.slice(3)), Number(b.slice(3))];
          width[i]![j] = Math.max(width[i]![j]!, bandwidthGBps ?? 0);
          width[j]![i] = width[i]![j]!;
        }
        for (let k = 0; k < 7; k++)
          for (let i = 0; i < 7; i++)
            for (let j = 0; j < 7; j++) width[i]![j] = Math.max(width[i]![j]!, Math.min(width[i]![k]!, width[k]![j]!));
        for (let i = 0; i < 7; i++)
          for (let j = 0; j < 7; j++)
            if (i !== j) expect(bottleneckGBps(topology, `gpu${i}`, `gpu${j}`)).toBe(width[i]![j]);
      }),
      { numRuns: 200 },
    );
  });

  it("refuses an id that is no node", () => {
    expect(() => widestPath(presetInventory("l4").topology, "gpu0", "gpu9")).toThrow(/"gpu9"/);
  });
});

describe("islands", () => {
  it("are one on a switched board, eight without fast links, one a host in a composition", () => {
    expect(islands(presetInventory("hgx-h200-8"))).toMatchObject([{ kind: "nvlink", devices: { length: 8 } }]);
    expect(islands(presetInventory("l40s-8"))).toHaveLength(8);
    expect(islands(parseSystem("4x mi300x-8") as Inventory).map((i) => i.devices.length)).toEqual([8, 8, 8, 8]);
    expect(islands(presetInventory("gb200-nvl72"))).toMatchObject([{ devices: { length: 72 } }]);
  });

  it("keep an NVLink bridge to its pair", () => {
    const pair = bare(4, [
      { a: "gpu0", b: "gpu1", kind: "nvlink", count: 4, bandwidthGBps: 56 },
      { a: "gpu2", b: "gpu3", kind: "nvlink", count: 4, bandwidthGBps: 56 },
    ]);
    expect(islands(pair).map((i) => i.devices)).toEqual([
      ["gpu0", "gpu1"],
      ["gpu2", "gpu3"],
    ]);
  });
});

describe("rings", () => {
  it("finds the wide ring of a partly connected node", () => {
    // A square 0-2-1-3-0 of wide links with narrow diagonals: the given order is not the best one.
    const link = (a: number, b: number, w: number): Link => ({
      a: `gpu${a}`,
      b: `gpu${b}`,
      kind: "nvlink",
      bandwidthGBps: w,
    });
    const square = bare(4, [
      link(0, 2, 50),
      link(2, 1, 50),
      link(1, 3, 50),
      link(3, 0, 50),
      link(0, 1, 5),
      link(2, 3, 5),
    ]);
    const ring = ringOrder(square.topology, gpus(square));
    expect(ring.bandwidthGBps).toBe(50);
    expect(ring.order).toEqual(["gpu0", "gpu2", "gpu1", "gpu3"]);
  });

  it("gives link-disjoint rings on a fully connected node: three of four devices' links, no more", () => {
    const inventory = presetInventory("mi300x-8");
    const rings = ringOrders(inventory.topology, gpus(inventory));
    const used = rings.flatMap((r) => r.order.map((id, i) => [id, r.order[(i + 1) % 8]].sort().join()));
    expect(new Set(used).size).toBe(used.length);
    // Seven links a device, two a ring: three rings.
    expect(rings).toHaveLength(3);
  });

  it("crosses hosts twice in a composition", () => {
    const inventory = parseSystem("2x hgx-h100-8 --nic 8xNDR") as Inventory;
    const { order, bandwidthGBps } = ringOrder(inventory.topology, gpus(inventory));
    const crossings = order.filter((id, i) => id.slice(0, 2) !== (order[(i + 1) % 16] ?? "").slice(0, 2));
    expect(crossings).toHaveLength(2);
    expect(bandwidthGBps).toBe(50);
  });
});

describe("compositions", () => {
  it("answer within a second of CPU time for 128 devices", () => {
    const inventory = parseSystem("16x hgx-h100-8 --nic 8xNDR") as Inventory;
    expect(gpus(inventory)).toHaveLength(128);
    expect(new Set(inventory.topology.nodes.map((n) => n.id)).size).toBe(inventory.topology.nodes.length);
    const begin = process.cpuUsage();
    expect(bottleneckGBps(inventory.topology, "n0.gpu3", "n15.gpu6")).toBe(50);
    expect(islands(inventory)).toHaveLength(16);
    expect(process.cpuUsage(begin).user / 1000).toBeLessThan(1000);
  });

  it("read NICs in the field's names and refuse others", () => {
    expect(parseNic("8xNDR")).toEqual({ count: 8, kind: "infiniband", rateGbps: 400, name: "NDR" });
    expect(parseNic("2x100GbE")).toMatchObject({ count: 2, kind: "ethernet", rateGbps: 100 });
    expect(parseNic("4x400RoCE")).toMatchObject({ count: 4, kind: "roce", rateGbps: 400 });
    for (const bad of ["", "8x", "0xNDR", "8xFOO", "99xNDR", "0GbE"]) expect(() => parseNic(bad)).toThrow(/expected/);
    expect(() => parseSystem("3x no-such-board")).toThrow(/one of/);
    expect(parseSystem("./inventory.json")).toBeUndefined();
    expect(() => composeInventory(presetInventory("l4"), 0, parseNic("1x10GbE"))).toThrow();
  });
});
