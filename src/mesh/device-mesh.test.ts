import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Device } from "../machine/topology/index.ts";
import { createMesh, type DeviceMesh, hybridMesh, meshFor, meshSchema, parseMesh, replicaSize } from "./index.ts";

const gpu = (index: number, more: Partial<Device> = {}): Device => ({
  id: `gpu${index}`,
  family: "nvidia-gpu",
  vendor: "nvidia",
  name: "test GPU",
  index,
  memoryBytes: 1000 + index,
  visible: true,
  details: { computeUnits: 10 },
  ...more,
});
const cpu: Device = { id: "cpu0", family: "cpu", vendor: "x", name: "CPU", index: 0, visible: true };

/** Axis sizes with at most 512 ranks. */
const sizes = fc
  .uniqueArray(fc.constantFrom("dp", "pp", "ep", "cp", "tp"), { minLength: 1, maxLength: 4 })
  .chain((names) =>
    fc
      .array(fc.integer({ min: 1, max: 5 }), { minLength: names.length, maxLength: names.length })
      .map((values) => Object.fromEntries(names.map((name, i) => [name, values[i]!]))),
  );
const seed = Number(process.env.CHORALE_SEED ?? Date.now() % 1_000_000);
const property = (body: fc.IProperty<[Record<string, number>]>) => fc.assert(body, { seed, numRuns: 100 });

describe(`a mesh (property seed ${seed})`, () => {
  it("counts ranks with the last axis contiguous", () => {
    const mesh = createMesh({ dp: 2, pp: 3, tp: 4 });
    for (let dp = 0, rank = 0; dp < 2; dp++) {
      for (let pp = 0; pp < 3; pp++) {
        for (let tp = 0; tp < 4; tp++, rank++) {
          expect(mesh.rankOf({ dp, pp, tp })).toBe((dp * 3 + pp) * 4 + tp);
          expect(mesh.coordsOf(rank)).toEqual({ dp, pp, tp });
        }
      }
    }
    expect(mesh.size).toBe(24);
    expect(mesh.sizeOf(["dp", "tp"])).toBe(8);
  });

  it("takes coordinates to ranks and back, for any sizes", () => {
    property(
      fc.property(sizes, (axes) => {
        const mesh = createMesh(axes);
        const seen = new Set<string>();
        for (let rank = 0; rank < mesh.size; rank++) {
          const coords = mesh.coordsOf(rank);
          seen.add(JSON.stringify(coords));
          expect(mesh.rankOf(coords)).toBe(rank);
        }
        expect(seen.size).toBe(Object.values(axes).reduce((a, b) => a * b, 1));
      }),
    );
  });

  it("partitions the world along every axis and product of axes, for any sizes", () => {
    property(
      fc.property(sizes, (axes) => {
        const mesh = createMesh(axes);
        const names = Object.keys(axes);
        for (let mask = 1; mask < 1 << names.length; mask++) {
          const along = names.filter((_, i) => mask & (1 << i));
          const groups = mesh.groups(along);
          const size = along.reduce((product, name) => product * axes[name]!, 1);
          expect(groups.flatMap(({ ranks }) => ranks).sort((a, b) => a - b)).toEqual([...Array(mesh.size).keys()]);
          for (const group of groups) {
            expect(group.ranks).toHaveLength(size);
            // Members differ along these axes only.
            const others = names.filter((name) => !along.includes(name));
            for (const name of others) {
              expect(new Set(group.ranks.map((rank) => mesh.coordsOf(rank)[name])).size).toBe(1);
            }
          }
        }
        expect(new Set(mesh.groupNames()).size).toBe(mesh.groupNames().length);
      }),
    );
  });

  it("survives JSON, for any sizes", () => {
    property(
      fc.property(sizes, (axes) => {
        const mesh = createMesh(axes).addGroup("first", [0]);
        const document: unknown = JSON.parse(JSON.stringify(mesh));
        expect(meshSchema.parse(document)).toEqual(document);
        const back = parseMesh(document);
        expect(back.toJSON()).toEqual(document);
        expect(back.axes).toEqual(mesh.axes);
        expect(back.allGroups()).toEqual(mesh.allGroups());
      }),
    );
  });

  it("works out one auto axis", () => {
    expect(createMesh({ dp: "auto", tp: 2 }, { worldSize: 6 }).shape).toEqual({ dp: 3, tp: 2 });
    expect(createMesh({ dp: "auto" }, { devices: [gpu(0), gpu(1)] }).shape).toEqual({ dp: 2 });
  });

  it.each([
    [() => createMesh({ dp: 2, pp: 1, tp: 3 }, { worldSize: 8 }), "dp 2 x pp 1 x tp 3 = 6 != 8 ranks"],
    [() => createMesh({ dp: "auto", tp: 3 }, { worldSize: 8 }), "tp 3 = 3, and 8 / 3 = 2.66"],
    [() => createMesh({ dp: "auto", tp: "auto" }, { worldSize: 8 }), "at most one axis"],
    [() => createMesh({ dp: "auto" }), "worldSize or devices"],
    [() => createMesh({}), "at least one axis"],
    [() => createMesh({ dp: 0 }), "size of axis dp is 0"],
    [() => createMesh({ dp: 1.5 }), "size of axis dp is 1.5"],
    [() => createMesh({ dp: Number.NaN }), "size of axis dp"],
    [() => createMesh({ "0": 1 }), "axis name"],
    [() => createMesh({ constructor: 2 }), "axis name"],
    [() => createMesh({ dp: 1 }, { worldSize: 0 }), "worldSize is 0"],
    [() => createMesh({ dp: 2 }, { devices: [gpu(0)] }), "dp 2 = 2 != 1 ranks"],
    [() => createMesh({ dp: 2 }, { worldSize: 2, devices: [gpu(0)] }), "one for each of 2 ranks"],
    [() => createMesh({ dp: 2 }, { devices: [gpu(0), cpu] }), "nvidia-gpu and cpu"],
    [() => createMesh({ dp: 2 }, { rank: 2 }), "rank is 2; expected an integer from 0 to 1"],
  ])("refuses wrong sizes and says why (%#)", (make, message) => {
    expect(make).toThrow(message);
  });

  it("is frozen", () => {
    const mesh = createMesh({ dp: 2 }, { devices: [gpu(0), gpu(1)] });
    for (const value of [mesh, mesh.axes, mesh.shape, mesh.devices, mesh.groups("dp"), mesh.groups("dp")[0]?.ranks]) {
      expect(Object.isFrozen(value)).toBe(true);
    }
  });

  it("draws itself", () => {
    expect(createMesh({ pp: 2, dp: 2, tp: 6 }).toString()).toMatchInlineSnapshot(`
      "pp 0
           tp  0   1   2   3   4   5
      dp 0     0   1   2   3   4   5
         1     6   7   8   9  10  11

      pp 1
           tp  0   1   2   3   4   5
      dp 0    12  13  14  15  16  17
         1    18  19  20  21  22  23"
    `);
    expect(createMesh({ tp: 3 }).toString()).toMatchInlineSnapshot(`
      "tp 0  1  2
         0  1  2"
    `);
  });
});

