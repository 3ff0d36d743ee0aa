/** What a rank does with its device beside its collectives: memory, copies and waits, in a world that may fail. Over the stand-in. */
import type { RankDevice } from "chorale/device";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  fakeGpuFolder,
  type HeldByFakeGpu,
  heldByFakeGpu,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import { attachNccl } from "./backend.ts";
import { createNcclHost } from "./nccl-host.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const folder = fakeGpuFolder();
afterAll(() => folder.remove());

const processes = {
  isolation: "process",
  env: { CHORALE_CUDA_LIBRARY: library, CHORALE_NCCL_LIBRARY: library, FAKE_GPU_FOLDER: folder.path },
} as const;

describe.skipIf(!available)("a rank's device in a world over NCCL (needs a C++ compiler)", () => {
  let before: HeldByFakeGpu;
  beforeEach(() => {
    before = heldByFakeGpu(library);
  });
  afterEach(() => {
    expect(heldByFakeGpu(library)).toEqual(before);
  });

  it("refuses to free what pending work uses, what is another's, and what was freed", async () => {
    const [found] = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { tensor } = await import("chorale");
        const { attachNccl, createNcclHost } = await import("chorale/nccl");
        const refusal = (fn: () => unknown): string => {
          try {
            fn();
            return "accepted";
          } catch (error) {
            return `${(error as { code?: string }).code} ${(error as Error).message}`;
          }
        };
        const x = world.tensor("f32", [256]);
        world.upload(x, new Float32Array(256).fill(1));
        // Held back, for no rank has made such a call before, until the other one is told to make it too.
        const side = (await world.comm.split(0)) as typeof world.comm;
        const token = world.tensor("i32", [1]);
        if (world.rank === 1) await side.recv(token, 0);
        const work = world.comm.allReduce(x);
        const pending = world.rank === 0 ? refusal(() => world.free(x)) : "";
        const other = world.tensor("f32", [256]);
        world.upload(other, new Float32Array(256).fill(7));
        if (world.rank === 0) await side.send(token, 1);
        await work;
        const results = [world.download(x)[255], world.download(other)[0]];
        // A world of its own, in the same process and on another device.
        const lone = attachNccl(createNcclHost({ ranks: 1 }), 0, { device: 2 + world.rank });
        const theirs = lone.tensor("f32", [4]);
        const foreign = refusal(() => world.free(theirs));
        const used = refusal(() => world.comm.allReduce(theirs));
        await lone.close();
        const part = x.slice(0, 4);
        world.free(part);
        const again = refusal(() => world.free(x));
        const closed = refusal(() => world.free(theirs));
        const host = refusal(() => world.free(tensor("f32", [4])));
        const none = refusal(() => world.free(undefined as unknown as typeof x));
        const dtype = refusal(() => world.tensor("f33" as "f32", [4]));
        return { pending, results, foreign, used, again, closed, host, none, dtype };
      },
    });
    expect(found?.results).toEqual([2, 7]);
    expect(found?.pending).toMatch(/^INVALID_ARGUMENT .*in use by 1 pending call/);
    expect(found?.foreign).toMatch(/^INVALID_ARGUMENT .*another world.*rank 0 allocated in generation 1/);
    expect(found?.used).toMatch(/^INVALID_ARGUMENT .*CUDA device 2.*CUDA device 0/);
    expect(found?.again).toMatch(/^CLOSED .*was freed/);
    expect(found?.closed).toMatch(/^CLOSED .*world/);
    expect(found?.host).toMatch(/^INVALID_ARGUMENT .*private memory/);
    expect(found?.none).toMatch(/^INVALID_ARGUMENT/);
    expect(found?.dtype).toMatch(/^INVALID_ARGUMENT .*f33.*f32, f64/);
  });

  it("does not reuse the memory of a tensor that was collected while a call of it is held back", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { setFlagsFromString } = await import("node:v8");
        const { runInNewContext } = await import("node:vm");
        setFlagsFromString("--expose-gc");
        const collect = runInNewContext("gc") as () => void;
        const out = world.tensor("f32", [256]);
        const gather = (value: number) => {
          const mine = world.tensor("f32", [128]);
          world.upload(mine, new Float32Array(128).fill(value));
          return world.comm.allGather(mine, { output: out });
        };
        const side = (await world.comm.split(0)) as typeof world.comm;
        const token = world.tensor("i32", [1]);
        if (world.rank === 1) {
          await side.recv(token, 0);
          await gather(2);
        } else {
          const work = gather(1);
          for (let i = 0; i < 5; i++) {
            collect();
            await new Promise((resolve) => setTimeout(resolve, 5));
          }
          world.upload(world.tensor("f32", [128]), new Float32Array(128).fill(9));
          await side.send(token, 1);
          await work;
        }
        const all = world.download(out);
        return [all[0], all[127], all[128]];
      },
    });
    expect(results).toEqual([
      [1, 1, 2],
      [1, 1, 2],
    ]);
  });

  it("writes no more than the tensor has, whatever it is given", async () => {
    const [found] = await launch({
      ranks: 1,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const at = deviceOf(world) as RankDevice;
        const [a, next] = [world.tensor("f32", [1024]), world.tensor("f32", [1024])];
        const wrong: readonly unknown[] = [
          new Float64Array(1024).fill(1),
          new Uint32Array(1024).fill(1),
          new Float32Array(1023),
          Array(1024).fill(1),
          undefined,
        ];
        const codes: unknown[] = [];
        for (const values of wrong) {
          const given = values as Float32Array;
          try {
            world.upload(a, given);
          } catch (error) {
            codes.push((error as { code: string }).code);
          }
          await at.uploadAsync(a, given).catch((error) => codes.push(error.code));
        }
        const halves = world.tensor("f16", [4]);
        world.upload(halves, Uint16Array.of(1, 2, 3, 4));
        return {
          codes,
          touched: [a, next].map((tensor) => world.download(tensor).filter((value) => value !== 0).length),
          halves: [...world.download(halves)],
        };
      },
    });
    expect(found).toEqual({ codes: Array(10).fill("INVALID_ARGUMENT"), touched: [0, 0], halves: [1, 2, 3, 4] });
  });

  it("copies without blocking, in the stream's order, and keeps what it copies", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { CudaStream } = await import("chorale/device");
        const at = deviceOf(world) as RankDevice;
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        // More than one piece, and not a whole number of them.
        const count = 9 * 2 ** 20 + 3;
        const x = world.tensor("f32", [count]);
        const values = new Float32Array(count).fill(world.rank + 1);
        values[count - 1] = 10;
        const up = at.uploadAsync(x, values);
        // The values were taken: what happens to them now is nobody's business.
        values.fill(99);
        const work = comm.allReduce(x);
        comm.orderBefore(at.main);
        const down = at.downloadAsync(x);
        let refused = "";
        try {
          world.free(x);
        } catch (error) {
          refused = (error as { code: string }).code;
        }
        let turns = 0;
        const ticking = setInterval(() => turns++, 1);
        const got = await down;
        await Promise.all([up, work]);
        clearInterval(ticking);
        // On a stream of one's own, too.
        const own = CudaStream.create(at.device);
        const part = x.slice(count - 2, count);
        const last = await at.downloadAsync(part, { stream: own });
        const empty = await at.downloadAsync(world.tensor("u8", [0]));
        world.free(x);
        const closed = await at.downloadAsync(x).catch((error) => error.code);
        return [got[0], got[count - 2], got[count - 1], ...last, empty.length, refused, closed];
      },
    });
    const one = [3, 3, 20, 3, 20, 0, "INVALID_ARGUMENT", "CLOSED"];
    expect(results).toEqual([one, one]);
  });

  const waits = [
    ["a download", "download"],
    ["an upload", "upload"],
    ["a stream", "stream"],
    ["an event", "event"],
    ["the device", "device"],
    ["an asynchronous copy", "async"],
    ["an allocation", "allocate"],
  ] as const;
  it.each(spread(waits, 2))("ends the wait for %s when a peer does not make its call", async (_what, kind) => {
    const start = performance.now();
    const codes = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { memoryLimitBytes: 8 * 2 ** 20, timeoutMs: 60_000 },
      data: kind,
      run: async (world, kind) => {
        const { deviceOf } = await import("chorale/world");
        const { CudaEvent } = await import("chorale/device");
        const at = deviceOf(world) as RankDevice;
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [256]);
        await comm.allReduce(x);
        const token = world.tensor("i32", [1]);
        if (world.rank === 1) {
          // Is told of the failure, or of the end.
          return comm.recv(token, 0).then(
            () => "done",
            (error) => error.code,
          );
        }
        const work = comm.allReduce(x, { timeoutMs: 300 });
        comm.orderBefore(at.main);
        const event = CudaEvent.create(at.device);
        event.record(at.main);
        const waits: Readonly<Record<string, () => unknown>> = {
          download: () => world.download(x),
          upload: () => world.upload(x, new Float32Array(256)),
          stream: () => at.main.synchronize(),
          event: () => event.synchronize(),
          device: () => at.device.synchronize(),
          async: () => at.downloadAsync(x),
          allocate: () => world.tensor("u8", [64 * 2 ** 20]),
        };
        let code = "done";
        try {
          await waits[kind]?.();
        } catch (error) {
          code = (error as { code: string }).code;
        }
        return `${code} ${await work.then(
          () => "done",
          (error) => error.code,
        )}`;
      },
    });
    const told = kind === "allocate" ? "OUT_OF_MEMORY" : "TIMEOUT";
    expect(codes).toEqual([`${told} TIMEOUT`, "TIMEOUT"]);
    // Whoever waits for the group's own deadline is seen, also on a busy host.
    expect(performance.now() - start).toBeLessThan(20_000);
  });

  it("tells a failed group once to who waits for what was ordered behind it, and not to who waits for something else", async () => {
    const results = await launch({
      ranks: 2,
      backend: "nccl",
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { CudaEvent, CudaStream } = await import("chorale/device");
        const at = deviceOf(world) as RankDevice;
        const told = async (fn: () => unknown): Promise<string> => {
          try {
            await fn();
            return "done";
          } catch (error) {
            return (error as { code: string }).code;
          }
        };
        const x = world.tensor("f32", [256]);
        const group = (await world.comm.split(0)) as import("./communicator.ts").NcclCommunicator;
        await group.allReduce(x);
        const codes: string[] = [];
        if (world.rank === 0) {
          const [apart, behind] = [CudaStream.create(at.device), CudaStream.create(at.device)];
          const [before, after] = [CudaEvent.create(at.device), CudaEvent.create(at.device)];
          before.record(at.main);
          const work = group.allReduce(x, { timeoutMs: 100 });
          group.orderBefore(at.main);
          after.record(at.main);
          behind.waitFor(after);
          codes.push(await told(() => work));
          for (const wait of [
            () => before.synchronize(),
            () => apart.synchronize(),
            () => after.synchronize(),
            () => behind.synchronize(),
            () => at.downloadAsync(x),
            () => at.downloadAsync(x),
            () => world.download(x),
          ]) {
            codes.push(await told(wait));
          }
        }
        await world.comm.barrier();
        await group.close().catch(() => {});
        return codes;
      },
    });
    const failed = ["TIMEOUT", "done", "done", "TIMEOUT", "TIMEOUT", "TIMEOUT", "done", "done"];
    expect(results).toEqual([failed, []]);
  });

  it("tells a rank that waits for its device of a peer's death, and the process can go on", async () => {
    const start = performance.now();
    const failure = await launch({
      ranks: 2,
      backend: "nccl",
      backendOptions: { timeoutMs: 60_000 },
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const at = deviceOf(world) as RankDevice;
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [256]);
        await comm.allReduce(x);
        if (world.rank === 1) {
          await new Promise((resolve) => setTimeout(resolve, 100));
          throw new Error("rank 1 dies");
        }
        void comm.allReduce(x);
        comm.orderBefore(at.main);
        world.download(x);
      },
    }).catch((error) => error);
    expect(failure.message).toContain("rank 1 dies");
    // Whoever waits for the group's own deadline is seen, also on a busy host.
    expect(performance.now() - start).toBeLessThan(20_000);
  });

  it("leaves with a call in flight, again and again, without a peer reading memory that is gone", {
    timeout: 90_000,
  }, async () => {
    for (let round = 0; round < 4; round++) {
      const results = await launch({
        ranks: 2,
        backend: "nccl",
        restarts: 3,
        onFailure: "respawn",
        run: async (world) => {
          const next = async (w: typeof world) => {
            const y = w.tensor("f32", [256]);
            w.upload(y, new Float32Array(256).fill(1));
            await w.comm.allReduce(y);
            return [w.generation, w.download(y)[0], w.rank];
          };
          const x = world.tensor("f32", [256]);
          await world.comm.allReduce(x);
          let code = "";
          if (world.rank === 0) void world.comm.allReduce(x);
          else {
            const until = performance.now() + 2 * Math.random();
            while (performance.now() < until);
            try {
              for (;;) await world.comm.allReduce(x, { timeoutMs: 20_000 });
            } catch (error) {
              code = (error as { code: string }).code;
            }
          }
          return [code, ...(await next(await world.rebuild()))];
        },
      });
      expect(results).toEqual([
        ["", 2, 2, 0],
        ["RANK_FAILED", 2, 2, 1],
      ]);
    }
  });

  it("refuses what no rank can be, before it holds anything", async () => {
    const host = () => createNcclHost({ ranks: 1 });
    const refused: readonly (readonly [() => unknown, RegExp])[] = [
      [() => attachNccl(host(), 0, { config: { nope: 1 } as object }), /config.*nope/],
      [() => attachNccl(host(), 0, { uniqueId: new Uint8Array(5) }), /uniqueId.*5 bytes.*128/],
      [() => attachNccl(host(), 0, { uniqueId: "x".repeat(128) as unknown as Uint8Array }), /uniqueId/],
      [() => attachNccl(host(), 3, { device: 0 }), /rank is 3; expected a rank of the world, 0 to 0/],
      [() => attachNccl(host(), -1), /rank is -1/],
      [() => attachNccl(host(), 0, { memoryLimitBytes: -5 }), /memoryLimitBytes is -5/],
      [() => attachNccl(host(), 0, { memoryLimitBytes: 100 }), /out of memory|OUT_OF_MEMORY|100/i],
      [() => attachNccl(host(), 0, { timeoutMs: Number.NaN }), /timeoutMs/],
      [() => attachNccl(host(), 0, { device: 1.5 }), /device is 1.5/],
      [() => attachNccl(undefined as never, 0), /handle is undefined/],
    ];
    for (const [attach, words] of refused) {
      expect(attach).toThrow(words);
      expect(heldByFakeGpu(library)).toEqual(before);
    }
  });

  it("checks NCCL's configuration before a rank starts", async () => {
    const start = (config: object) => launch({ ranks: 1, backend: "nccl", backendOptions: { config }, run: () => 1 });
    await expect(start({ minCtas: 8, maxCtas: 4 })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(/config\.minCtas is 8; expected at most maxCtas, 4/),
    });
    await expect(start({ cgaClusterSize: 1.5 })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("refuses two ranks of a world in one thread, which would wait for each other in NCCL for ever", async () => {
    const handle = createNcclHost({ ranks: 2 });
    const first = attachNccl(handle, 0);
    expect(() => attachNccl(handle, 1)).toThrow(/this thread is rank 0 of that world/);
    expect(() => attachNccl(handle, 0)).toThrow(/not attached yet/);
    first.abandon(new Error("enough"));
    // Of another world it may.
    const lone = attachNccl(createNcclHost({ ranks: 1 }), 0);
    await lone.world.allReduce(Float32Array.of(1));
    // A tensor of another world on the same device is not taken for one of this world.
    const twin = attachNccl(createNcclHost({ ranks: 1 }), 0);
    expect(() => lone.world.allReduce(twin.tensor("f32", [4]))).toThrow(/on CUDA device 0.*one of this world/);
    await twin.close();
    await lone.close();
  });

  it("sends between processes from memory that has IPC handles, where the pool's has none", async () => {
    const results = await launch({
      ...processes,
      env: { ...processes.env, NCCL_NVLS_ENABLE: "0" },
      ranks: 2,
      backend: "nccl",
      backendOptions: { registerBuffers: true },
      run: async (world) => {
        const x = world.tensor("f32", [256]);
        world.upload(x, new Float32Array(256).fill(world.rank + 1));
        for (let i = 0; i < 3; i++) {
          if (world.rank === 0) await world.comm.send(x, 1);
          else await world.comm.recv(x, 0);
        }
        await world.comm.allReduce(x);
        return world.download(x)[255];
      },
    });
    expect(results).toEqual([2, 2]);
  });

  it("tells survivors of a lost context that the rank has failed, whichever of its groups found it", async () => {
    const codes = await launch({
      ...processes,
      ranks: 3,
      backend: "nccl",
      onFailure: "shrink",
      restarts: 1,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { CudaModule, KernelArguments } = await import("chorale/device");
        const at = deviceOf(world) as RankDevice;
        const x = world.tensor("f32", [256]);
        await world.comm.allReduce(x);
        if (world.rank === 1) {
          const kernel = CudaModule.load(at.device, ".version 8.0 // fake image").kernel("illegal_address");
          kernel.launch(at.main, { grid: [1], block: [1] }, new KernelArguments(at.device, []));
        }
        // Refused at once where the failure is known already.
        const failure = await (async () => world.comm.allReduce(x, { timeoutMs: 5000 }))().then(
          () => undefined,
          (error) => error,
        );
        if (world.rank === 1) throw failure;
        const next = await world.rebuild();
        return `${failure.code} ${failure.rank} ${next.size}`;
      },
    });
    expect(codes).toEqual(["RANK_FAILED 1 2", "RANK_FAILED 1 2"]);
  });
});
