/** Sizes that repeat get kernels of their own, off the path of calls, over the stand-in library. */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { launch } from "chorale/world";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { available, worldOf } from "../../../../test/helpers/cuda-worlds.ts";

/** Calls of one size, of others, and from graphs: how many each rank found wrong, and how many kernels all ranks have loaded meanwhile. */
const repeats = () =>
  launch({
    ...worldOf(),
    data: process.env["CHORALE_NVRTC_LIBRARY"] ?? "",
    run: async (world, library) => {
      const { default: koffi } = await import("koffi");
      const held = koffi.load(library).func("int fakeGpuHeld(void *out)");
      const numModules = () => {
        const out = new BigInt64Array(16);
        held(out);
        return Number(out[4]);
      };
      const comm = world.comm as import("chorale/nccl").NcclCommunicator;
      const { rank } = comm;
      const [x, y] = [world.tensor("i32", [64]), world.tensor("i32", [64])];
      let wrong = 0;
      const check = (turn: number) => {
        wrong += world.download(y).some((value, i) => value !== 2 * (turn + i) + 1) ? 1 : 0;
      };
      const fill = (turn: number) =>
        world.upload(
          x,
          Int32Array.from({ length: 64 }, (_, i) => turn + i + rank),
        );
      const call = async (turn: number) => {
        fill(turn);
        await comm.allReduce(x, { output: y });
        check(turn);
      };
      await call(0);
      const numAtFirst = numModules();
      for (let turn = 1; turn < 90; turn++) await call(turn);
      // The kernel of this size comes when nothing is on the device, on each rank by itself.
      for (const until = performance.now() + 30_000; numModules() < numAtFirst + 2 && performance.now() < until; )
        await new Promise((resolve) => setTimeout(resolve, 5));
      for (let turn = 90; turn < 120; turn++) await call(turn);
      // Of a size that only one kernel is for, and of one that is not aligned.
      const [a, b] = [x.slice(1, 33), y.slice(1, 33)];
      await comm.allReduce(a, { output: b });
      await comm.allReduce(x.slice(0, 63), { output: y.slice(0, 63) });
      check(119);
      const graph = comm.capture((group) => void group.allReduce(x, { output: y }));
      for (let turn = 200; turn < 203; turn++) {
        fill(turn);
        await comm.replay(graph);
        check(turn);
      }
      return { wrong, added: numModules() - numAtFirst };
    },
  });

const onDisk = () => {
  const folder = join(process.env["XDG_CACHE_HOME"] ?? "", "chorale", "cubin");
  return existsSync(folder) ? readdirSync(folder).length : 0;
};

describe.skipIf(!available)("calls of a size that repeats, on stand-in devices (needs g++)", () => {
  it("get a kernel of their own, and so do graphs, with the same results", { timeout: 120_000 }, async () => {
    vi.stubEnv("CHORALE_CUDA_FOLD", "");
    onTestFinished(() => void vi.unstubAllEnvs());
    const ends = await repeats();
    expect(ends.map(({ wrong }) => wrong)).toEqual([0, 0]);
    for (const { added } of ends) expect(added).toBeGreaterThanOrEqual(2);
    // The kernel for all sizes, and that of the one that repeats.
    expect(onDisk()).toBeGreaterThanOrEqual(2);
  });

  it("do not where the environment says so", { timeout: 120_000 }, async () => {
    vi.stubEnv("CHORALE_CUDA_FOLD", "off");
    onTestFinished(() => void vi.unstubAllEnvs());
    const before = onDisk();
    const ends = await launch({
      ...worldOf(),
      run: async (world) => {
        const [x, y] = [world.tensor("i32", [128]), world.tensor("i32", [128])];
        world.upload(x, new Int32Array(128).fill(1));
        for (let turn = 0; turn < 100; turn++) await world.comm.allReduce(x, { output: y });
        await new Promise((resolve) => setTimeout(resolve, 100));
        return world.download(y)[127];
      },
    });
    expect(ends).toEqual([2, 2]);
    expect(onDisk()).toBe(before);
  });

  it.each([
    ["CHORALE_CUDA_FOLD", "1", "one of on, off"],
    ["CHORALE_CUBIN_LIMIT", "much", "a size such as 512"],
  ])("are refused with their world where %s is %j, and not left to NCCL", async (variable, word, accepted) => {
    vi.stubEnv(variable, word);
    onTestFinished(() => void vi.unstubAllEnvs());
    const started = launch({ ...worldOf(), run: async () => "started" });
    await expect(started).rejects.toThrow(`${variable} is ${JSON.stringify(word)}; expected ${accepted}`);
  });
});