describe("groups", () => {
  const mesh = createMesh({ dp: 2, pp: 2, tp: 2 }, { rank: 5 });

  it("are named by where they stand", () => {
    expect(mesh.group("tp")).toEqual({ name: "tp[dp=1,pp=0]", axes: ["tp"], at: { dp: 1, pp: 0 }, ranks: [4, 5] });
    expect(mesh.group("pp")).toMatchObject({ name: "pp[dp=1,tp=1]", ranks: [5, 7] });
    expect(mesh.group("dp")).toMatchObject({ name: "dp[pp=0,tp=1]", ranks: [1, 5] });
    expect(mesh.group(["tp", "dp"])).toMatchObject({ name: "dp*tp[pp=0]", ranks: [0, 1, 4, 5] });
    expect(mesh.group(["dp", "pp", "tp"])).toMatchObject({ name: "world", ranks: [0, 1, 2, 3, 4, 5, 6, 7] });
    expect(mesh.group("tp", 2).ranks).toEqual([2, 3]);
  });

  it("tell membership and place", () => {
    expect(mesh.groupRank("pp[dp=1,tp=1]", 7)).toBe(1);
    expect(mesh.groupRank("pp[dp=1,tp=1]", 0)).toBeUndefined();
    expect(mesh.inGroup("pp[dp=1,tp=1]")).toBe(true);
    expect(mesh.inGroup("tp[dp=0,pp=0]")).toBe(false);
    expect(() => mesh.getGroup("nope")).toThrow(/expected one of world, /);
    expect(() => createMesh({ dp: 2 }).group("dp")).toThrow("mesh.withRank()");
    expect(() => mesh.group("tp", 8)).toThrow("from 0 to 7");
  });

  it("can be custom, with checked ranks", () => {
    const more = mesh.addGroup("experts", [6, 1, 3]);
    expect(more.getGroup("experts").ranks).toEqual([6, 1, 3]);
    expect(more.groupRank("experts", 1)).toBe(1);
    expect(mesh.groupNames()).not.toContain("experts");
    expect(() => more.addGroup("experts", [0])).toThrow("a name that no group of the mesh has");
    expect(() => mesh.addGroup("world", [0])).toThrow("a name that no group of the mesh has");
    expect(() => mesh.addGroup("tp[dp=0,pp=0]", [0])).toThrow("a name that no group of the mesh has");
    expect(() => mesh.addGroup("x", [])).toThrow("at least one rank");
    expect(() => mesh.addGroup("x", [1, 2, 1])).toThrow("1 comes twice");
    expect(() => mesh.addGroup("x", [8])).toThrow("from 0 to 7");
    expect(() => mesh.addGroup("", [0])).toThrow("group name");
  });

  it("are built anew by reshape; custom ones stay", () => {
    const shaped = mesh.addGroup("pair", [0, 7]).reshape({ dp: 2, tp: "auto" });
    expect(shaped.group("tp", 5).ranks).toEqual([4, 5, 6, 7]);
    expect(shaped.groupNames().some((name) => name.includes("pp"))).toBe(false);
    expect(shaped.getGroup("pair").ranks).toEqual([0, 7]);
    expect(shaped.rank).toBe(5);
    expect(() => mesh.reshape({ tp: 4 })).toThrow("tp 4 = 4 != 8 ranks");
  });
});

