/** Calls that a queue holds back until all members have made them, over the stand-in library: what they use, and that they are seen to their end. */
import type { RankDevice } from "chorale/device";
import { describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

const available = useFakeGpu();
const options = { backend: "nccl", timeoutMs: 30_000, backendOptions: { timeoutMs: 15_000 } } as const;
const MEBI = 2 ** 20;

describe.skipIf(!available)("calls that are held back (needs a C++ compiler)", () => {
  it("refuses to free what a held-back call uses, and notices itself when that is done", async () => {
    const [seen] = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const comm = world.comm as import("./communicator.ts").NcclCommunicator;
        const x = world.tensor("f32", [256]);
        const all = world.tensor("f32", [512]);
        const { deviceOf } = await import("chorale/world");
        const main = deviceOf(world)?.main;
        // A send behind a call that is held back would wait with it.
        const side = await comm.split(0);
        if (world.rank === 1) {
          // Rank 0 has tried by then.
          await side?.recv(new Float32Array(1), 0);
          await comm.allReduce(x.slice(10));
          await comm.allGather(x, { output: all });
          return [];
        }
        const answers: string[] = [];
        const free = () => {
          try {
            world.free(x);
            answers.push("freed");
          } catch (error) {
            answers.push(String(error));
          }
        };
        const reduced = comm.allReduce(x.slice(10));
        free();
        await side?.send(new Float32Array(1), 1);
        await reduced;
        // Nobody asks how this one is; the download waits for it on the device.
        comm.allGather(x, { output: all });
        comm.orderBefore(main);
        world.download(all);
        free();
        free();
        return answers;
      },
    });
    expect(seen?.[0]).toMatch(/in use by 1 pending call.*await them first/);
    expect(seen?.[1]).toBe("freed");
    expect(seen?.[2]).toMatch(/freed/);
  });

  it("keeps tensors that nobody but a held-back call refers to", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      run: async (world) => {
        const { setFlagsFromString } = await import("node:v8");
        const { runInNewContext } = await import("node:vm");
        setFlagsFromString("--expose-gc");
        const gc = runInNewContext("gc") as () => void;
        const { comm } = world;
        const output = world.tensor("f32", [256]);
        const filled = (value: number) => {
          const tensor = world.tensor("f32", [128]);
          world.upload(tensor, new Float32Array(128).fill(value));
          return tensor;
        };
        const ends = () => {
          const all = world.download(output);
          return [all[0], all[255]];
        };
        const side = await comm.split(0);
        if (world.rank === 1) {
          await side?.recv(new Float32Array(1), 0);
          await comm.allGather(filled(2), { output });
          return ends();
        }
        const held = (() => comm.allGather(filled(1), { output }))();
        for (let i = 0; i < 5; i++) {
          gc();
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
        const others = [filled(9), filled(9)];
        await side?.send(new Float32Array(1), 1);
        await held;
        return [...ends(), others.length].slice(0, 2);
      },
    });
    expect(found).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  it("sees a call to its end that the event loop issued and that waited for memory meanwhile", async () => {
    const found = await launch({
      ...options,
      ranks: 2,
      backendOptions: { timeoutMs: 10_000, memoryLimitBytes: 8 * MEBI },
      data: MEBI,
      run: async (world, mebi) => {
        const { deviceOf } = await import("chorale/world");
        const { deviceStorageOf } = await import("chorale/device");
        const at = deviceOf(world) as RankDevice;
        type Group = import("./communicator.ts").NcclCommunicator;
        const comm = world.comm as Group;
        const [pair, late] = [(await comm.split(0)) as Group, (await comm.split(0)) as Group];
        const x = world.tensor("f32", [256]);
        await pair.allReduce(x);
        await late.allReduce(x);
        await comm.barrier();
        const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
        let last: PromiseLike<unknown> | undefined;
        if (world.rank === 0) {
          // Set aside behind a call that rank 1 makes late: the exchange waits in the pool for it.
          const big = world.tensor("u8", [5 * mebi]);
          pair.allReduce(x);
          const storage = deviceStorageOf(big);
          if (storage === undefined) throw new Error("no device memory");
          at.pool.recordUse(storage.allocation, pair.stream);
          world.free(big);
          last = pause(500).then(() => late.allReduce(x));
        } else {
          // The event loop of rank 0 has the exchange by now; and it ends there some time after it was issued.
          await pause(100);
          last = late.allReduce(x);
          comm.orderAfter(late.stream);
        }
        const exchange = comm.gatherObjects(String(world.rank).repeat(2_000_000));
        if (world.rank === 1) {
          exchange.then(undefined, () => {});
          await pause(200);
          await pair.allReduce(x);
        }
        const lengths = (await exchange).map((text) => text.length);
        await last;
        return lengths;
      },
    });
    expect(found).toEqual([
      [2_000_000, 2_000_000],
      [2_000_000, 2_000_000],
    ]);
  });
});
