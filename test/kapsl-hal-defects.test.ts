/**
 * The defects of kapsl-hal 0.1.0's mesh and communication (device_mesh.rs, mock_comm.rs, nccl_comm.rs), each with what
 * shows that it is not here. Numbers are those of docs/parity.md.
 */
import { DTYPE_NAMES, newArray } from "chorale";
import { findDevices } from "chorale/hardware";
import { createMesh, meshFor } from "chorale/mesh";
import type { Device } from "chorale/topology";
import { closeRankPool, launch, runRanks } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { useFakeGpu } from "./helpers/fake-gpu.ts";

const gpu = (index: number, more: Partial<Device> = {}): Device => ({
  id: `gpu${index}`,
  family: "nvidia-gpu",
  vendor: "nvidia",
  name: "test GPU",
  index,
  visible: true,
  ...more,
});
const cpu: Device = { id: "cpu0", family: "cpu", vendor: "x", name: "CPU", index: 0, visible: true };

afterAll(closeRankPool);

describe("kapsl-hal's defects: mesh and devices", () => {
  it("B5.5: every axis and product of axes has groups, and nobody is left over", () => {
    const mesh = meshFor({ kind: "mixed", tp: 2, pp: 2, dp: 2 }, { worldSize: 8 });
    for (const axes of ["tp", "pp", "dp", ["pp", "tp"], ["dp", "tp"], ["dp", "pp"]] as const) {
      const groups = mesh.groups(axes as never);
      expect(groups.flatMap(({ ranks }) => ranks).sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    }
    expect(meshFor({ kind: "tensor-parallel", degree: 2 }, { worldSize: 6 }).groups("dp")).toHaveLength(2);
    expect(meshFor({ kind: "pipeline-parallel", stages: 2 }, { worldSize: 4 }).group("pp", 3).ranks).toEqual([2, 3]);
    expect(() => meshFor({ kind: "tensor-parallel", degree: 4 }, { worldSize: 6 })).toThrow("6 / 4 = 1.5");
    expect(() => meshFor({ kind: "tensor-parallel", degree: 0 }, { worldSize: 6 })).toThrow("tp is 0");
    expect(() => meshFor({ kind: "tensor-parallel", degree: 6, meshShape: [2, 2] }, { worldSize: 6 })).toThrow("!= 6");
    expect(() => createMesh({ tp: 2 }, { devices: [gpu(0), gpu(1), gpu(2)] })).toThrow("2 != 3 ranks");
  });

  it("B5.6: reshape makes new groups, and a group of one's own is checked", () => {
    const mesh = createMesh({ dp: 2, tp: 2 }).addGroup("edge", [0, 3]);
    const other = mesh.reshape({ dp: 4 });
    expect(other.groups("dp").map(({ ranks }) => ranks)).toEqual([[0, 1, 2, 3]]);
    expect(() => (other as typeof mesh).group("tp", 0)).toThrow(/tp/);
    for (const [name, ranks] of [
      ["twice", [1, 1]],
      ["none", []],
      ["far", [4]],
      ["world", [0]],
      ["edge", [0]],
    ] as const) {
      expect(() => mesh.addGroup(name, [...ranks])).toThrow();
    }
  });

  it("B5.10: versions and architectures are compared as numbers, and an AMD GPU is found by what it has", () => {
    const devices = [
      gpu(0, { arch: "9.0", memoryBytes: 80e9 }),
      gpu(1, { arch: "10.0", memoryBytes: 180e9 }),
      gpu(2, { id: "gpu2", family: "amd-gpu", vendor: "amd", arch: "gfx942", memoryBytes: 192e9 }),
    ];
    const inventory = { schemaVersion: 1 as const, devices, topology: { nodes: [], links: [] }, warnings: [] };
    const ids = (requirements: Parameters<typeof findDevices>[1]) =>
      findDevices(inventory, requirements).map((d) => d.id);
    expect(ids({ family: "nvidia-gpu", arch: "9.0" })).toEqual(["gpu1", "gpu0"]);
    expect(ids({ arch: "10.0" })).toEqual(["gpu1"]);
    expect(ids({ minMemory: "100G" })).toEqual(["gpu2", "gpu1"]);
    expect(new Set(devices.map(({ id }) => id)).size).toBe(devices.length);
  });

  it("B5.11: where requests enter follows from the mesh: each replica's first rank, of stage 0 and tp 0", () => {
    const mesh = createMesh({ dp: 3, pp: 2, tp: 2 });
    const entries = mesh.groups(["pp", "tp"]).map(({ ranks }) => ranks[0] ?? -1);
    expect(entries).toEqual([0, 4, 8]);
    for (const rank of entries) expect(mesh.coordsOf(rank)).toMatchObject({ pp: 0, tp: 0 });
  });

  it("B5.12: devices of different kinds make no mesh unless that is asked for", () => {
    expect(() => createMesh({ dp: 2 }, { devices: [gpu(0), cpu] })).toThrow(/allowMixedFamilies/);
    expect(createMesh({ dp: 2 }, { devices: [gpu(0), cpu], allowMixedFamilies: true }).size).toBe(2);
  });
});

describe("kapsl-hal's defects: communication on the CPU", () => {
  it("B5.3: a collective of a group is of that group", async () => {
    const sums = await runRanks(4, async (world) => {
      const mesh = world.mesh({ dp: 2, tp: 2 });
      const [tp, dp] = [await world.communicator(mesh, "tp"), await world.communicator(mesh, "dp")];
      const sum = async (comm: typeof tp) => (await comm.allReduce(new Int32Array([10 ** world.rank]))).data[0];
      return [await sum(tp), await sum(dp), await sum(world.comm)];
    });
    expect(sums).toEqual([
      [11, 101, 1111],
      [11, 1010, 1111],
      [1100, 101, 1111],
      [1100, 1010, 1111],
    ]);
  });

  it("B5.4: every dtype reduces and gathers, and lengths that do not fit are refused before anything moves", async () => {
    const found = await runRanks(
      2,
      async (world, names) => {
        const { newArray } = await import("chorale");
        const { comm } = world;
        for (const dtype of names) {
          const one = () => newArray(dtype, 2);
          await comm.allReduce(one(), { dtype });
          await comm.reduceScatter(one(), { dtype });
          await comm.allGather(one(), { dtype });
        }
        const code = (fn: () => unknown) => {
          try {
            fn();
            return "accepted";
          } catch (error) {
            return (error as { code?: string }).code;
          }
        };
        const refused = [
          code(() => comm.reduceScatter(new Float32Array(3))),
          code(() => comm.allGather(new Float32Array(2), { output: new Float32Array(3) })),
          code(() => comm.allToAll(new Float32Array(5))),
          code(() => comm.allReduce(new Float32Array(2), { output: new Float32Array(1) })),
          code(() => comm.allReduce(new Float32Array(2), { output: new Float64Array(2) })),
        ];
        const after = await comm.allReduce(new Float32Array([1]));
        return { refused, after: after.data[0] };
      },
      { data: DTYPE_NAMES },
    );
    expect(found[0]).toEqual({ refused: Array(5).fill("INVALID_ARGUMENT"), after: 2 });
    expect(newArray("f64", 1)).toBeInstanceOf(Float64Array);
  });

  it("B5.8: results wait for the last rank, rounds do not mix, and messages have a place of their own", async () => {
    const found = await runRanks(3, async (world) => {
      const { comm, rank } = world;
      const rounds: number[] = [];
      for (let round = 0; round < 20; round++) {
        // Whoever is late, nobody goes on without it.
        if (round % 3 === rank) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3);
        rounds.push(Number((await comm.allReduce(new Uint8Array([round + rank]))).data[0]));
      }
      const average = await comm.allReduce(new Int32Array([rank === 0 ? -5 : 0]), { op: "avg" });
      const to = (rank + 1) % 3;
      const from = (rank + 2) % 3;
      for (let i = 0; i < 3; i++) comm.send(new Int32Array([100 * rank + i]), to);
      const got: number[] = [];
      const box = new Int32Array(1);
      for (let i = 0; i < 3; i++) {
        await comm.recv(box, from);
        got.push(box[0] ?? -1);
      }
      return { rounds, average: average.data[0], got };
    });
    const expected = Array.from({ length: 20 }, (_, round) => 3 * round + 3);
    found.forEach(({ rounds, average, got }, rank) => {
      expect(rounds).toEqual(expected);
      expect(average).toBe(-1);
      const from = (rank + 2) % 3;
      expect(got).toEqual([100 * from, 100 * from + 1, 100 * from + 2]);
    });
  });

  it("B5.9: ranks of one world share it, without being given anything", async () => {
    expect(await runRanks(3, (world) => world.comm.gatherObjects(world.rank).wait())).toEqual(Array(3).fill([0, 1, 2]));
  });
});