describe("devices of a mesh", () => {
  const devices = [gpu(0), gpu(1), gpu(2), gpu(3)];
  const mesh = createMesh({ dp: 2, tp: 2 }, { devices, rank: 2 });

  it("are asked for by rank, group, family and backend", () => {
    expect(mesh.device()?.id).toBe("gpu2");
    expect(mesh.device(1)?.id).toBe("gpu1");
    expect(() => mesh.device(4)).toThrow("from 0 to 3");
    expect(mesh.devicesInGroup(mesh.group("dp")).map(({ id }) => id)).toEqual(["gpu0", "gpu2"]);
    const mixed = createMesh({ dp: 3 }, { devices: [gpu(0), cpu, cpu], allowMixedFamilies: true });
    expect(mixed.devicesByFamily("cpu")).toEqual([cpu]);
    expect(mixed.devicesByBackend("cuda").map(({ id }) => id)).toEqual(["gpu0"]);
    expect(mixed.devicesByBackend("rocm")).toEqual([]);
    expect(createMesh({ dp: 1 }).device(0)).toBeUndefined();
  });

  it("are summed up, shared ones once", () => {
    expect(mesh.stats()).toEqual({
      worldSize: 4,
      numDevices: 4,
      totalMemoryBytes: 4006,
      numDevicesOfUnknownMemory: 0,
      totalComputeUnits: 40,
      numDevicesOfUnknownComputeUnits: 0,
      backends: { cuda: 4 },
      numGroups: 1 + 2 + 2,
    });
    expect(createMesh({ tp: 3 }, { devices: [cpu, cpu, cpu] }).stats()).toMatchObject({
      numDevices: 1,
      totalMemoryBytes: 0,
      numDevicesOfUnknownMemory: 1,
      backends: { cpu: 1 },
    });
  });

  it("survive JSON", () => {
    expect(parseMesh(JSON.parse(JSON.stringify(mesh))).devices).toEqual(devices);
  });
});

describe("topologies", () => {
  it("give axes, and every rank a place", () => {
    const options = { worldSize: 8 };
    expect(meshFor({ kind: "data-parallel" }, options).shape).toEqual({ dp: 8 });
    expect(meshFor({ kind: "tensor-parallel", degree: 4 }, options).shape).toEqual({ dp: 2, tp: 4 });
    expect(meshFor({ kind: "pipeline-parallel", stages: 4 }, options).shape).toEqual({ dp: 2, pp: 4 });
    expect(meshFor({ kind: "mixed", tp: 2, pp: 2, dp: 2 }, options).group("pp", 1).ranks).toEqual([1, 3]);
    const grid = meshFor({ kind: "tensor-parallel", degree: 4, meshShape: [2, 2] }, options);
    expect(grid.shape).toEqual({ dp: 2, tpr: 2, tpc: 2 });
    expect(grid.group(["tpr", "tpc"], 6).ranks).toEqual([4, 5, 6, 7]);
  });

  it("say how many ranks a replica needs", () => {
    expect(replicaSize({ kind: "data-parallel" })).toBe(1);
    expect(replicaSize({ kind: "tensor-parallel", degree: 4 })).toBe(4);
    expect(replicaSize({ kind: "pipeline-parallel", stages: 3 })).toBe(3);
    expect(replicaSize({ kind: "mixed", tp: 2, pp: 3, dp: 4 })).toBe(24);
  });

  it("refuse what leaves ranks over", () => {
    const options = { worldSize: 6 };
    expect(() => meshFor({ kind: "tensor-parallel", degree: 4 }, options)).toThrow("6 / 4 = 1.5");
    expect(() => meshFor({ kind: "tensor-parallel", degree: 0 }, options)).toThrow("size of axis tp is 0");
    expect(() => meshFor({ kind: "tensor-parallel", degree: 6, meshShape: [2, 2] }, options)).toThrow("2 x 2 = 4 != 6");
    expect(() => meshFor({ kind: "mixed", tp: 2, pp: 2, dp: 2 }, options)).toThrow("dp 2 x pp 2 x tp 2 = 8 != 6 ranks");
  });
});

