/** Registered buffers over the stand-in of NCCL 2.28.3, which reports what that version must not be given (NVIDIA/nccl#1859). */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { afterAll, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  fakeGpuFolder,
  heldByFakeGpu,
  NOTHING_HELD,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import type { World } from "../../world/index.ts";
import type { NcclCommunicator } from "./communicator.ts";
import { createNcclHost, releaseNcclHost } from "./nccl-host.ts";

const library = buildFakeGpu();
useFakeGpu();

describe.skipIf(library === undefined)("registered buffers (needs a C++ compiler)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());
  const backendOptions = { registerBuffers: true, timeoutMs: 20_000 };
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

  const worlds = [
    ["threads", "thread", 3],
    ["processes", "process", 3],
  ] as const;
  it.each(spread(worlds, 2))(
    "serve sends and collectives alike, in any order, ranks as %s",
    { timeout: 60_000 },
    async (_, isolation, ranks) => {
      const before = heldByFakeGpu(library ?? "");
      const seed = Number(process.env["CHORALE_SEED"] ?? 1 + Math.floor(Math.random() * 2 ** 30));
      const run = { ...registered, isolation, ranks, run: mixed, data: { seed } } as const;
      const env = isolation === "process" ? { FAKE_GPU_FOLDER: folder.path, NCCL_NVLS_ENABLE: "0" } : {};
      const said: string[] = [];
      const outcome = await launch({ ...run, env, onOutput: ({ text }) => said.push(text) });
      const plain = await launch({ ...run, env, backendOptions: { timeoutMs: 20_000 } });
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

  const processes = { ...registered, isolation: "process", ranks: 2 } as const;
  const alone = { FAKE_GPU_FOLDER: folder.path, NCCL_NVLS_ENABLE: "0" };

  it("are left out, and nothing hangs, where NCCL's memory has no handles", async () => {
    const said: string[] = [];
    const results = await launch({
      ...processes,
      env: { ...alone, NCCL_CUMEM_ENABLE: "0" },
      onOutput: ({ text }) => said.push(text),
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        world.upload(x, new Float32Array(64).fill(1));
        const y = await world.comm.allToAll(x);
        await world.comm.allReduce(y);
        return world.download(y)[63];
      },
    });
    expect(results).toEqual([2, 2]);
    // The stand-in would say so if memory without a second address were registered.
    expect(said).toEqual([]);
  });

  it("are refused where NCCL may use NVLS on them, before anything is sent", async () => {
    // Whatever the machine's own environment says.
    const env = { FAKE_GPU_FOLDER: folder.path, NCCL_NVLS_ENABLE: "1" };
    await expect(launch({ ...processes, env, run: () => 1 })).rejects.toThrow(
      /registerBuffers is true, with ranks as processes .*NVLS; expected NCCL_NVLS_ENABLE=0 in the environment, or ranks/,
    );
  });

  it("end the group on all ranks when NCCL does not take them on one", async () => {
    const codes = await launch({
      ...processes,
      env: { ...alone, FAKE_NCCL_NO_REGISTRATION_ON: "1" },
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        const told = async () => world.comm.allReduce(x).then(() => "done");
        return [await told().catch((error) => error.code), await told().catch((error) => error.message)];
      },
    });
    const cause = expect.stringContaining("ncclCommRegister returned 4");
    expect(codes).toEqual([
      ["ABORTED", cause],
      ["NATIVE", cause],
    ]);
  });

  it("are out of memory, in words, when there is none for their second addresses", async () => {
    const results = await launch({
      ...processes,
      env: { ...alone, FAKE_CUDA_MAPS: "1" },
      run: async (world) => {
        try {
          world.tensor("u8", [32 * 2 ** 20]);
          return "allocated";
        } catch (error) {
          await world.comm.barrier();
          return (error as { code?: string }).code;
        }
      },
    });
    expect(results).toEqual(["OUT_OF_MEMORY", "OUT_OF_MEMORY"]);
  });

  it("stay where a captured graph had them, whatever is freed", async () => {
    const given = await launch({
      ...registered,
      ranks: 2,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const comm = world.comm as NcclCommunicator;
        const [x, y] = [world.tensor("f32", [2 ** 22]), world.tensor("f32", [2 ** 22])];
        const other = world.tensor("f32", [2 ** 22]);
        await comm.allReduce(x, { output: y });
        comm.capture((group) => void group.allReduce(x, { output: y })).close();
        for (const tensor of [x, y, other]) world.free(tensor);
        await comm.barrier();
        return deviceOf(world)?.pool.trim();
      },
    });
    expect(given).toEqual([2 ** 24, 2 ** 24]);
  });

  it("are asked of all ranks alike, and of tensors of the world", async () => {
    const said = await launch({
      ...registered,
      ranks: 1,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { MemoryPool, deviceTensor } = await import("chorale/device");
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const own = deviceTensor(new MemoryPool(at.device), at.main, "f32", [4]);
        return (async () => world.comm.allReduce(own))().catch((error) => error.message);
      },
    });
    expect(said[0]).toMatch(/a memory pool of its own.*with registerBuffers, a tensor of the world/);
    const handle = createNcclHost({ ranks: 2 });
    const code = `
      const { workerData, parentPort } = require("node:worker_threads");
      import(workerData.module).then(async ({ attachNccl }) => {
        const backend = attachNccl(workerData.handle, workerData.rank, { timeoutMs: 20_000, registerBuffers: workerData.rank === 0 });
        const told = await (async () => backend.world.allReduce(Float32Array.of(1)))().then(() => "done", (error) => error.message);
        await backend.close().catch(() => {});
        parentPort.postMessage(told);
      });`;
    const module = new URL("../../../../.cache/dev/runtime/backends/nccl/index.js", import.meta.url).href;
    const env = { ...process.env, CHORALE_CUDA_LIBRARY: library ?? "", CHORALE_NCCL_LIBRARY: library ?? "" };
    const told = await Promise.all(
      [0, 1].map(async (rank) => {
        const worker = new Worker(code, { eval: true, env, workerData: { module, handle, rank } });
        // Node delivers the last messages of a thread that ends just before its end: both are waited for from the start.
        const ended = once(worker, "exit");
        const [message] = await once(worker, "message");
        await ended;
        return message as string;
      }),
    );
    releaseNcclHost(handle);
    for (const message of told)
      expect(message).toMatch(/rank 0: registerBuffers: true.*rank 1: registerBuffers: false/s);
  });

  it.each(["cuMemGetAddressRange_v2", "cuMemSetAccess"] as const)(
    "leave nothing of a thread that ends before %s",
    async (symbol) => {
      const before = heldByFakeGpu(library ?? "");
      const outcome = launch({
        ...registered,
        ranks: 2,
        data: { symbol },
        run: async (world, { symbol }) => {
          const { deviceOf } = await import("chorale/world");
          const mapping = deviceOf(world)?.device.driver.mapping as Record<typeof symbol, () => number>;
          const real = mapping[symbol];
          const end = () => {
            mapping[symbol] = real;
            return process.exit(3);
          };
          if (world.rank === 1) mapping[symbol] = end;
          world.tensor("f32", [2 ** 23]);
          await world.comm.barrier();
        },
      });
      await expect(outcome).rejects.toMatchObject({ code: "RANK_FAILED", rank: 1 });
      expect(heldByFakeGpu(library ?? "")).toEqual(before);
    },
  );

  it("hold nothing when all is over", () => {
    expect(heldByFakeGpu(library ?? "")).toEqual(NOTHING_HELD);
  });
});
