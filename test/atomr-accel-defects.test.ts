/**
 * The defects of atomr-accel 0.10's collectives (crates/atomr-accel-cuda), each with what shows that it is not here.
 * Numbers are those of docs/parity.md. Over a stand-in for libcuda and libnccl, so that every machine runs it.
 */
import { runRanks } from "chorale/world";
import { describe, expect, it } from "vitest";
import { decodeVersion, type NcclLibrary } from "../src/foreign/nccl/library.ts";
import { ncclCapabilities } from "../src/runtime/backends/nccl/capabilities.ts";
import type { CudaDeviceInfo } from "../src/runtime/device/index.ts";
import { useFakeGpu } from "./helpers/fake-gpu.ts";
import { launch } from "./helpers/kept-ranks.ts";

const available = useFakeGpu();

describe.skipIf(!available)("atomr-accel's defects, over a stand-in library (needs g++)", () => {
  it("C3.1, C3.2: collectives in place succeed while the caller holds the tensor, and the result stays in it", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { setFlagsFromString } = await import("node:v8");
        const { runInNewContext } = await import("node:vm");
        const { comm, rank } = world;
        const fill = (...values: number[]) => {
          const t = world.tensor("f32", [values.length]);
          world.upload(t, Float32Array.from(values));
          return t;
        };
        const reduced = fill(rank + 1, 10);
        const again = await comm.allReduce(reduced);
        const sent = fill(rank === 0 ? 5 : 0);
        await comm.broadcast(sent);
        const whole = fill(0, 0);
        world.upload(whole.slice(rank, rank + 1), Float32Array.of(rank + 7));
        await comm.allGather(whole.slice(rank, rank + 1), { output: whole });
        const parts = fill(rank, 2);
        await comm.reduceScatter(parts, { output: parts.slice(rank, rank + 1) });
        const box = fill(0);
        comm.send(fill(rank + 20), 1 - rank);
        await comm.recv(box, 1 - rank);
        const atRoot = fill(rank + 1);
        await comm.reduce(atRoot);
        const swapped = fill(0, 0);
        await comm.allToAll(fill(10 * rank, 10 * rank + 1), { output: swapped });
        // A result is the caller's: nothing of it goes with the request.
        setFlagsFromString("--expose-gc");
        const gc = runInNewContext("gc") as () => void;
        gc();
        await new Promise((resolve) => setImmediate(resolve));
        gc();
        const read = (t: typeof reduced) => [...world.download(t)];
        return {
          same: again === reduced || again.storage === reduced.storage,
          reduced: read(reduced),
          sent: read(sent),
          whole: read(whole),
          part: read(parts)[rank],
          box: read(box),
          atRoot: rank === 0 ? read(atRoot) : [3],
          swapped: read(swapped),
        };
      },
    });
    found.forEach((result, rank) => {
      expect(result).toEqual({
        same: true,
        reduced: [3, 20],
        sent: [5],
        whole: [7, 8],
        part: rank === 0 ? 1 : 4,
        box: [20 + (1 - rank)],
        atRoot: [3],
        swapped: [rank, 10 + rank],
      });
    });
  });

  it("C3.3: work settles when the data is there, not when it was queued", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, looked) => {
        const { comm, rank } = world;
        const x = world.tensor("i32", [1 << 16]);
        // The first call of a kind is held back until all ranks make it: this one is to go to NCCL at once.
        await comm.allReduce(x);
        world.upload(x, new Int32Array(1 << 16).fill(1));
        await comm.barrier();
        if (rank === 1) {
          // The other rank has queued its call long ago, and looked at it.
          while (Atomics.load(looked, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
          await comm.allReduce(x);
          return { state: "", settled: false, sum: world.download(x)[65_535] };
        }
        const work = comm.allReduce(x);
        let settled = false;
        void work.then(() => {
          settled = true;
        });
        await new Promise((resolve) => setTimeout(resolve, 50));
        const early = { state: work.state, settled };
        Atomics.store(looked, 0, 1);
        await work;
        return { ...early, sum: world.download(x)[65_535] };
      },
    });
    expect(found[0]).toMatchObject({ settled: false, sum: 2 });
    expect(found[0]?.state).not.toBe("done");
    expect(found[1]?.sum).toBe(2);
  });

  it("completes by the event loop, by wait() on the thread, or at a deadline: what its three completion strategies were for", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, turns) => {
        const { comm, rank } = world;
        const x = world.tensor("i32", [4]);
        await comm.barrier();
        // The event loop is not blocked while a peer is awaited, which comes when it has seen that.
        const timer = setInterval(() => rank === 0 && Atomics.add(turns, 0, 1), 1);
        if (rank === 1) while (Atomics.load(turns, 0) <= 5) await new Promise((resolve) => setTimeout(resolve, 1));
        await comm.allReduce(x);
        clearInterval(timer);
        world.upload(x, Int32Array.of(1, 2, 3, 4));
        const now = comm.allReduce(x);
        const value = now.wait();
        const waited = { state: now.state, data: [...world.download(value as typeof x)] };
        const ruined = await comm.split(0, rank, { name: "ruined" });
        let code = "";
        if (rank === 0) {
          try {
            ruined?.allReduce(x, { timeoutMs: 100 }).wait();
          } catch (error) {
            code = String((error as { code?: string }).code);
          }
        }
        await comm.barrier();
        await ruined?.close().catch(() => {});
        return { waited, code };
      },
    });
    for (const { waited } of found) expect(waited).toEqual({ state: "done", data: [2, 4, 6, 8] });
    expect(found[0]?.code).toBe("TIMEOUT");
  });

  it("C3.4: a batch opens and closes its group in one breath, also after what was thrown in one", async () => {
    const found = await launch({
      ranks: 4,
      backend: "nccl",
      run: async (world) => {
        const { comm } = world;
        const x = world.tensor("i32", [8]);
        world.upload(x, new Int32Array(8).fill(1));
        // The first call of every rank, all at once.
        await comm.allReduce(x);
        const refusals: string[] = [];
        const attempt = (fn: (group: typeof comm) => void) => {
          try {
            comm.batch(fn);
            refusals.push("accepted");
          } catch (error) {
            refusals.push((error as Error).message);
          }
        };
        attempt((async (group: typeof comm) => {
          group.allReduce(x);
        }) as (group: typeof comm) => void);
        attempt((group) => {
          group.allReduce(x);
          throw new Error("thrown inside");
        });
        attempt((group) => {
          group.allReduce(x);
          group.batch(() => {});
        });
        // Nothing was left open: a batch and a call after it are whole.
        await comm.batch((group) => {
          group.allReduce(x);
          group.broadcast(x, { root: 3 });
        });
        await comm.allReduce(x);
        return { refusals, value: world.download(x)[7] };
      },
    });
    for (const { refusals, value } of found) {
      expect(refusals).toHaveLength(3);
      expect(refusals[0]).toMatch(/synchronous|promise|thenable/i);
      expect(refusals[1]).toBe("thrown inside");
      expect(refusals[2]).toMatch(/batch/);
      expect(value).toBe(64);
    }
  });

  it("C3.5: first calls of a kind, in which NCCL blocks the thread until all ranks have come, are kept from it until then", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        type Group = import("chorale/nccl").NcclCommunicator;
        const { comm, rank } = world;
        const [warm, cold] = [(await comm.split(0, rank)) as Group, (await comm.split(0, rank)) as Group];
        const [x, y] = [world.tensor("i32", [4]), world.tensor("i32", [4])];
        world.upload(x, new Int32Array(4).fill(1));
        world.upload(y, new Int32Array(4).fill(2));
        await warm.allReduce(x);
        await comm.barrier();
        // Of the calls of rank 0, which comes first, NCCL has got the one whose kind it knows.
        const works = rank === 0 ? [warm.allReduce(x), cold.allReduce(y)] : [];
        const given = [warm.parts.queue.inFlight, cold.parts.queue.inFlight];
        await comm.barrier();
        // Rank 1 makes them the other way round.
        if (rank === 1) works.push(cold.allReduce(y), warm.allReduce(x));
        await Promise.all(works);
        return { given, sums: [x, y].map((t) => world.download(t)[3]) };
      },
    });
    expect(found[0]?.given).toEqual([true, false]);
    for (const { sums } of found) expect(sums).toEqual([4, 4]);
  });

  it("C3.6: counts of an all-to-all are checked before a group is open, and against the other ranks'", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { comm, rank } = world;
        const x = world.tensor("f32", [4]);
        const y = world.tensor("f32", [4]);
        const code = async (run: (group: typeof comm) => PromiseLike<unknown>, group = comm) => {
          try {
            await run(group);
            return "accepted";
          } catch (error) {
            return (error as { code?: string }).code;
          }
        };
        const vary = (sendCounts: number[], recvCounts: number[]) => (group: typeof comm) =>
          group.allToAllV(x, { sendCounts, recvCounts, output: y, timeoutMs: 15_000 });
        const local = [
          await code(vary([2], [2, 2])),
          await code(vary([2, 3], [2, 2])),
          await code(vary([-1, 5], [2, 2])),
          await code(vary([2 ** 53, 0], [2, 2])),
          await code(vary([2, 2], [3, 2])),
          await code(vary([1.5, 2.5], [2, 2])),
          // What these add up to is right, and so is what the rank gives itself.
          await code(vary([5, -1], [5, -1])),
          await code(vary([-1, 5], [-1, 5])),
          await code(vary([1.5, 2.5], [1.5, 2.5])),
          await code(vary([4], [4])),
          await code((group) => group.allToAll(x, { output: world.tensor("f32", [3]) })),
        ];
        const ruined = await comm.split(0, rank, { name: "ruined" });
        // Rank 1 sends rank 0 three elements, and rank 0 expects two.
        const counts = rank === 0 ? vary([2, 2], [2, 2]) : vary([3, 1], [3, 1]);
        const across = await code(counts, ruined);
        await ruined?.close().catch(() => {});
        // Nothing was left open: the next one is whole.
        await comm.allToAllV(x, { sendCounts: [2, 2], recvCounts: [2, 2], output: y });
        return { local, across };
      },
    });
    for (const { local, across } of found) {
      expect(local).toEqual(Array(11).fill("INVALID_ARGUMENT"));
      expect(across).toBe("MISMATCH");
    }
    const threads = await runRanks(2, async ({ comm, rank }) => {
      const counts = rank === 0 ? [2, 2] : [3, 1];
      return comm.allToAllV(new Float32Array(4), { sendCounts: counts, recvCounts: counts }).then(
        () => "accepted",
        (error: Error) => error.message,
      );
    });
    for (const message of threads) expect(message).toMatch(/rank 0 sends 2 elements to rank 1, which expects 3/);
  });

  it("C3.7: a world is ready when its program starts, time after time", { timeout: 60_000 }, async () => {
    for (let round = 0; round < 3; round++) {
      const sums = await launch({
        ranks: 2,
        backend: "nccl",
        run: (world) => world.comm.allReduce(Int32Array.of(world.rank + 1)).wait().data[0],
      });
      expect(sums).toEqual([3, 3]);
    }
  });

  it("C3.8, C3.9: survivors leave a group that hangs, go on in the next generation, and what is of the old one is refused", async () => {
    const found = await launch({
      ranks: 3,
      backend: "nccl",
      onFailure: "shrink",
      restarts: 1,
      run: async (world) => {
        const x = world.tensor("f32", [2]);
        // A call is refused at once, with a throw, by whoever has heard of the failure already.
        const attempt = async () => {
          try {
            await world.comm.allReduce(x);
            return "";
          } catch (error) {
            return String((error as { code?: string }).code);
          }
        };
        // The survivors may hear of the death in either call.
        let first = await attempt();
        if (world.rank === 1) throw new Error("dies");
        const began = Date.now();
        if (first === "") first = await attempt();
        const next = await world.rebuild();
        const y = next.tensor("f32", [1]);
        next.upload(y, Float32Array.of(next.rank + 1));
        await next.comm.allReduce(y);
        let stale = "accepted";
        try {
          await next.comm.allReduce(x);
        } catch (error) {
          stale = (error as Error).message;
        }
        await next.comm.barrier();
        return {
          first,
          stale,
          inTime: Date.now() - began < 20_000,
          generation: next.generation,
          ranks: next.size,
          sum: next.download(y)[0],
        };
      },
    });
    const survivors = found.filter((result) => result !== undefined);
    expect(survivors).toHaveLength(2);
    for (const survivor of survivors) {
      expect(survivor).toMatchObject({ inTime: true, generation: 2, ranks: 2, sum: 3 });
      expect(survivor.first).toMatch(/RANK_FAILED|ABORTED/);
      expect(survivor.stale).toMatch(/generation|closed/);
    }
  });

  it("C3.8: a survivor with nothing pending, which makes no call, hears of a rank that died and leaves the group", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      onFailure: "shrink",
      restarts: 1,
      run: async (world) => {
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        await comm.barrier();
        if (world.generation > 1 || world.rank === 1) throw new Error("dies");
        const { queue } = comm.parts;
        const until = Date.now() + 20_000;
        while (queue.cause === undefined && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 1));
        const heard = { code: queue.cause?.code, handedOver: queue.handle.surrendered };
        const next = await world.rebuild();
        return { ...heard, ranks: next.size };
      },
    });
    expect(found[0]).toEqual({ code: "RANK_FAILED", handedOver: true, ranks: 1 });
  });

  it("opens the world's communicator with the ncclUniqueId that the program brings", async () => {
    const sum = (uniqueId: Uint8Array) =>
      launch({
        ranks: 2,
        backend: "nccl",
        backendOptions: { uniqueId, timeoutMs: 15_000 },
        run: async ({ comm, rank }) => (await comm.allReduce(Int32Array.of(rank + 1))).data[0],
      });
    // The stand-in gives ids of this form, and refuses others, as NCCL cannot do: there every id names a place to meet.
    const own = Uint8Array.from({ length: 128 }, (_, i) => (i < 8 ? 200 + i : i * 7 + 1));
    expect(await sum(own)).toEqual([3, 3]);
    await expect(sum(new Uint8Array(128))).rejects.toThrow(/ncclCommInitRankConfig/);
  });

  it("C3.12, C3.14: preMulSum goes into any reduction, and fp8 is computed or refused, never something else", async () => {
    const [found] = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { comm, rank } = world;
        const half = comm.preMulSum(0.5);
        const make = (...values: number[]) => {
          const t = world.tensor("f32", [values.length]);
          world.upload(t, Float32Array.from(values));
          return t;
        };
        const all = await comm.allReduce(make(rank + 1), { op: half });
        const part = await comm.reduceScatter(make(2, 4), { op: half, output: make(0) });
        const root = await comm.reduce(make(8), { op: half });
        const host = await comm.allReduce(new Float64Array([6]), { op: half });
        // 0x38 is 1 and 0x40 is 2 in e4m3 (OCP OFP8).
        const fp8 = await comm.allReduce(new Uint8Array([0x38]), { dtype: "f8e4m3" });
        return {
          all: world.download(all)[0],
          part: world.download(part)[0],
          root: rank === 0 ? world.download(root)[0] : 8,
          host: host.data[0],
          fp8: fp8.data[0],
        };
      },
    });
    expect(found).toEqual({ all: 1.5, part: 2, root: 8, host: 6, fp8: 0x40 });
  });

  it("C3.13: roots, peers and lengths are checked, and a root without an output has its result", async () => {
    const found = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { comm } = world;
        const x = world.tensor("f32", [3]);
        const code = (fn: () => unknown) => {
          try {
            fn();
            return "accepted";
          } catch (error) {
            return (error as { code?: string }).code;
          }
        };
        const refused = [
          code(() => comm.reduce(x, { root: 2 })),
          code(() => comm.broadcast(x, { root: -1 })),
          code(() => comm.send(x, 2)),
          code(() => comm.recv(x, 5)),
          code(() => comm.allGather(x, { output: world.tensor("f32", [5]) })),
          code(() => comm.reduceScatter(x)),
          code(() => comm.gather(x, { root: comm.rank, output: world.tensor("f32", [2]) })),
        ];
        world.upload(x, Float32Array.of(1, 2, 3));
        const result = await comm.gather(x, { root: 0 });
        return { refused, gathered: comm.rank === 0 ? [...world.download(result)] : [] };
      },
    });
    expect(found.map(({ refused }) => refused)).toEqual(Array(2).fill(Array(7).fill("INVALID_ARGUMENT")));
    expect(found[0]?.gathered).toEqual([1, 2, 3, 1, 2, 3]);
  });

  it("C3.15, C3.16: calls, bytes and times are counted, memory is told, and groups split and shrink", async () => {
    const [found] = await launch({
      ranks: 3,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { comm } = world;
        const x = world.tensor("f32", [1024]);
        for (let i = 0; i < 3; i++) await comm.allReduce(x);
        const pair = await comm.split(comm.rank === 2 ? 1 : 0, comm.rank);
        const size = pair?.size;
        await pair?.close();
        const own = await comm.split(0, comm.rank, { name: "own" });
        if (own === undefined) throw new Error("no group");
        if (world.rank === 2) own.abort("this rank leaves");
        const left = world.rank === 2 ? undefined : await own.shrink([2]);
        const shrunk = left?.size;
        await left?.close();
        await own.close().catch(() => {});
        const { operations, memory } = comm.stats();
        const { freeBytes, totalBytes } = deviceOf(world)?.device.memoryInfo() ?? { freeBytes: 0, totalBytes: 0 };
        return {
          reduce: operations["all_reduce"],
          memory,
          size,
          shrunk,
          hasFree: freeBytes > 0 && freeBytes < totalBytes,
        };
      },
    });
    expect(found?.reduce).toMatchObject({ calls: 3, bytes: 3 * 4096, failures: 0 });
    expect(found?.reduce?.totalUs).toBeGreaterThan(0);
    expect(found?.memory.usedBytes).toBeGreaterThanOrEqual(4096);
    expect(found).toMatchObject({ size: 2, shrunk: 2, hasFree: true });
  });

  it.each(["nccl", "threads"] as const)(
    "C3.17: closing a communicator after a failure tells it once and throws no second time (%s)",
    async (backend) => {
      const found = await launch({
        ranks: 2,
        backend,
        run: async (world) => {
          const group = await world.comm.split(0, world.rank, { name: "ruined" });
          if (group === undefined) throw new Error("no group");
          // Rank 1 never makes this call, and rank 0 looks at its work nowhere.
          if (world.rank === 0) {
            group.allReduce(world.tensor("f32", [4]));
            group.abort("on purpose");
          }
          await world.comm.barrier();
          const close = () =>
            group.close().then(
              () => "closed",
              (error: Error) => error.message,
            );
          return [await close(), await close(), ...(await Promise.all([close(), close()]))];
        },
      });
      expect(found).toEqual([
        [expect.stringContaining("on purpose"), "closed", "closed", "closed"],
        ["closed", "closed", "closed", "closed"],
      ]);
    },
  );

  it("C3.17: running out of memory is an error with numbers", async () => {
    const [message] = await launch({
      ranks: 1,
      backend: "nccl",
      run: (world) => {
        try {
          world.tensor("f64", [2 ** 40]);
        } catch (error) {
          return `${(error as { code?: string }).code}: ${(error as Error).message}`;
        }
        return "";
      },
    });
    expect(message).toMatch(/^OUT_OF_MEMORY: .*8796093022208 bytes asked for/);
  });
});