describe("kapsl-hal's defects: NCCL", () => {
  it("B5.1: the nccl and cuda rooms load without a GPU, and every dtype has its NCCL number", async () => {
    const [nccl, cuda] = await Promise.all([import("chorale/nccl"), import("chorale/device")]);
    expect(typeof nccl.loadNccl).toBe("function");
    expect(typeof cuda.loadCudaDriver).toBe("function");
    const { NCCL_DTYPE } = await import("../src/foreign/nccl/symbols.ts");
    expect(Object.keys(NCCL_DTYPE).sort()).toEqual([...DTYPE_NAMES].sort());
    expect(NCCL_DTYPE).toMatchObject({ i8: 0, f64: 8, bf16: 9 });
  });

  const available = useFakeGpu();
  describe.skipIf(!available)("over a stand-in library (needs g++)", () => {
    it("B5.2: device tensors are reduced where they lie, without a copy to or from the host", async () => {
      const [found] = await launch({
        ranks: 2,
        backend: "nccl",
        run: async (world) => {
          const { deviceOf } = await import("chorale/world");
          const { comm } = world;
          const device = deviceOf(world)?.device;
          if (device === undefined) throw new Error("no device");
          const copies: string[] = [];
          const call = device.call.bind(device);
          device.call = (symbol, ...rest) => {
            if (/cuMemcpy(HtoD|DtoH)/.test(symbol)) copies.push(symbol);
            return call(symbol, ...rest);
          };
          const x = world.tensor("f32", [1000]);
          const y = world.tensor("f32", [2000]);
          await comm.barrier();
          const count = async (run: () => PromiseLike<unknown>) => {
            const before = copies.length;
            await run();
            return copies.length - before;
          };
          return {
            inPlace: await count(() => comm.allReduce(x)),
            gathered: await count(() => comm.allGather(x, { output: y })),
            received: await count(() =>
              comm.batch((group) => {
                group.send(x, 1 - comm.rank);
                group.recv(y.slice(0, 1000), 1 - comm.rank);
              }),
            ),
            // What is counted here would be seen.
            fromHost: await count(() => comm.allReduce(new Float32Array(1000))),
          };
        },
      });
      expect(found).toEqual({ inPlace: 0, gathered: 0, received: 0, fromHost: 2 });
    });

    it("B5.7: a rank's device is its place among the visible ones, and a peer that never comes is named in time", async () => {
      const found = await launch({
        ranks: 2,
        backend: "nccl",
        run: async (world) => {
          const { deviceOf } = await import("chorale/world");
          const { comm } = world;
          const group = await comm.split(0, comm.rank, { name: "ruined" });
          const ordinal = deviceOf(world)?.device.ordinal;
          let message = "";
          if (world.rank === 0) {
            const began = Date.now();
            await group?.allReduce(new Float32Array(4), { timeoutMs: 300 }).then(undefined, (error: Error) => {
              message = error.message;
            });
            if (Date.now() - began > 20_000) message = "late";
          }
          await comm.barrier();
          await group?.close().catch(() => {});
          return { ordinal, message };
        },
      });
      expect(found.map(({ ordinal }) => ordinal)).toEqual([0, 1]);
      expect(found[0]?.message).toMatch(
        /all_reduce.* did not complete within 300 ms; arrived: ranks \[0\], missing: ranks \[1\] \(last operation of rank 1: no operation yet\)/,
      );
    });
  });
});
