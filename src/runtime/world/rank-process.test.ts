/** Ranks as processes, from the launching program's side, over a stand-in for GPUs. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it, vi } from "vitest";
import { buildFakeGpu, fakeGpuFolder } from "../../../test/helpers/fake-gpu.ts";
import { spread } from "../../../test/support/spread.ts";
import type { Isolation } from "../comm/index.ts";
import { launch } from "./launch.ts";
import type { OutputLine } from "./output.ts";
import { loadableUrl } from "./package-location.ts";
import { LAUNCHER_PID_VARIABLE } from "./rank-link-contract.ts";
import type { World } from "./world.ts";

const library = buildFakeGpu();
const folder = fakeGpuFolder();
afterAll(() => folder.remove());

interface Extra<D> {
  readonly ranks?: number;
  readonly isolation?: Isolation;
  readonly data?: D;
  readonly signal?: AbortSignal;
  readonly graceMs?: number;
  readonly onFailure?: "respawn" | "shrink";
  readonly env?: Readonly<Record<string, string>>;
  readonly onOutput?: (line: OutputLine) => void;
}

function run<R, D = undefined>(fn: (world: World, data: D) => R | Promise<R>, extra: Extra<D> = {}): Promise<R[]> {
  const { ranks = 2, isolation = "process", env = {}, ...others } = extra;
  return launch<R, D>({
    ...others,
    ranks,
    isolation,
    backend: "nccl",
    onOutput: extra.onOutput ?? (() => {}),
    env: {
      CHORALE_CUDA_LIBRARY: library ?? "",
      CHORALE_NCCL_LIBRARY: library ?? "",
      ...(isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {}),
      ...env,
    },
    run: fn,
  });
}

/** Control segments that this process has made and not removed. */
function leftBehind(): string[] {
  return ["/dev/shm", tmpdir()]
    .filter((path) => existsSync(path))
    .flatMap((path) => readdirSync(path))
    .filter((name) => name.startsWith("chorale-") && name.split("-")[2] === String(process.pid));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Alive, and no zombie. */
function isRunning(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return process.platform !== "linux" && isAlive(pid);
  return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
}

describe.skipIf(library === undefined).each([["thread"], ["process"]] as const)(
  "ranks as %s (needs g++)",
  (isolation) => {
    it("give results, output, arguments and environment to whom they belong", async () => {
      const lines: OutputLine[] = [];
      const results = await run(
        async (world, data: { readonly x: Map<string, Float32Array> }) => {
          console.log(`out ${world.rank}\npartial`);
          process.stderr.write(`err ${world.rank}`);
          const tensor = world.tensor("f32", [3]);
          world.upload(tensor, new Float32Array(3).fill(world.rank + 1));
          await world.comm.allReduce(tensor);
          return { rank: world.rank, sum: world.download(tensor), x: data.x, env: process.env["CHORALE_TEST_VALUE"] };
        },
        {
          isolation,
          ranks: 3,
          data: { x: new Map([["a", Float32Array.of(1, 2)]]) },
          env: { CHORALE_TEST_VALUE: "set" },
          onOutput: (line) => lines.push(line),
        },
      );
      const sum = Float32Array.of(6, 6, 6);
      const x = new Map([["a", Float32Array.of(1, 2)]]);
      expect(results).toEqual([0, 1, 2].map((rank) => ({ rank, sum, x, env: "set" })));
      expect(process.env["CHORALE_TEST_VALUE"]).toBeUndefined();
      for (const rank of [0, 1, 2]) {
        expect(lines.filter((line) => line.rank === rank && line.stream === "stdout").map(({ text }) => text)).toEqual([
          `out ${rank}`,
          "partial",
        ]);
        expect(lines.filter((line) => line.rank === rank && line.stream === "stderr").map(({ text }) => text)).toEqual([
          `err ${rank}`,
        ]);
      }
      expect(leftBehind()).toEqual([]);
    });

    const failures: [string, (world: World) => unknown, RegExp][] = [
      [
        "throws",
        (world) => (world.rank === 1 ? Promise.reject(new RangeError("the origin")) : world.comm.barrier()),
        /^RangeError: the origin/,
      ],
      [
        "throws in a timer",
        (world) => {
          if (world.rank === 1) setTimeout(() => JSON.parse("{"), 1);
          return world.comm.barrier().then(() => new Promise(() => {}));
        },
        /^SyntaxError/,
      ],
      [
        "leaves a rejection unhandled",
        (world) => {
          if (world.rank === 1) void Promise.reject(new Error("nobody looked"));
          return new Promise(() => setInterval(() => {}, 1000));
        },
        /^Error: nobody looked/,
      ],
      [
        "exits with the code that it has set",
        (world) => {
          process.exitCode = world.rank === 1 ? 3 : 0;
          return world.rank === 1 ? process.exit() : world.comm.barrier();
        },
        /called process\.exit\(3\)/,
      ],
      [
        "throws what cannot be looked at",
        (world) => {
          if (world.rank === 0) return world.comm.barrier();
          const trap = () => {
            throw new Error("trap");
          };
          throw new Proxy(new Error("hidden"), { get: trap });
        },
        /something that cannot be looked at/,
      ],
      ["exits", (world) => (world.rank === 1 ? process.exit(7) : world.comm.barrier()), /called process\.exit\(7\)/],
      ["leaves", (world) => (world.rank === 1 ? process.exit(0) : world.comm.barrier()), /called process\.exit\(0\)/],
      [
        "returns what cannot be copied",
        (world) => (world.rank === 1 ? () => 1 : 0),
        /result of the rank is one that holds a function/,
      ],
    ];
    // Those of one isolation are others than those of the other one.
    it.each(spread(failures, 8, isolation === "process" ? 4 : 0))(
      "fail the world when one %s",
      async (_, fn, message) => {
        const lines: string[] = [];
        const error = await run(fn, { isolation, graceMs: 1_000, onOutput: ({ text }) => lines.push(text) }).then(
          () => undefined,
          (e: unknown) => e as Error & { rank: number; cause: Error },
        );
        expect(error?.name).toBe("RankFailedError");
        expect(error?.rank).toBe(1);
        expect(error?.cause.stack).toMatch(message);
        expect(lines).toEqual([]);
        expect(leftBehind()).toEqual([]);
      },
    );
  },
);

describe.skipIf(library === undefined)("a rank's process (needs g++)", () => {
  it.each(spread(["SIGKILL", "SIGSEGV", "SIGTERM"] as const, 3))(
    "that dies of %s is named, and its peers hear of it",
    async (signal) => {
      const lines: string[] = [];
      const failing = run(
        async (world, signal) => {
          if (world.rank === 1) {
            await world.comm.barrier();
            process.kill(process.pid, signal);
            return new Promise(() => setInterval(() => {}, 1000));
          }
          await world.comm.barrier();
          const began = performance.now();
          try {
            // One peer waits with its event loop, one without.
            if (world.rank === 0) await world.comm.barrier();
            else world.comm.barrier().wait();
          } catch (error) {
            const { code, rank, message } = error as Error & { code: string; rank: number };
            console.log(JSON.stringify([code, rank, message, performance.now() - began < 20_000]));
          }
          return 0;
        },
        { ranks: 3, data: signal, onOutput: ({ text }) => lines.push(text) },
      );
      const reason = `its process was killed by ${signal}`;
      await expect(failing).rejects.toMatchObject({ rank: 1, cause: { message: reason } });
      expect(lines.map((line) => JSON.parse(line) as unknown[])).toEqual(
        [0, 1].map(() => ["RANK_FAILED", 1, expect.stringContaining(reason), true]),
      );
      expect(leftBehind()).toEqual([]);
    },
  );

  it("is replaced in the next generation, or left out of it", async () => {
    const survive = async (world: World): Promise<readonly number[]> => {
      const sum = async (of: World) => {
        const x = of.tensor("i32", [1]);
        of.upload(x, Int32Array.of(10 ** of.rank));
        await of.comm.allReduce(x);
        return of.download(x)[0] ?? 0;
      };
      const first = await sum(world);
      if (world.generation === 1 && world.rank === 1) {
        process.kill(process.pid, "SIGKILL");
        await new Promise(() => {});
      }
      if (world.generation > 1) return [world.generation, world.rank, first, process.pid];
      try {
        await world.comm.barrier();
      } catch {
        const next = await world.rebuild();
        return [next.generation, next.rank, await sum(next), process.pid];
      }
      return [];
    };
    const respawned = await run(survive, { ranks: 3, onFailure: "respawn" });
    expect(respawned.map((of) => of.slice(0, 3))).toEqual([
      [2, 0, 111],
      [2, 1, 111],
      [2, 2, 111],
    ]);
    const shrunk = await run(survive, { ranks: 3, onFailure: "shrink" });
    expect(shrunk.map((of) => of.slice(0, 3))).toEqual([
      [2, 0, 11],
      [2, 1, 11],
    ]);
    expect([...respawned, ...shrunk].map(([, , , pid = 0]) => pid).filter(isAlive)).toEqual([]);
    expect(leftBehind()).toEqual([]);
  });

  it("has the visible device of its number, and needs one", async () => {
    const names = (env: Readonly<Record<string, string>>) =>
      run(
        async (world) => {
          await world.comm.barrier();
          const { deviceOf } = await import("chorale/world");
          return deviceOf(world)?.device.info.name;
        },
        { env },
      );
    expect(await names({ CUDA_VISIBLE_DEVICES: "5,2,7" })).toEqual(["Fake GPU 5", "Fake GPU 2"]);
    await expect(names({ CUDA_VISIBLE_DEVICES: "3" })).rejects.toThrow("at most 1, the visible CUDA devices");
    await expect(names({ CUDA_VISIBLE_DEVICES: "" })).rejects.toMatchObject({ cause: { code: "UNAVAILABLE" } });
  });

  it("is ended when it does nothing but loop", async () => {
    const pids: number[] = [];
    const both = new AbortController();
    const stuck = run(
      () => {
        console.log(process.pid);
        for (;;);
      },
      {
        signal: both.signal,
        onOutput: ({ text }) => {
          if (pids.push(Number(text)) === 2) both.abort("both are stuck");
        },
      },
    );
    await expect(stuck).rejects.toThrow("both are stuck");
    expect(pids).toHaveLength(2);
    expect(pids.filter(isAlive)).toEqual([]);
  });

  it("is not believed when it writes to the launcher's socket itself", async () => {
    const failing = run(
      async () => {
        const { writeSync } = await import("node:fs");
        writeSync(3, "hello, launcher");
        return new Promise(() => setInterval(() => {}, 1000));
      },
      { ranks: 1 },
    );
    await expect(failing).rejects.toMatchObject({
      rank: 0,
      cause: { message: expect.stringContaining("a rank's message") },
    });
  });

  it("does not keep the world waiting for what it started itself", async () => {
    const began = performance.now();
    const [pid] = await run(
      async () => {
        const { spawn } = await import("node:child_process");
        const child = spawn("sleep", ["60"], { stdio: "inherit", detached: true });
        child.unref();
        return child.pid ?? 0;
      },
      { ranks: 1 },
    );
    expect(performance.now() - began).toBeLessThan(20_000);
    process.kill(pid ?? 0);
  });

  it.skipIf(process.platform !== "linux")("has its variables from the start (needs Linux)", async () => {
    const environ = run(
      async () => (await import("node:fs")).readFileSync("/proc/self/environ", "latin1").split("\0"),
      { ranks: 1, env: { CHORALE_TEST_VALUE: "set" } },
    );
    expect((await environ)[0]).toContain("CHORALE_TEST_VALUE=set");
  });

  const endsWithRank = async (words: string) => {
    const pids: number[] = [];
    const failing = run(
      async (world, how: string) => {
        const { spawn } = await import("node:child_process");
        console.log(spawn("sleep", ["60"], { stdio: world.rank === 0 ? "ignore" : "inherit" }).pid);
        await world.comm.barrier();
        if (world.rank === 1 && how !== "fails") process.exit(0);
        if (world.rank === 1) throw new Error("fails");
        return how === "fails" ? new Promise(() => setInterval(() => {}, 1000)) : world.comm.barrier();
      },
      { graceMs: 50, data: words, onOutput: ({ text }) => pids.push(Number(text)) },
    );
    await expect(failing).rejects.toThrow(words);
    expect(pids).toHaveLength(2);
    // A killed process is there until somebody has asked for its code.
    await vi.waitFor(() => expect(pids.filter(isRunning)).toEqual([]), 30_000);
  };

  it("that fails, or is ended, takes with it what it started and did not detach", async () => {
    await endsWithRank("fails");
  });

  it("takes it with it as well when it calls process.exit(0) with its world open", async () => {
    await endsWithRank("called process.exit(0) with its world open");
  });

  it("ends when its launcher's socket does, or when the launcher was gone before it began", async () => {
    const start = (launcher: number) =>
      spawn(process.execPath, [fileURLToPath(loadableUrl("runtime/world/rank-entry"))], {
        stdio: ["ignore", "ignore", "inherit", "pipe"],
        env: { ...process.env, [LAUNCHER_PID_VARIABLE]: String(launcher) },
      });
    const orphan = start(process.pid);
    orphan.stdio[3]?.destroy();
    expect(await once(orphan, "exit")).toEqual([null, "SIGKILL"]);
    if (process.platform !== "linux") return;
    expect(await once(start(process.pid + 1), "exit")).toEqual([null, "SIGKILL"]);
  });

  it("is refused by the threads backend, with the reason", async () => {
    const refused = launch({ ranks: 1, isolation: "process", run: () => 0 });
    await expect(refused).rejects.toThrow(
      '"thread" with the threads backend: its ranks share the memory of one process',
    );
    await expect(launch({ ranks: 1, isolation: "fiber" as never, run: () => 0 })).rejects.toThrow("thread, process");
    await expect(run((_, data) => data, { data: () => 1 })).rejects.toThrow("one that holds a function");
    expect(leftBehind()).toEqual([]);
  });

  it("leaves no file, process or descriptor, three worlds in a row", { timeout: 120_000 }, async () => {
    const pids: number[] = [];
    const world = async (index: number) => {
      const results = run(
        async (world, index) => {
          console.log(process.pid);
          await world.comm.barrier();
          if (index % 3 === 2 && world.rank === 1) process.kill(process.pid, "SIGKILL");
          return index % 3 === 2 ? new Promise(() => setInterval(() => {}, 1000)) : world.rank;
        },
        { data: index, graceMs: 50, onOutput: ({ text }) => pids.push(Number(text)) },
      );
      if (index % 3 === 2) await expect(results).rejects.toThrow("SIGKILL");
      else expect(await results).toEqual([0, 1]);
    };
    await world(0);
    const descriptors = existsSync("/proc/self/fd") ? readdirSync("/proc/self/fd").length : 0;
    for (let index = 1; index <= 3; index++) await world(index);
    expect(pids.length).toBe(8);
    expect(pids.filter(isAlive)).toEqual([]);
    expect(leftBehind()).toEqual([]);
    if (descriptors === 0) return;
    // Pipes of processes that have ended close a little later.
    await vi.waitFor(() => expect(readdirSync("/proc/self/fd").length).toBeLessThanOrEqual(descriptors), 30_000);
  });
});