describe("atomr-accel's defects, without a GPU", () => {
  it("C3.10: worlds without a GPU compute, answer and refuse as those with one", async () => {
    const found = await runRanks(2, async (world) => {
      const { comm, rank } = world;
      const sum = await comm.allReduce(Float32Array.of(rank + 0.5));
      const batched = Int32Array.of(1);
      await comm.batch((group) => {
        group.allReduce(batched);
      });
      return [sum.data[0], batched[0]];
    });
    expect(found).toEqual([
      [2, 2],
      [2, 2],
    ]);
  });

  it("C3.11: capabilities come from the library's version, its symbols and the device's architecture", () => {
    const library = (versionCode: number, optional: Record<string, unknown> = {}) =>
      ({
        versionCode,
        version: decodeVersion(versionCode).join("."),
        path: "libnccl",
        optional,
      }) as unknown as NcclLibrary;
    const device = (major: number) => ({ name: "GPU", computeCapability: [major, 0] }) as unknown as CudaDeviceInfo;
    const features = (...args: Parameters<typeof ncclCapabilities>) => ncclCapabilities(...args).features;
    expect(ncclCapabilities(library(22400), device(9)).dtypes).toContain("f8e4m3");
    expect(ncclCapabilities(library(22400), device(8)).dtypes).not.toContain("f8e4m3");
    expect(ncclCapabilities(library(22000), device(9)).dtypes).not.toContain("f8e5m2");
    expect(features(library(22803), device(9))["nvlsPossible"]).toBe(process.env["NCCL_NVLS_ENABLE"] !== "0");
    expect(features(library(21700), device(9))["nvlsPossible"]).toBe(false);
    expect(features(library(22803), device(8))["nvlsPossible"]).toBe(false);
    expect(features(library(21800), device(9))["ncclCommSplit"]).toBe(false);
    expect(features(library(21800, { ncclCommSplit: () => 0 }), device(9))["ncclCommSplit"]).toBe(true);
    expect(decodeVersion(2708)).toEqual([2, 7, 8]);
    expect(decodeVersion(21003)).toEqual([2, 10, 3]);
  });
});
