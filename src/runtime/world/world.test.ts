import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { ClosedError, RankFailedError, UnavailableError } from "../../core/index.ts";
import { joinWorld } from "./join.ts";
import { launch } from "./launch.ts";
import type { OutputLine } from "./output.ts";
import { closeRankPool, runRanks } from "./run-ranks.ts";
import type { World } from "./world.ts";

afterAll(closeRankPool);
const ranksFolder = new URL("../../../test/e2e/ranks/", import.meta.url);

describe("runRanks", () => {
  it("does not let a timer that one world left behind fail the next", async () => {
    const options = { data: new Int32Array(new SharedArrayBuffer(4)) };
    const leaves = async (_: World, isNext: Int32Array) => {
      setInterval(() => {
        if (Atomics.load(isNext, 0) === 1) throw new Error("late");
      }, 10);
      return (await import("node:worker_threads")).threadId;
    };
    const first = await runRanks(2, leaves, options);
    const next = async (_: World, isNext: Int32Array) => {
      Atomics.store(isNext, 0, 1);
      await new Promise((resolve) => setTimeout(resolve, 300));
      return (await import("node:worker_threads")).threadId;
    };
    const second = await runRanks(2, next, options);
    expect(second.filter((thread) => first.includes(thread))).toEqual([]);
    // Threads whose programs left nothing behind are kept.
    const third = await runRanks(2, async () => (await import("node:worker_threads")).threadId);
    expect(third.toSorted()).toEqual(second.toSorted());
  });

  it("lets a rank that failed clean up before its thread ends", async () => {
    const data = new Int32Array(new SharedArrayBuffer(4));
    const failing = runRanks(
      1,
      (_: World, isClean: Int32Array) => {
        process.once("exit", () => {
          for (const until = performance.now() + 50; performance.now() < until; );
          Atomics.store(isClean, 0, 1);
        });
        throw new Error("gone");
      },
      { data },
    );
    await expect(failing).rejects.toThrow(/rank 0 failed.*gone/);
    expect(Atomics.load(data, 0)).toBe(1);
  });

  it("gives each rank's result, and keeps the threads", async () => {
    const threads = async () => {
      const { threadId } = await import("node:worker_threads");
      return threadId;
    };
    expect(await runRanks(3, (world, data) => [world.rank, world.size, data.x], { data: { x: 7 } })).toEqual([
      [0, 3, 7],
      [1, 3, 7],
      [2, 3, 7],
    ]);
    const first = await runRanks(3, threads);
    const second = await runRanks(3, threads);
    expect(new Set(first).size).toBe(3);
    expect(second.toSorted()).toEqual(first.toSorted());
  });

  it("fails with the first failure, wherever its consequences arrive", async () => {
    const failing = runRanks(4, async (world) => {
      if (world.rank === 2) throw new RangeError("the origin");
      await world.comm.barrier();
    });
    await expect(failing).rejects.toThrow(RankFailedError);
    await expect(failing).rejects.toMatchObject({
      rank: 2,
      generation: 1,
      cause: { name: "RangeError", message: "the origin" },
    });
    // The threads of a failed world are not kept.
    expect(await runRanks(2, (world) => world.rank)).toEqual([0, 1]);
  });

  it("says what a function cannot do", async () => {
    const outer = 3;
    await expect(runRanks(1, () => outer)).rejects.toThrow(/outer is not defined.*pass values as `data`/);
    await expect(runRanks(1, () => () => 1)).rejects.toThrow("one that holds a function");
    await expect(runRanks(2, () => 1, { data: () => 1 })).rejects.toThrow("data is ");
    await expect(runRanks(0, () => 1)).rejects.toThrow("an integer from 1 to 256");
    await expect(runRanks(1.5, () => 1)).rejects.toThrow("an integer from 1 to 256");
    await expect(runRanks(2, { module: new URL("hello.ts", ranksFolder) })).rejects.toThrow("an async function");
  });
});

