/** What a plan on devices refuses, over the stand-in library. That its kernels are right is the host build's matter, and that of `bench/device-plans.mjs` on GPUs. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";

const library = buildFakeGpu();
const available = library !== undefined && useFakeGpu();
const cache = mkdtempSync(join(tmpdir(), "chorale-device-plan-"));
// The stand-in compiles to nothing: that must not be kept where real kernels are.
process.env["XDG_CACHE_HOME"] = cache;
if (library !== undefined) process.env["CHORALE_NVRTC_LIBRARY"] = library;
afterAll(() => {
  rmSync(cache, { recursive: true });
});

describe.skipIf(!available)("DevicePlan", () => {
  it("refuses plans that do not fit, before anything is taken of the device", { timeout: 120_000 }, async () => {
    const [told] = await launch({
      ranks: 2,
      backend: "nccl",
      timeoutMs: 60_000,
      run: async (world) => {
        const { deviceOf } = await import("chorale/world");
        const { DevicePlan } = await import("chorale/executor");
        const { algorithm } = await import("chorale/algorithms");
        const { compile } = await import("chorale/language");
        const { provePlan } = await import("chorale/verifier");
        const at = deviceOf(world);
        if (at === undefined) throw new Error("no device");
        const make = (name: string, numRanks = 2, instances = 1) =>
          compile(algorithm(name).make({ numRanks, instances }), { verify: false });
        const proved = (...args: Parameters<typeof make>) => {
          const plan = make(...args);
          provePlan(plan);
          return plan;
        };
        const used = at.pool.stats().usedBytes;
        const refusals: string[] = [];
        const refused = async (plan: ReturnType<typeof make>, options: object) => {
          const all = { dtype: "f32", maxBytes: 1024, ...options } as const;
          await DevicePlan.open(world.comm, at, plan, all).then(
            () => refusals.push("opened"),
            (error: Error) => refusals.push(error.message),
          );
        };
        await refused(make("direct-all-gather"), {});
        await refused(proved("direct-all-gather", 3), {});
        await refused(proved("direct-all-gather"), { maxBytes: 0 });
        await refused(proved("direct-all-gather"), { interprocess: true });
        await refused(proved("direct-all-gather"), { threads: 33 });
        await refused(proved("one-shot-packet-all-reduce", 2, 150), { threads: 1024 });
        // More than the device has: what was taken until then is given back.
        await refused(proved("packet-all-gather"), { threads: 32, maxBytes: 2 ** 40 });
        return { refusals, leaked: at.pool.stats().usedBytes - used };
      },
    });
    expect(told?.refusals).toEqual([
      expect.stringMatching(/which was not verified; expected one that provePlan\(\) passed/),
      expect.stringMatching(/for 3 ranks; expected one for the group's 2 ranks/),
      expect.stringMatching(/maxBytes is 0; expected a whole number of bytes/),
      expect.stringMatching(/direct-all-gather among processes is not supported; it reaches buffers of other ranks/),
      expect.stringMatching(/threads is 33; expected a multiple of 32/),
      expect.stringMatching(/300 blocks of 1024 threads, which wait for each other is not supported; at most \d+ fit/),
      expect.stringMatching(/bytes asked for, \d+ are free/),
    ]);
    expect(told?.leaked).toBe(0);
  });
});
