/** Graphs of collectives and work of the program's own, over the stand-in library. */
import { launch } from "chorale/world";
import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";

const available = useFakeGpu();

describe.skipIf(!available)("graphs and order (needs a C++ compiler)", () => {
  it("records copies of the program among collectives, in their place, and replays both", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { devicePtr } = await import("chorale/cuda");
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const x = world.tensor("f32", [4]);
        const y = world.tensor("f32", [4]);
        await comm.allReduce(x);
        const graph = comm.capture((group) => {
          group.allReduce(x);
          const [to, from] = [devicePtr(y, at.device), devicePtr(x, at.device)];
          at.device.call("cuMemcpyDtoDAsync_v2", "copy", to, from, 16, comm.stream.handle);
          group.allReduce(x);
        });
        world.upload(x, Float32Array.of(1, 2, 3, 4));
        const before = [...world.download(y)];
        comm.replay(graph);
        // The main stream, which downloads, comes after.
        comm.orderBefore(at.main);
        const once = [[...world.download(x)], [...world.download(y)]];
        comm.replay(graph);
        comm.synchronize();
        const twice = [[...world.download(x)], [...world.download(y)]];
        graph.close();
        return { before, once, twice };
      },
    });
    const scaled = (by: number) => [1, 2, 3, 4].map((value) => value * by);
    for (const { before, once, twice } of results) {
      expect(before).toEqual([0, 0, 0, 0]);
      expect(once).toEqual([scaled(4), scaled(2)]);
      expect(twice).toEqual([scaled(16), scaled(8)]);
    }
  });

  it("refuses what no graph can hold, and goes on", async () => {
    const [found] = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [4]);
        await comm.barrier();
        const refusals = [
          () => comm.capture((group) => void group.allReduce(x)),
          () => comm.capture((group) => void group.allReduce(new Float32Array(4))),
          () => comm.capture((group) => void group.barrier()),
        ].map((fn) => {
          try {
            fn();
            return "accepted";
          } catch (error) {
            return String(error);
          }
        });
        world.upload(x, Float32Array.of(1, 1, 1, 1));
        await comm.allReduce(x);
        return { refusals, sum: [...world.download(x)] };
      },
    });
    expect(found?.refusals[0]).toMatch(/make all_reduce once outside of the graph/);
    expect(found?.refusals[1]).toMatch(/device tensors only/);
    expect(found?.refusals[2]).toMatch(/inside capture\(\)/);
    expect(found?.sum).toEqual([2, 2, 2, 2]);
  });
});