describe("launch", () => {
  it("runs a module's default function with data, over a mesh's groups", async () => {
    const module = new URL("result.ts", ranksFolder);
    expect(await launch({ ranks: 4, module, data: { base: 5 } })).toEqual([
      { sum: 1, base: 5 },
      { sum: 1, base: 5 },
      { sum: 5, base: 5 },
      { sum: 5, base: 5 },
    ]);
    expect(await launch({ ranks: 2, module: fileURLToPath(module), data: { base: 0 } })).toHaveLength(2);
  });

  it("gives output, arguments and environment to whom they belong", async () => {
    const lines: OutputLine[] = [];
    const results = await launch({
      ranks: 2,
      args: ["x", "y"],
      env: { CHORALE_TEST_VALUE: "set" },
      onOutput: (line) => lines.push(line),
      run: (world) => {
        console.log(`out ${world.rank}`);
        console.error(`err ${world.rank}`);
        return [...world.args, process.env["CHORALE_TEST_VALUE"], process.env["CHORALE_RANK"]];
      },
    });
    expect(results).toEqual([
      ["x", "y", "set", "0"],
      ["x", "y", "set", "1"],
    ]);
    expect(lines.filter(({ rank }) => rank === 1)).toEqual([
      { rank: 1, stream: "stdout", text: "out 1" },
      { rank: 1, stream: "stderr", text: "err 1" },
    ]);
    expect(process.env["CHORALE_TEST_VALUE"]).toBeUndefined();
  });

  it("wants a module or a function", async () => {
    await expect(launch({ ranks: 1 } as never)).rejects.toThrow(
      "run is missing, and so is module; expected either run, a function, or module, a file",
    );
    await expect(launch({ ranks: 1, module: "x.ts", run: () => 0 } as never)).rejects.toThrow(
      "run is given with module",
    );
  });

  it.each(["thread", "process"] as const)(
    "says at once that a rank, a %s, waits for what nothing resolves",
    async (isolation) => {
      const module = new URL("never-settles.ts", ranksFolder);
      const backend = isolation === "thread" ? "threads" : "tcp";
      const error = await launch({ ranks: 2, module, backend, isolation, timeoutMs: 50_000 }).catch((cause) => cause);
      expect(error).toMatchObject({ rank: 1, cause: { message: expect.stringMatching(/the program never settles/) } });
    },
  );

  it("ends by a signal that comes while its module is still bundled", async () => {
    const controller = new AbortController();
    const lines: string[] = [];
    const module = new URL("./stuck.ts", ranksFolder);
    const early = launch({ ranks: 2, module, signal: controller.signal, onOutput: ({ text }) => lines.push(text) });
    controller.abort("too early");
    await expect(early).rejects.toThrow("aborted: too early");
    expect(lines).toEqual([]);
  });

  it("ends by its signal and its time limit, though ranks are stuck", async () => {
    const controller = new AbortController();
    const lines: string[] = [];
    const stuck = launch({
      ranks: 2,
      signal: controller.signal,
      onOutput: ({ text }) => {
        lines.push(text);
        if (lines.length === 2) controller.abort("enough");
      },
      run: () => {
        console.log("here");
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      },
    });
    await expect(stuck).rejects.toThrow("aborted: enough");
    const slow = launch({ ranks: 2, timeoutMs: 300, run: (world) => (world.rank === 1 ? new Promise(() => {}) : 0) });
    await expect(slow).rejects.toThrow(
      /the world did not complete within 300 ms; arrived: ranks \[0?\], missing: ranks \[(0, )?1\]/,
    );
  });
});

