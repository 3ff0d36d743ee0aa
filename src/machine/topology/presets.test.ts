import { describe, expect, it } from "vitest";
import { CLOUD_INSTANCES } from "./cloud-instances.ts";
import { inventorySchema, islands, PARTS, PRESET_NAMES, parseSystem, presetInventory, ringOrder } from "./index.ts";

/** DESIGN's list, with the slice sizes that we give the TPU families. */
const REQUIRED =
  "hgx-a100-8 hgx-h100-8 hgx-h200-8 hgx-b200-8 hgx-b300-8 gb200-nvl72 gb300-nvl72 dgx-spark mi250x-8 mi300x-8 mi325x-8 mi355x-8 gaudi2-8 gaudi3-8 tpu-v4-8 tpu-v5e-8 tpu-v5p-8 tpu-v6e-8 trn1.32xlarge trn2.48xlarge inf2.48xlarge l4 l40s-8 a10g-4 rtx4090-2 rtx5090-2 m4-max".split(
    " ",
  );
const GIB = 1024 ** 3;

describe("presets", () => {
  it("are all there", () => {
    expect(REQUIRED.filter((name) => !PRESET_NAMES.includes(name))).toEqual([]);
  });

  it.each(PRESET_NAMES)("%s is a valid inventory whose links end at its nodes", (name) => {
    const inventory = presetInventory(name);
    expect(inventorySchema.parse(inventory)).toEqual(inventory);
    const ids = new Set(inventory.topology.nodes.map((n) => n.id));
    expect(ids.size).toBe(inventory.topology.nodes.length);
    for (const link of inventory.topology.links) expect([ids.has(link.a), ids.has(link.b)]).toEqual([true, true]);
    for (const device of inventory.devices) expect(ids.has(device.id)).toBe(true);
  });

  // Device count, GiB of one, aggregate GB/s of one device's fabric links: from the data sheets, not from the code.
  it.each([
    ["hgx-a100-8", 8, 80, 300],
    ["hgx-h100-8", 8, 79.6, 478.1],
    ["hgx-h200-8", 8, 140.4, 478.1],
    ["hgx-b200-8", 8, 179.1, 956.3],
    ["gb200-nvl72", 72, 185, 956.3],
    ["mi300x-8", 8, 192, 448],
    ["mi355x-8", 8, 288, 537.6],
    ["gaudi2-8", 8, 96, 262.5],
    ["gaudi3-8", 8, 128, 525],
    ["trn1.32xlarge", 16, 32, 384],
    ["trn2.48xlarge", 16, 96, 512],
    ["inf2.48xlarge", 12, 32, 192],
    ["tpu-v4-8", 4, 32, 100],
    ["tpu-v4-128", 64, 32, 300],
    ["tpu-v5e-8", 8, 16, 100],
    ["tpu-v5p-8", 4, 95, 200],
    ["tpu-v6e-256", 256, 32, 448],
  ])("%s has %d devices of %d GiB with %d GB/s of fabric each", (name, count, gib, fabric) => {
    const inventory = presetInventory(name);
    const devices = inventory.devices.filter((d) => d.family !== "cpu");
    expect(devices).toHaveLength(count);
    const [first] = devices;
    expect((first?.memoryBytes ?? 0) / GIB).toBeCloseTo(gib, 0);
    const own = inventory.topology.links.filter(
      (l) => (l.a === first?.id || l.b === first?.id) && !["pcie", "memory", "nvlink-c2c"].includes(l.kind),
    );
    expect(own.reduce((sum, l) => sum + (l.bandwidthGBps ?? 0), 0)).toBeCloseTo(fabric, 0);
    expect(islands(inventory)).toHaveLength(1);
  });

  it("wrap a TPU torus only where the slice does", () => {
    const links = (name: string) => presetInventory(name).topology.links.filter((l) => l.kind === "ici").length;
    expect(links("tpu-v4-8")).toBe(4); // 1x2x2, a square
    expect(links("tpu-v4-128")).toBe(192); // 4x4x4 torus: 3 per chip
    expect(links("tpu-v5e-64")).toBe(112); // 8x8 mesh: 2*8*7
    expect(links("tpu-v5e-256")).toBe(512); // 16x16 torus: 2 per chip
    expect(() => presetInventory("tpu-v5e-7")).toThrow(/Google offers/);
    expect(() => presetInventory("tpu-v5e-512")).toThrow(/256/);
  });

  it.each(["mi250x-8", "mi250-16", "tpu-v5e-8", "trn1.32xlarge", "dgx1-v100"])(
    "%s has a ring of direct links",
    (name) => {
      const { topology, devices } = presetInventory(name);
      const { order } = ringOrder(
        topology,
        devices.flatMap((d) => (d.family === "cpu" ? [] : [d.id])),
      );
      const linked = new Set(topology.links.flatMap(({ a, b }) => [`${a} ${b}`, `${b} ${a}`]));
      expect(order.filter((id, i) => !linked.has(`${id} ${order[(i + 1) % order.length]}`))).toEqual([]);
    },
  );

  it("name what is accepted when a name is unknown", () => {
    for (const name of ["hgx-z9", "__proto__", "constructor"]) {
      expect(() => presetInventory(name)).toThrow(/hgx-h100-8/);
    }
  });

  it("take other counts of the same card, and compose", () => {
    expect(presetInventory("l40s-4").devices).toHaveLength(5);
    expect(presetInventory("hgx-h100-4").topology.links.filter((l) => l.kind === "nvlink")).toHaveLength(4);
    expect(parseSystem("16x hgx-h100-8 --nic 8xNDR")?.devices).toHaveLength(16 * 9);
    expect(parseSystem("2x gh200 --nic 1x200Slingshot")?.environment).toMatchObject({
      hosts: 2,
      nic: "1x200Slingshot",
    });
    expect(parseSystem("tpu-v5e-16")?.topology.links.filter((l) => l.kind === "ici")).toHaveLength(24);
    expect(parseSystem("2x l4 --nic 1x100RoCE")?.environment).toMatchObject({ hosts: 2 });
    expect(presetInventory("l40s-4").devices.map((device) => device.numaNode ?? 0)).toEqual([0, 0, 0, 0, 0]);
    expect(presetInventory("rtx4090-4").topology.links.filter((l) => l.kind === "pcie")[0]?.bandwidthGBps).toBeCloseTo(
      31.5,
      1,
    );
  });

  it("know clouds' instances by name, each with its board and its network", () => {
    for (const name of Object.keys(CLOUD_INSTANCES)) {
      const one = presetInventory(name);
      expect(one.devices.filter(({ family }) => family !== "cpu").length, name).toBeGreaterThanOrEqual(1);
      const two = parseSystem(`2x ${name}`)!;
      expect(two.environment, name).toMatchObject({ hosts: 2, nic: CLOUD_INSTANCES[name]!.nic, nicIsAssumed: true });
    }
    const said = parseSystem("2x p5.48xlarge --nic 8xNDR")?.environment;
    expect(said).toMatchObject({ nic: "8xNDR" });
    expect(said).not.toHaveProperty("nicIsAssumed");
    expect(parseSystem("2x Standard_ND96isr_H100_v5")?.devices).toHaveLength(18);
    expect(presetInventory("p3dn.24xlarge").devices[1]?.name).toMatch(/V100-SXM2-32GB/);
  });

  it("give A800 and H800 the NVLinks that they have, 400 GB/s both ways", () => {
    const linkGBps = (name: string) =>
      parseSystem(name)?.topology.links.find(({ kind }) => kind === "nvlink")?.bandwidthGBps ?? 0;
    expect(linkGBps("8x h800")).toBeCloseTo(212.5, 0);
    expect(linkGBps("8x a800")).toBe(200);
    expect(linkGBps("8x h20")).toBeCloseTo(478.1, 1);
  });

  it("cite a source for every part, and recognise each by its own name", () => {
    for (const part of PARTS) {
      expect(part.source.length).toBeGreaterThan(8);
      expect(PARTS.find((p) => p.family === part.family && p.match.test(part.name))?.key).toBe(part.key);
    }
  });
});