describe("a mesh over nodes", () => {
  it("keeps inner axes within a node", () => {
    const mesh = hybridMesh({ numNodes: 2, ranksPerNode: 8, across: { pp: 1, dp: 2 }, within: { dp: 2, tp: 4 } });
    expect(mesh.shape).toEqual({ pp: 1, dp: 4, tp: 4 });
    for (const { ranks } of mesh.groups("tp")) {
      expect(new Set(ranks.map((rank) => Math.floor(rank / 8))).size).toBe(1);
    }
    expect(mesh.group("dp", 0).ranks).toEqual([0, 4, 8, 12]);
  });

  it("refuses parts that do not multiply, axes in two places, and parts that are missing", () => {
    const nodes = { numNodes: 2, ranksPerNode: 4 };
    expect(() => hybridMesh({ ...nodes, across: { dp: 2 } } as never)).toThrow(
      "axes is undefined; expected at least one",
    );
    expect(() => hybridMesh({ ...nodes, across: { dp: 3 }, within: { tp: 4 } })).toThrow("dp 3 = 3 != 2 ranks");
    expect(() => hybridMesh({ ...nodes, across: { dp: 2 }, within: { tp: 2, dp: 2 } })).toThrow(
      "axis dp in one of them",
    );
    expect(hybridMesh({ ...nodes, across: { dp: "auto" }, within: { tp: "auto" } }).shape).toEqual({ dp: 2, tp: 4 });
  });
});

describe("a mesh document", () => {
  it.each([
    [{}, "schemaVersion"],
    [{ schemaVersion: 2, axes: [{ name: "dp", size: 1 }], customGroups: [] }, "schemaVersion"],
    [{ schemaVersion: 1, axes: [], customGroups: [] }, "axes"],
    [
      {
        schemaVersion: 1,
        axes: [
          { name: "dp", size: 1 },
          { name: "dp", size: 2 },
        ],
        customGroups: [],
      },
      "comes twice",
    ],
    [{ schemaVersion: 1, axes: [{ name: "dp", size: 2 }], customGroups: [{ name: "x", ranks: [2] }] }, "from 0 to 1"],
    [{ schemaVersion: 1, axes: [{ name: "dp", size: 2 }], devices: [gpu(0)], customGroups: [] }, "!= 1 ranks"],
    [null, "document"],
  ])("that is wrong is refused (%#)", (document, message) => {
    expect(() => parseMesh(document, "file.json")).toThrow(message);
    expect(() => parseMesh(document, "file.json")).toThrow("file.json");
  });
});

/** Types alone: this function compiles, and is never called. */
export function types(mesh: DeviceMesh<"dp" | "tp">): void {
  mesh.group("tp");
  mesh.group(["dp", "tp"]);
  const made = createMesh({ dp: 2, tp: "auto" }, { worldSize: 4 });
  made.shape.dp satisfies number;
  made.rankOf({ dp: 0, tp: 1 });
  // @ts-expect-error the mesh has no axis pp
  mesh.group("pp");
  // @ts-expect-error the mesh has no axis pp
  made.groups(["dp", "pp"]);
  // @ts-expect-error a coordinate is missing
  made.rankOf({ dp: 0 });
  // @ts-expect-error the mesh has no axis pp
  void made.shape.pp;
  // @ts-expect-error after reshape, tp is gone
  made.reshape({ dp: 4 }).group("tp");
  hybridMesh({ numNodes: 2, ranksPerNode: 2, across: { dp: 2 }, within: { tp: 2 } }).group("tp", 0);
  // @ts-expect-error a topology without pipeline stages has no axis pp
  meshFor({ kind: "data-parallel" }, { worldSize: 2 }).group("pp");
}
