/** Registered buffers over the stand-in of NCCL 2.28.3, which reports what that version must not be given (NVIDIA/nccl#1859). */
import { afterAll, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  fakeGpuFolder,
  heldByFakeGpu,
  NOTHING_HELD,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";
import { launch, type World } from "../../world/index.ts";
import type { NcclCommunicator } from "./communicator.ts";

const library = buildFakeGpu();
useFakeGpu();

describe.skipIf(library === undefined)("registered buffers (needs a C++ compiler)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());
  const backendOptions = { registerBuffers: true, timeoutMs: 8_000 };
  const registered = { backend: "nccl", backendOptions } as const;

  /** Every operation on the same two tensors, twice, in an order that `seed` chooses; and once more from a graph. */
  const mixed = async (world: World, { seed }: { readonly seed: number }) => {
    const { rank, size } = world;
    const comm = world.comm as NcclCommunicator;
    const x = world.tensor("f32", [size * 300]);
    const y = world.tensor("f32", [size * 300]);
    const [a, b] = [x.slice(7, 7 + 2 * size), y.slice(3, 3 + 2 * size)];
    const own = a.slice(0, 2);
    const counts = Array.from({ length: size }, () => 2);
    const calls = [
      () => comm.allReduce(a, { output: b }),
      () => comm.broadcast(a, { root: size - 1, output: b }),
      () => comm.allGather(own, { output: b }),
      () => comm.allGatherV(own, { counts, output: b }),
      () => comm.allToAll(a, { output: b }),
      () => comm.allToAllV(a, { sendCounts: counts, recvCounts: counts, output: b }),
      () => comm.scatter(rank === 0 ? a : own, { root: 0, output: b.slice(0, 2) }),
      () => comm.gather(own, { root: 0, ...(rank === 0 ? { output: b } : {}) }),
      () => comm.batch(() => [comm.send(own, (rank + 1) % size), comm.recv(b.slice(0, 2), (rank + size - 1) % size)]),
    ];
    const fresh = () => {
      world.upload(
        x,
        new Float32Array(x.size).map((_, i) => rank * 1000 + i),
      );
      world.upload(y, new Float32Array(y.size).fill(-1));
    };
    let state = seed;
    const drawn = () => (state = (state * 48271) % 2147483647);
    const results: number[][] = calls.map(() => []);
    for (let round = 0; round < 2; round++) {
      const order = calls.map((_, i) => i);
      for (let i = order.length - 1; i > 0; i--) {
        const k = drawn() % (i + 1);
        [order[i], order[k]] = [order[k] ?? 0, order[i] ?? 0];
      }
      for (const i of order) {
        fresh();
        await calls[i]?.();
        results[i]?.push(...world.download(b));
      }
    }
    fresh();
    const graph = comm.capture((group) => {
      group.allToAll(a, { output: b });
      group.allReduce(b, { output: a });
    });
    await comm.replay(graph);
    const replayed = [...world.download(a)];
    graph.close();
    return { results, replayed };
  };

  it.each([
    ["threads", "thread", 3],
    ["processes", "process", 3],
  ] as const)(
    "serve sends and collectives alike, in any order, ranks as %s",
    { timeout: 60_000 },
    async (_, isolation, ranks) => {
      const before = heldByFakeGpu(library ?? "");
      const seed = 1 + Math.floor(Math.random() * 2 ** 30);
      const run = { ...registered, isolation, ranks, run: mixed, data: { seed } } as const;
      const env = isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {};
      const said: string[] = [];
      const outcome = await launch({ ...run, env, onOutput: ({ text }) => said.push(text) });
      const plain = await launch({ ...run, env, backendOptions: { timeoutMs: 8_000 } });
      expect(outcome, `seed ${seed}`).toEqual(plain);
      // The stand-in writes what it must not be given on stderr; among threads it counts it too.
      expect(said.filter((text) => text.includes("stand-in"))).toEqual([]);
      expect(heldByFakeGpu(library ?? "")).toEqual(before);
    },
  );

  it("tell ranks of which only some reduce in place, which NCCL would not", async () => {
    const codes = await launch({
      ...registered,
      ranks: 2,
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        const y = world.tensor("f32", [64]);
        await world.comm.allReduce(x);
        await world.comm.allReduce(x, { output: y });
        const work = world.rank === 0 ? world.comm.allReduce(x) : world.comm.allReduce(x, { output: y });
        return work.then(
          () => "done",
          (error) => `${error.code} ${error.message}`,
        );
      },
    });
    for (const text of codes) {
      expect(text).toMatch(/^MISMATCH /);
      expect(text).toMatch(/rank 0: all_reduce.* in place/s);
      expect(text).toMatch(/rank 1: all_reduce.* into another tensor/s);
    }
  });

  it("are left out, and nothing hangs, where NCCL's memory has no handles", async () => {
    const results = await launch({
      ...registered,
      ranks: 2,
      env: { NCCL_CUMEM_ENABLE: "0", FAKE_GPU_FOLDER: folder.path },
      isolation: "process",
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        world.upload(x, new Float32Array(64).fill(1));
        const y = await world.comm.allToAll(x);
        await world.comm.allReduce(y);
        return world.download(y)[63];
      },
    }).catch((error) => error);
    expect(results).toEqual([2, 2]);
  });

  it("hold nothing when all is over", () => {
    expect(heldByFakeGpu(library ?? "")).toEqual(NOTHING_HELD);
  });
});
