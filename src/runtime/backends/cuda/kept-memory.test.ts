/** What calls and graphs hold as long as others may still use it, and no longer: over the stand-in library. */

import { describe, expect, it, onTestFinished } from "vitest";
import { available, slowDown, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

describe.skipIf(!available)("memory that calls and graphs hold on stand-in devices (needs g++)", () => {
  it("is not handed out again while copies of another member may come to it", { timeout: 120_000 }, async () => {
    const seen = await launch({
      ...worldOf(),
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, step) => {
        const { deviceStorageOf } = await import("chorale/device");
        const group = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
        const algorithm = "direct-all-gather@copies";
        const make = () => world.tensor("i32", [2000]);
        const addressOf = (one: ReturnType<typeof make>) => deviceStorageOf(one)?.allocation.address;
        const [x, told, graphed] = [world.tensor("i32", [1000]), make(), make()];
        const [toldAt, graphedAt] = [addressOf(told), addressOf(graphed)];
        /** Whether memory at an address is handed out. */
        const comesAgain = (at: bigint | undefined) =>
          Array.from({ length: 6 }, () => addressOf(make())).includes(at ?? 0n);
        await group.allGather(x, { output: told, algorithm });
        // A graph's: as long as it is open.
        const graph = group.capture((one) => void one.allGather(x, { output: graphed, algorithm }));
        world.free(graphed);
        const found = [comesAgain(graphedAt)];
        graph.close();
        // One that ran twice and was closed holds nothing back, though the first of its runs was not waited for.
        const replayed = make();
        const ran = group.capture((one) => void one.allGather(x, { output: replayed, algorithm }));
        group.replay(ran);
        group.replay(ran).wait();
        ran.close();
        world.free(replayed);
        found.push(comesAgain(graphedAt));
        // A call's that the others were told of, and that failed: until all have closed the group.
        if (world.rank === 1) {
          while (Atomics.load(step, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
          group.abort("enough");
        } else {
          const work = group.allGather(x, { output: told, algorithm });
          const waits = new Promise((resolve) => setTimeout(resolve, 50));
          await waits;
          Atomics.store(step, 0, 1);
          await work.then(
            () => undefined,
            () => undefined,
          );
          world.free(told);
          found.push(comesAgain(toldAt));
        }
        await group.close().catch(() => {});
        if (world.rank === 0) {
          const until = performance.now() + 60_000;
          let again = false;
          while (!again && performance.now() < until) {
            await new Promise((resolve) => setTimeout(resolve, 20));
            again = comesAgain(toldAt);
          }
          found.push(again);
        }
        return found;
      },
    });
    expect(seen).toEqual([
      [false, true, false, true],
      [false, true],
    ]);
  });

  it("is not handed out again while another member's kernel may come to it", { timeout: 120_000 }, async () => {
    const seen = await launch({
      ...worldOf(),
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world, step) => {
        const { deviceStorageOf } = await import("chorale/device");
        const { comm, rank } = world;
        const found: boolean[] = [];
        // Of the two only the first has kernels that reach what is not in a window.
        for (const algorithm of ["two-phase-all-reduce*2@32", "one-shot-packet-all-reduce@32"]) {
          const group = (await comm.split(0)) as import("chorale/nccl").NcclCommunicator;
          const make = () => world.tensor("i32", [1000]);
          const addressOf = (one: ReturnType<typeof make>) => deviceStorageOf(one)?.allocation.address;
          const [x, y] = [make(), make()];
          await group.allReduce(x, { output: y, algorithm });
          const work = rank === 0 ? group.allReduce(x, { output: y, algorithm }) : undefined;
          if (rank === 0) Atomics.add(step, 0, 1);
          else {
            while (Atomics.load(step, 0) === found.length) await new Promise((resolve) => setTimeout(resolve, 1));
            group.abort("enough");
          }
          await work?.then(
            () => undefined,
            () => undefined,
          );
          const at = addressOf(y);
          world.free(y);
          // This rank's own kernel has ended by then; the other's may not have.
          while (!group.stream.isDone()) await new Promise((resolve) => setTimeout(resolve, 1));
          found.push(Array.from({ length: 6 }, () => addressOf(make())).includes(at));
          await group.close().catch(() => {});
        }
        return found;
      },
    });
    expect(seen[0]).toEqual([false, true]);
  });

  it("is what the driver takes without blocking, however many calls are made at once", {
    timeout: 120_000,
  }, async () => {
    slowDown(1, 10);
    process.env["FAKE_CUDA_QUEUE"] = "450";
    onTestFinished(() => void delete process.env["FAKE_CUDA_QUEUE"]);
    const seen = await launch({
      ...worldOf(),
      run: async (world) => {
        const { comm, rank } = world;
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [200])];
        world.upload(x, new Int32Array(100).fill(1 + rank));
        const works = Array.from({ length: 150 }, () =>
          comm.allGather(x, { output: y, algorithm: "direct-all-gather@copies" }),
        );
        for (const work of works) await work;
        return [world.download(y)[0], world.download(y)[199]];
      },
    });
    expect(seen).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  it("goes back with a group whose results went by way of another buffer", { timeout: 120_000 }, async () => {
    const seen = await launch({
      ...worldOf(),
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        const used: number[] = [];
        for (let i = 0; i < 3; i++) {
          const group = await world.comm.split(0);
          if (group === undefined) throw new Error("no group");
          world.upload(x, new Float32Array(64).fill(1 + world.rank));
          await group.allReduce(x, { algorithm: "streaming-all-reduce@32.unit1K" });
          if (world.download(x).some((value) => value !== 3)) throw new Error("wrong");
          await group.close();
          const bytes = () => world.comm.stats().memory?.usedBytes ?? 0;
          const [most = Number.POSITIVE_INFINITY] = used;
          // Freed when all members have closed it, and their devices are quiet: soon after, or never.
          const until = performance.now() + (i === 0 ? 400 : 30_000);
          while ((i === 0 || bytes() > most) && performance.now() < until) {
            await new Promise((resolve) => setTimeout(resolve, 2));
          }
          used.push(bytes());
        }
        return used.every((one) => one <= (used[0] ?? 0));
      },
    });
    expect(seen).toEqual([true, true]);
  });

  it("is taken for results of captured calls on their input, also where no memory is left over", {
    timeout: 60_000,
  }, async () => {
    const seen = await launch({
      ...worldOf(),
      run: async (world) => {
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        // More than what segments of other memory have left.
        const part = 700_000;
        const x = world.tensor("i32", [2 * part]);
        const own = x.slice(world.rank * part, (world.rank + 1) * part);
        const call = (group: Pick<typeof comm, "reduceScatter">) =>
          group.reduceScatter(x, { output: own, algorithm: "streaming-reduce-scatter*2@32.unit64K" });
        const fill = () => world.upload(x, new Int32Array(2 * part).fill(3 + world.rank));
        fill();
        await call(comm);
        const graph = comm.capture((group) => void call(group));
        fill();
        await comm.replay(graph);
        const got = world.download(own);
        graph.close();
        return [got[0], got[part - 1]];
      },
    });
    expect(seen).toEqual([
      [7, 7],
      [7, 7],
    ]);
  });
});