describe("a world", () => {
  const variables = [
    "RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
  ];
  let saved: (string | undefined)[];
  beforeEach(() => {
    saved = variables.map((name) => process.env[name]);
    for (const name of variables) delete process.env[name];
  });
  afterEach(() => {
    for (const [i, name] of variables.entries()) {
      if (saved[i] === undefined) delete process.env[name];
      else process.env[name] = saved[i];
    }
  });

  it("has one rank when nothing launched it", async () => {
    const world = await joinWorld();
    expect(await joinWorld()).toBe(world);
    expect([world.rank, world.size, world.backend]).toEqual([0, 1, "threads"]);
    const x = world.tensor("f32", [3]);
    x.data.fill(2);
    await world.comm.allReduce(x);
    expect([...x.data]).toEqual([2, 2, 2]);
    expect(world.mesh({ tp: "auto" }).group("tp").ranks).toEqual([0]);
    await world.close();
    await world.close();
    expect(() => world.comm).toThrow(ClosedError);
    expect(() => world.tensor("f32", [1])).toThrow("world is closed");
    expect(await joinWorld()).not.toBe(world);
    await (await joinWorld()).close();
  });

  it("refuses a deadline of joinWorld() where the launcher has said it", async () => {
    const said = await runRanks(1, async () => {
      const { joinWorld: join } = await import("chorale");
      return join({ timeoutMs: 10 }).catch((error: Error) => error.message);
    });
    expect(said).toEqual([expect.stringMatching(/^timeoutMs is 10; .* --backend-option timeoutMs=MS/)]);
  });

  it.each([
    ["torchrun", { RANK: "1", WORLD_SIZE: "4" }],
    ["Open MPI", { OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_SIZE: "4" }],
    ["Slurm", { SLURM_PROCID: "1", SLURM_STEP_NUM_TASKS: "4" }],
  ])("is refused rather than wrong when %s started several processes", async (launcher, env) => {
    Object.assign(process.env, env);
    await expect(joinWorld()).rejects.toThrow(UnavailableError);
    await expect(joinWorld()).rejects.toThrow(`${launcher} started this one as rank 1 of 4`);
  });

  it("opens communicators of axes, products and custom groups, which reduce only among themselves", async () => {
    const sums = await runRanks(8, async (world: World) => {
      const mesh = world.mesh({ dp: 2, pp: 2, tp: 2 }).addGroup("odd", [7, 5, 3, 1]);
      const sum = async (comm: World["comm"]) => {
        const x = world.tensor("i32", [1]);
        x.data[0] = 10 ** world.rank;
        await comm.allReduce(x);
        return x.data[0];
      };
      const tp = await world.communicator(mesh, "tp");
      const again = await world.communicator(mesh, "tp");
      return {
        tp: await sum(tp),
        pp: await sum(await world.communicator(mesh, "pp")),
        dpTp: await sum(await world.communicator(mesh, ["dp", "tp"])),
        world: await sum(await world.communicator(mesh, ["tp", "pp", "dp"])),
        odd: world.rank % 2 === 1 ? await sum(await world.communicator(mesh, mesh.getGroup("odd"))) : 0,
        oddRank: mesh.groupRank("odd"),
        same: tp === again,
        ranks: [...tp.ranks],
      };
    });
    const total = (ranks: readonly number[]) => ranks.reduce((sum, rank) => sum + 10 ** rank, 0);
    for (const [rank, seen] of sums.entries()) {
      const [dp, pp, tp] = [rank >> 2, (rank >> 1) & 1, rank & 1];
      expect(seen).toEqual({
        tp: total([rank & ~1, rank | 1]),
        pp: total([dp * 4 + tp, dp * 4 + 2 + tp]),
        dpTp: total([pp * 2, pp * 2 + 1, 4 + pp * 2, 4 + pp * 2 + 1]),
        world: 11111111,
        odd: tp === 1 ? total([1, 3, 5, 7]) : 0,
        oddRank: tp === 1 ? [7, 5, 3, 1].indexOf(rank) : undefined,
        same: true,
        ranks: [rank & ~1, rank | 1],
      });
    }
  });

  it("fails along chains of groups that the dead rank is not in", async () => {
    const lines: string[] = [];
    const chain = launch({
      ranks: 4,
      onOutput: ({ rank, text }) => lines.push(`${rank} ${text}`),
      run: async (world: World) => {
        let mesh = world.mesh({ all: 4 });
        for (const pair of [
          [0, 1],
          [1, 2],
          [2, 3],
        ])
          mesh = mesh.addGroup(pair.join(), pair);
        const pairs = mesh.customGroups.filter(({ ranks }) => ranks.includes(world.rank));
        const comms = [];
        for (const pair of pairs) comms.push(await world.communicator(mesh, pair));
        await world.comm.barrier();
        if (world.rank === 0) throw new Error("the origin");
        const start = performance.now();
        try {
          await comms[0]?.barrier();
        } catch (error) {
          console.log(`${(error as Error).name} ${performance.now() - start < 20_000}`);
          throw error;
        }
      },
    });
    await expect(chain).rejects.toMatchObject({ rank: 0, cause: { message: "the origin" } });
    expect(lines.toSorted()).toEqual(["1 RankFailedError true", "2 RankFailedError true", "3 RankFailedError true"]);
  });

  it("refuses the communicator of a group that this rank is not in, and a mesh of another size", async () => {
    const messages = await runRanks(2, async (world: World) => {
      const mesh = world.mesh({ tp: 2 }).addGroup("second", [1]);
      if (world.rank === 1) return [];
      const { createMesh } = await import("chorale/mesh");
      const attempts = [
        world.communicator(mesh, mesh.getGroup("second")),
        world.communicator(createMesh({ tp: 3 }), "tp"),
        world.communicator(mesh, "dp" as "tp"),
        world.communicator(undefined as never, "tp"),
      ];
      return (await Promise.allSettled(attempts)).map((result) =>
        result.status === "rejected" ? String(result.reason) : "",
      );
    });
    expect(messages[0]).toEqual([
      expect.stringContaining("a group that rank 0 is in"),
      expect.stringContaining("a mesh of this world's 2 ranks"),
      expect.stringContaining("one of the mesh's axes tp"),
      expect.stringContaining("mesh is undefined; expected a DeviceMesh, such as world.mesh("),
    ]);
  });

  it("has what kapsl-hal's mesh communication has: each operation on a group, round after round, with real results", async () => {
    const results = await runRanks(4, async (world: World) => {
      const mesh = world.mesh({ dp: 2, tp: 2 });
      const comm = await world.communicator(mesh, "tp");
      const base = world.rank - comm.rank;
      const f32 = (...values: number[]) => Float32Array.from(values);
      const rounds: unknown[] = [];
      for (let round = 0; round < 3; round++) {
        const x = f32(world.rank + round, 1);
        await comm.allReduce(x);
        const average = Int32Array.of(world.rank === base ? -3 : 0);
        await comm.allReduce(average, { op: "avg" });
        const most = f32(world.rank);
        await comm.allReduce(most, { op: "max" });
        const b = comm.rank === 1 ? f32(7 + base) : f32(0);
        await comm.broadcast(b, { root: 1 });
        const gathered = await comm.allGather(f32(world.rank * 2));
        const scattered = await comm.reduceScatter(f32(1, 2));
        const part = f32(0);
        await comm.scatter(comm.rank === 0 ? f32(40 + base, 41 + base) : part, {
          root: 0,
          ...(comm.rank === 0 ? { output: part } : {}),
        });
        const whole = await comm.gather(f32(world.rank), { root: 0 });
        await comm.barrier();
        const received = f32(0);
        const peer = 1 - comm.rank;
        const sent = comm.send(f32(100 + world.rank), peer);
        await comm.recv(received, peer);
        await sent;
        rounds.push({
          sum: [...x],
          average: [...average],
          most: [...most],
          broadcast: [...b],
          gathered: Array.from(gathered.data as Float32Array),
          scattered: Array.from(scattered.data as Float32Array),
          part: [...part],
          whole: comm.rank === 0 ? Array.from(whole.data as Float32Array) : [],
          received: [...received],
        });
      }
      return rounds;
    });
    for (const [rank, rounds] of results.entries()) {
      const base = rank & ~1;
      for (const [round, seen] of rounds.entries()) {
        expect(seen).toEqual({
          sum: [base + base + 1 + 2 * round, 2],
          average: [-1],
          most: [base + 1],
          broadcast: [7 + base],
          gathered: [base * 2, (base + 1) * 2],
          scattered: [rank === base ? 2 : 4],
          part: [40 + rank],
          whole: rank === base ? [base, base + 1] : [],
          received: [100 + (rank ^ 1)],
        });
      }
    }
  });
});

/** Types alone: this function compiles, and is never called. */
export async function types(world: World): Promise<void> {
  const mesh = world.mesh({ dp: "auto", tp: 2 });
  await world.communicator(mesh, "tp");
  await world.communicator(mesh, ["dp", "tp"]);
  await world.communicator(mesh, mesh.group("tp"));
  // @ts-expect-error the mesh has no axis pp
  await world.communicator(mesh, "pp");
  // @ts-expect-error the mesh has no axis pp
  await world.communicator(mesh, ["dp", "pp"]);
  const numbers: number[] = await runRanks(2, (rank, data) => rank.size + data.x, { data: { x: 1 } });
  // @ts-expect-error data has no y
  await runRanks(2, (_, data) => data.y, { data: { x: 1 } });
  // @ts-expect-error a launch runs a module or a function, not both
  await launch({ ranks: 2, module: "x.ts", run: () => numbers });
}
