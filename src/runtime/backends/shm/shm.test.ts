/** Ranks that are processes over mapped memory: failure, rebuild, waking, growth, and what is left behind. */
import { chmodSync, existsSync, linkSync, readdirSync, rmSync, truncateSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { launch } from "../../world/launch.ts";
import { attachShm } from "./backend.ts";
import { createShmHost, readShmFlight, releaseShmHost } from "./shm-host.ts";
import { SHM_KIND } from "./shm-kind.ts";

/** Files of this process in /dev/shm: it is their maker. */
const ownFiles = () => readdirSync("/dev/shm").filter((name) => name.includes(`-${process.pid}-`));
const spec = { ranks: 2, generation: 1, isolation: "process" } as const;

describe.skipIf(process.platform !== "linux")("shm backend (Linux)", () => {
  it("tells every survivor of a rank that is killed, and forms again without it", { timeout: 60_000 }, async () => {
    const told: string[] = [];
    const sums = await launch({
      ranks: 3,
      backend: "shm",
      onFailure: "shrink",
      onOutput: ({ text }) => void told.push(text),
      timeoutMs: 60_000,
      data: {},
      run: async (first) => {
        let world = first;
        const x = world.tensor("i32", [40_000]);
        x.data.fill(world.rank);
        await world.comm.allReduce(x);
        const last = x.data[39_999];
        if (world.rank === 1) process.kill(process.pid, "SIGKILL");
        const began = performance.now();
        try {
          // One survivor blocks its thread, the other waits from its event loop.
          if (world.rank === 0) world.comm.barrier().wait();
          else await world.comm.barrier();
        } catch (error) {
          const { code, rank } = error as { code?: string; rank?: number };
          console.log(`${code} ${rank} ${performance.now() - began < 30_000}`);
          world = await world.rebuild();
        }
        const y = world.tensor("f32", [3]);
        y.data.fill(world.rank + 1);
        await world.comm.allReduce(y);
        return [last, world.generation, ...y.data];
      },
    });
    expect(sums).toEqual([
      [3, 2, 3, 3, 3],
      [3, 2, 3, 3, 3],
    ]);
    expect(told).toEqual(["RANK_FAILED 1 true", "RANK_FAILED 1 true"]);
    expect(ownFiles()).toEqual([]);
  });

  it("sleeps until a late rank wakes it, and shares memory that grows", { timeout: 60_000 }, async () => {
    const ranks = await launch({
      ranks: 2,
      backend: "shm",
      backendOptions: { memoryLimitBytes: 48 * 2 ** 20 },
      data: {},
      run: async (world) => {
        const late = async (blocks: boolean): Promise<number> => {
          await world.comm.barrier();
          if (world.rank === 1) await new Promise((resolve) => setTimeout(resolve, 200));
          const [began, used] = [performance.now(), process.cpuUsage()];
          const call = world.comm.barrier();
          if (blocks) call.wait();
          else await call;
          const { user, system } = process.cpuUsage(used);
          // A wait that spins uses all its time; one that found its peer there, as on a busy machine, has hardly any.
          return (user + system) / 1000 - 0.5 * (performance.now() - began);
        };
        const excessMs = [await late(true), await late(false)];
        const big = world.tensor("u8", [20 * 2 ** 20]);
        big.data.fill(world.rank + 1);
        await world.comm.allReduce(big, { op: "bor" });
        let refused = "";
        try {
          world.tensor("u8", [20 * 2 ** 20]);
        } catch (error) {
          refused = (error as { code?: string }).code ?? "";
        }
        await world.comm.barrier();
        return { sleeps: world.rank === 0 ? excessMs.map((ms) => ms < 50) : [], last: big.data.at(-1), refused };
      },
    });
    expect(ranks).toEqual([
      { sleeps: [true, true], last: 3, refused: "OUT_OF_MEMORY" },
      { sleeps: [], last: 3, refused: "OUT_OF_MEMORY" },
    ]);
  });

  it("removes its file when the last rank has come, and when nobody does", () => {
    const handle = createShmHost(spec, {});
    expect(existsSync(handle.arena.path)).toBe(true);
    const [first, second] = [attachShm(handle, 0, {}), attachShm(handle, 1, {})];
    expect(ownFiles()).toEqual([]);
    SHM_KIND.fail(handle, 1, "the cause", false);
    expect(() => first.world.barrier()).toThrow("rank 1 failed (generation 1): the cause");
    expect(SHM_KIND.readFlight(handle).ranks[1]).toMatchObject({ rank: 1, failed: "the cause" });
    for (const rank of [first, second]) rank.abandon(new Error("enough"));
    releaseShmHost(handle);
    expect(readShmFlight(handle).groups).toEqual([]);
    const unused = createShmHost(spec, {});
    releaseShmHost(unused);
    releaseShmHost(unused);
    expect(ownFiles()).toEqual([]);
  });

  it("maps nothing that is not its own world's, or not its user's alone", () => {
    const handle = createShmHost(spec, {});
    const { path } = handle.arena;
    const attach = (other: object = {}) => attachShm({ ...handle, ...other }, 0, {});
    try {
      expect(() => attach({ generation: 2 })).toThrow("it is of 2 ranks, generation 1");
      expect(() => attach({ arena: { ...handle.arena, path: "/dev/shm/mine" } })).toThrow("its name is not one");
      chmodSync(path, 0o640);
      expect(() => attach()).toThrow("others may open it (mode 640)");
      chmodSync(path, 0o600);
      linkSync(path, `${path}-2`);
      expect(() => attach()).toThrow("it has a second name");
      rmSync(`${path}-2`);
      truncateSync(path, 4096);
      expect(() => attach()).toThrow(/it has 4096 bytes instead of \d+ to \d+/);
    } finally {
      releaseShmHost(handle);
    }
    expect(() => attach()).toThrow("ENOENT");
  });
});
