/** Failure and rebuild on the threads backend: every way to go, every answer of the launcher, and nothing left behind. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { How, Plan, Report } from "../../../test/e2e/ranks/faulty.ts";
import { AbortedError, RankFailedError, TimeoutError } from "../../core/index.ts";
import { WORLD_CHANNEL, type WorldEvent } from "./events.ts";
import { joinWorld } from "./join.ts";
import { type LaunchOptions, launch, runWorld } from "./launch.ts";
import type { RankHost } from "./rank-host.ts";
import { RankWorker } from "./rank-worker.ts";
import { closeRankPool, runRanks } from "./run-ranks.ts";
import type { World } from "./world.ts";

afterAll(closeRankPool);
const module = new URL("../../../test/e2e/ranks/faulty.ts", import.meta.url);

type Options = Partial<Omit<LaunchOptions<Report, Plan>, "run" | "module">>;

/** Runs the faulty program with one fault of rank 1, and hears what happened. */
async function withFault(how: How, options: Options = {}) {
  const events: WorldEvent[] = [];
  const results = await launch<Report, Plan>({
    ranks: 3,
    module,
    onFailure: "respawn",
    rebuildTimeoutMs: 60_000,
    data: { steps: 3, timeoutMs: 20_000, faults: [{ generation: 1, rank: 1, how, step: 1 }] },
    onEvent: (event) => events.push(event),
    onOutput: () => {},
    ...options,
  });
  return { results, events };
}

describe("a rank that is gone", () => {
  it.each([
    ["throw", "throw"],
    ["reject", "unhandled"],
    ["exit1", "called process.exit(1)"],
  ] as const)("is started again: %s", async (how, message) => {
    const { results, events } = await withFault(how);
    expect(results.map(({ rank, size, generation, wrong }) => [rank, size, generation, wrong])).toEqual([
      [0, 3, 2, []],
      [1, 3, 2, []],
      [2, 3, 2, []],
    ]);
    expect(results.map(({ errors }) => errors)).toEqual([["RankFailedError 1 1"], [], ["RankFailedError 1 1"]]);
    expect(events.map(({ kind }) => kind).toSorted()).toEqual([
      "generation-ready",
      "generation-ready",
      "generation-started",
      "generation-started",
      "rank-failed",
      "rebuild-started",
      "world-ended",
    ]);
    expect(events.find(({ kind }) => kind === "rank-failed")).toMatchObject({
      generation: 1,
      rank: 1,
      how: "failed",
      message,
    });
    expect(events.filter(({ kind }) => kind === "generation-started").at(-1)).toMatchObject({
      generation: 2,
      worldSize: 3,
      ranks: [{ rank: 0, was: 0 }, { rank: 1 }, { rank: 2, was: 2 }],
    });
  });

  it("is left out, and the others are numbered anew in their old order", async () => {
    const { results, events } = await withFault("throw", { onFailure: "shrink" });
    expect(results.map(({ rank, size, generation, errors, wrong }) => [rank, size, generation, errors, wrong])).toEqual(
      [
        [0, 2, 2, ["RankFailedError 1 1"], []],
        [1, 2, 2, ["RankFailedError 1 1"], []],
      ],
    );
    expect(events.filter(({ kind }) => kind === "generation-started").at(-1)).toMatchObject({
      ranks: [
        { rank: 0, was: 0 },
        { rank: 1, was: 2 },
      ],
    });
  });

  it("may have left with code 0: whoever waits for it fails half a second later, and it is started again", async () => {
    const { results } = await withFault("exit0");
    expect(results.map(({ generation, errors, wrong }) => [generation, errors, wrong])).toEqual([
      [2, ["RankFailedError 1 1"], []],
      [2, [], []],
      [2, ["RankFailedError 1 1"], []],
    ]);
  });

  it.each(["loop", "block"] as const)("is ended when it does not come: %s", async (how) => {
    const { results, events } = await withFault(how, {
      onFailure: how === "block" ? "shrink" : "respawn",
      rebuildTimeoutMs: 1200,
      data: { steps: 2, timeoutMs: 1000, faults: [{ generation: 1, rank: 1, how, step: 1 }] },
    });
    expect(results.every(({ generation, wrong }) => generation === 2 && wrong.length === 0)).toBe(true);
    expect(results).toHaveLength(how === "block" ? 2 : 3);
    expect(results[0]?.errors[0]).toMatch(/^TimeoutError|^RankFailedError 1 2/);
    expect(events.find(({ kind }) => kind === "rank-failed")).toMatchObject({
      rank: 1,
      how: "evicted",
      message: expect.stringMatching(/^did not call world.rebuild\(\) within \d+ ms, and was ended$/),
    });
  });

  it("may be ended from outside", async () => {
    const hosts: RankHost[] = [];
    const take = () => {
      const host = new RankWorker();
      hosts.push(host);
      return host;
    };
    const options: LaunchOptions<number, undefined> = {
      ranks: 2,
      onFailure: "respawn",
      onOutput: () => hosts[1]?.terminate(),
      run: async (world: World) => {
        await world.comm.barrier();
        if (world.generation > 1) return world.generation;
        if (world.rank === 0) console.log("now");
        await (async () => {
          for (;;) await world.comm.barrier();
        })().catch(() => {});
        const next = await world.rebuild();
        await next.comm.barrier();
        return next.generation;
      },
    };
    expect(await runWorld(options, take, false)).toEqual([2, 2]);
    expect(hosts).toHaveLength(3);
  });
});

describe("failures on failures", () => {
  it("of another rank while the survivors are awaited are part of the same rebuild", async () => {
    const data: Plan = {
      steps: 2,
      faults: [
        { generation: 1, rank: 1, how: "throw", step: 1 },
        { generation: 1, rank: 2, how: "late", step: 1 },
      ],
    };
    for (const onFailure of ["respawn", "shrink"] as const) {
      const { results, events } = await withFault("throw", { ranks: 4, data, onFailure });
      const size = onFailure === "respawn" ? 4 : 2;
      expect(results.map(({ generation, size: of, wrong }) => [generation, of, wrong])).toEqual(
        Array.from({ length: size }, () => [2, size, []]),
      );
      expect(events.filter(({ kind }) => kind === "rebuild-started")).toHaveLength(1);
    }
  });

  it("make generation after generation, as long as there are restarts", async () => {
    const faults = [1, 2, 3].map((generation) => ({
      generation,
      rank: generation % 3,
      how: "throw" as const,
      step: 0,
    }));
    const { results } = await withFault("throw", { data: { steps: 2, faults }, restarts: 3 });
    expect(results.map(({ generation, wrong }) => [generation, wrong])).toEqual(
      Array.from({ length: 3 }, () => [4, []]),
    );
    // Rank 0 died last: its replacement has seen nothing.
    expect(results.map(({ errors }) => errors.length)).toEqual([0, 2, 1]);
  });

  it("of every rank start every rank again, also a script that never heard of rebuild", async () => {
    const results = await launch({
      ranks: 3,
      restarts: 1,
      onOutput: () => {},
      run: async (world: World) => {
        await world.comm.barrier();
        if (world.generation === 1 && world.rank === 2) throw new Error("only once");
        await world.comm.barrier();
        return [world.rank, world.generation, process.env["CHORALE_GENERATION"]];
      },
    });
    expect(results).toEqual([
      [0, 2, "2"],
      [1, 2, "2"],
      [2, 2, "2"],
    ]);
  });

  it("reach ranks that talk only among themselves", async () => {
    const results = await launch({
      ranks: 4,
      onFailure: "shrink",
      onOutput: () => {},
      run: async (world: World) => {
        const mesh = world.mesh({ dp: 2, tp: 2 });
        const tp = await world.communicator(mesh, "tp");
        await world.comm.barrier();
        if (world.rank === 0) throw new Error("gone");
        // The news may have come before this rank is back from the barrier: an event that has passed is never heard.
        const heard = new Promise<void>((resolve) => {
          if (world.signal.aborted) resolve();
          else world.signal.addEventListener("abort", () => resolve());
        });
        const error = await (async () => {
          for (;;) await tp.barrier();
        })().catch((caught: Error) => caught);
        await heard;
        // A group that is opened afterwards has failed from the start.
        const late = await world.communicator(world.mesh({ solo: 2, pair: 2 }), "pair");
        const refused = await (async () => late.barrier())().then(
          () => "worked",
          (caught: Error) => caught.name,
        );
        const next = await world.rebuild();
        await next.comm.barrier();
        return [next.rank, next.size, error.name, (world.signal.reason as Error).name, refused];
      },
    });
    expect(results).toEqual(
      [0, 1, 2].map((rank) => [rank, 3, "RankFailedError", "RankFailedError", "RankFailedError"]),
    );
  });
});

describe("world.rebuild()", () => {
  it("needs no failure, gives everybody the same next world, and refuses what is of the old one", async () => {
    const results = await launch({
      ranks: 3,
      onFailure: "respawn",
      run: async (world: World) => {
        const { joinWorld: join } = await import("chorale");
        const old = world.tensor("f32", [8]);
        const comm = world.comm;
        await comm.barrier();
        const pending = comm.recv(world.tensor("f32", [1]), (world.rank + 1) % 3);
        const [first, second] = [world.rebuild(), world.rebuild()];
        const whileWaiting = await join();
        const next = await first;
        const x = next.tensor("f32", [8]);
        x.data.fill(1);
        await next.comm.allReduce(x);
        const errors: string[] = [];
        const attempt = async (what: () => unknown) => {
          try {
            await what();
            errors.push("worked");
          } catch (error) {
            errors.push(`${(error as Error).name}: ${(error as Error).message}`);
          }
        };
        await attempt(() => pending);
        await attempt(() => next.comm.allReduce(old));
        await attempt(() => next.comm.allReduce(x, { output: old }));
        await attempt(() => old.data);
        await attempt(() => comm.barrier());
        await attempt(() => world.tensor("f32", [1]));
        await attempt(() => world.comm);
        await attempt(() => next.free(old));
        const same =
          first === second && whileWaiting === next && (await join()) === next && (await world.rebuild()) === next;
        await world.close();
        return { same, closed: world.closed, sum: x.data[0], generations: [world.generation, next.generation], errors };
      },
    });
    for (const result of results) {
      expect(result).toEqual({
        same: true,
        closed: true,
        sum: 3,
        generations: [1, 2],
        errors: [
          "AbortedError: aborted: world.rebuild() left it for generation 2",
          "ClosedError: tensor belongs to generation 1, which ended: world.rebuild() left it for generation 2",
          "ClosedError: tensor belongs to generation 1, which ended: world.rebuild() left it for generation 2",
          "ClosedError: tensor belongs to generation 1, which ended: world.rebuild() left it for generation 2",
          "ClosedError: group world belongs to generation 1, which ended: world.rebuild() left it for generation 2",
          "ClosedError: world of generation 1 was left for generation 2: use the world that rebuild() gave",
          "ClosedError: world of generation 1 was left for generation 2: use the world that rebuild() gave",
          expect.stringMatching(/^InvalidArgumentError: tensor is .*expected a tensor that this world allocated$/),
        ],
      });
    }
  });

  it("is refused in a world that ends at failures, and after close(): nothing changes", async () => {
    const messages = await runRanks(2, async (world: World) => {
      const say = (error: Error) => `${error.name}: ${error.message}`;
      const first = await world.rebuild().then(() => "worked", say);
      const wrong = await world.rebuild({ timeoutMs: 0 }).then(() => "worked", say);
      await world.comm.barrier();
      await world.close();
      return [first, wrong, await world.rebuild().then(() => "worked", say)];
    });
    expect(messages[1]).toEqual([
      expect.stringMatching(/^UnsupportedError: world.rebuild\(\) in this world .*onFailure "respawn" or "shrink"/),
      expect.stringContaining("timeoutMs is 0; expected a number of milliseconds from 1"),
      "ClosedError: world is closed, and cannot be rebuilt",
    ]);
  });

  it("is refused, with the first failure, when no restart is left", async () => {
    const events: WorldEvent[] = [];
    const seen: string[] = [];
    const failing = launch({
      ranks: 2,
      restarts: 1,
      graceMs: 3000,
      onEvent: (event) => events.push(event),
      onOutput: ({ text }) => seen.push(text),
      run: async (first: World) => {
        let world = first;
        for (;;) {
          try {
            await world.comm.barrier();
            if (world.rank === 1) throw new RangeError(`of generation ${world.generation}`);
            await world.comm.barrier();
          } catch (error) {
            if (error instanceof RangeError) throw error;
            try {
              world = await world.rebuild();
            } catch (refusal) {
              console.log(`${(refusal as Error).message} <- ${((refusal as Error).cause as Error).name}`);
              throw refusal;
            }
          }
        }
      },
    });
    await expect(failing).rejects.toBeInstanceOf(RankFailedError);
    await expect(failing).rejects.toMatchObject({
      rank: 1,
      generation: 2,
      cause: { name: "RangeError", message: "of generation 2" },
    });
    expect(seen).toEqual([
      "aborted: world.rebuild() was refused: the one rebuild is used up; the first failure: RangeError: of generation 2 <- RangeError",
    ]);
    expect(events.map(({ kind }) => kind)).toContain("rebuild-refused");
    expect(events.at(-1)).toMatchObject({ kind: "world-ended", ok: false, generation: 2 });
  });

  it("may be refused without being the end: a rank that deals with it returns its result", async () => {
    const results = await launch({
      ranks: 2,
      onFailure: "respawn",
      restarts: 0,
      run: async (world: World) => {
        await world.comm.barrier();
        return world.rebuild().then(
          () => "rebuilt",
          (error: Error) => error.message,
        );
      },
    });
    expect(results).toEqual(Array(2).fill("aborted: world.rebuild() was refused: all 0 rebuilds are used up"));
  });

  it("works on threads that are kept between worlds, which are not kept then", async () => {
    const run = async (world: World) => {
      await world.comm.barrier();
      if (world.generation === 1 && world.rank === 0) throw new Error("once");
      await world.comm.barrier();
      return world.generation;
    };
    expect(await runRanks(3, run, { restarts: 1, onOutput: () => {} })).toEqual([2, 2, 2]);
    expect(await runRanks(3, (world: World) => world.generation)).toEqual([1, 1, 1]);
  });

  it("does not run a rank again that has returned; shrink goes on without it", async () => {
    const run = async (world: World) => {
      if (world.rank === 0) return "early";
      await new Promise((resolve) => setTimeout(resolve, world.rank === 1 ? 100 : 10));
      if (world.rank === 1) throw new Error("late");
      // Late, the call itself throws.
      const error = await (async () => world.comm.barrier())().catch((caught: Error) => caught);
      if (error === undefined) return "worked";
      const next = await world.rebuild();
      return [next.rank, next.size];
    };
    const options = { ranks: 4, run, onOutput: () => {} };
    const events: WorldEvent[] = [];
    const failing = launch({ ...options, onFailure: "respawn", onEvent: (event) => events.push(event) });
    await expect(failing).rejects.toMatchObject({ rank: 1, cause: { message: "late" } });
    expect(events.find(({ kind }) => kind === "rebuild-refused")).toMatchObject({
      because: "rank 0 has returned already, and a rank that returned is not run again",
    });
    expect(await launch({ ...options, onFailure: "shrink" })).toEqual([
      [0, 2],
      [1, 2],
    ]);
  });

  it("ends the world when too few are left", async () => {
    const events: WorldEvent[] = [];
    const failing = withFault("throw", { onFailure: "shrink", minRanks: 3, onEvent: (event) => events.push(event) });
    await expect(failing).rejects.toMatchObject({ name: "RankFailedError", rank: 1, cause: { message: "throw" } });
    expect(events.find(({ kind }) => kind === "rebuild-refused")).toMatchObject({
      because: "only 2 ranks are left, and minRanks is 3",
    });
    const nobody = launch({
      ranks: 2,
      onFailure: "shrink",
      onOutput: () => {},
      run: async (world: World) => {
        await world.comm.barrier();
        if (world.rank === 0) throw new SyntaxError("the origin");
        await world.comm.barrier();
      },
    });
    await expect(nobody).rejects.toMatchObject({ rank: 0, cause: { name: "SyntaxError", message: "the origin" } });
  });

  it("takes the earliest deadline that a rank asks for, and lets a result wait for a rebuild under way", async () => {
    const start = performance.now();
    const results = await launch({
      ranks: 3,
      onFailure: "shrink",
      onOutput: () => {},
      run: async (world: World) => {
        await world.comm.barrier();
        if (world.rank === 2) for (;;);
        void world.rebuild({ timeoutMs: 300 });
        return "before the rebuild is done";
      },
    });
    expect(results).toEqual(["before the rebuild is done", "before the rebuild is done"]);
    expect(performance.now() - start).toBeLessThan(10_000);
  });

  it("ends by the world's signal and time limit while survivors are awaited", async () => {
    const controller = new AbortController();
    const run = async (world: World) => {
      await world.comm.barrier();
      if (world.rank === 1) for (;;);
      await world.rebuild();
    };
    const aborted = launch({
      ranks: 2,
      onFailure: "respawn",
      signal: controller.signal,
      run,
      onEvent: ({ kind }) => kind === "rebuild-started" && controller.abort("enough"),
    });
    await expect(aborted).rejects.toBeInstanceOf(AbortedError);
    await expect(launch({ ranks: 2, onFailure: "respawn", timeoutMs: 700, run })).rejects.toBeInstanceOf(TimeoutError);
  });

  it("works for the only rank of a world that nobody launched", async () => {
    const world = await joinWorld();
    const x = world.tensor("f32", [2]);
    const next = await world.rebuild();
    expect([next.generation, next.size]).toEqual([2, 1]);
    expect(() => x.data).toThrow("belongs to generation 1");
    expect(await joinWorld()).toBe(next);
    await next.close();
    await (await joinWorld()).close();
  });
});

describe("what happened", () => {
  it("is published, and a listener that throws disturbs nobody", async () => {
    const published: WorldEvent[] = [];
    const listener = (message: unknown) => published.push(message as WorldEvent);
    subscribe(WORLD_CHANNEL, listener);
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    process.on("warning", onWarning);
    try {
      await withFault("exit1", {
        onEvent: () => {
          throw new Error("of the listener");
        },
      });
      await new Promise((resolve) => setImmediate(resolve));
    } finally {
      unsubscribe(WORLD_CHANNEL, listener);
      process.off("warning", onWarning);
    }
    expect(published.at(-1)).toMatchObject({ kind: "world-ended", ok: true });
    expect(warnings[0]).toContain("onEvent threw at generation-started: Error: of the listener");
  });

  it("is written down for every generation that failed", async () => {
    const folder = mkdtempSync(join(tmpdir(), "chorale-flight-"));
    process.env["CHORALE_FLIGHT_DIR"] = folder;
    try {
      const faults = [1, 2].map((generation) => ({ generation, rank: 1, how: "throw" as const, step: 1 }));
      const { events } = await withFault("throw", { data: { steps: 2, faults } });
      const files = readdirSync(folder).toSorted(
        (a, b) => Number(a.split("-").at(-1)?.[0]) - Number(b.split("-").at(-1)?.[0]),
      );
      expect(files.map((name) => name.replace(/^flight-\d+-\d+-/, ""))).toEqual(["1.json", "2.json"]);
      expect(events.filter(({ kind }) => kind === "flight-recorded")).toHaveLength(2);
      const second: unknown = JSON.parse(readFileSync(join(folder, files[1] ?? ""), "utf8"));
      expect(second).toMatchObject({ generation: 2, worldSize: 3, backend: "threads" });
    } finally {
      delete process.env["CHORALE_FLIGHT_DIR"];
      rmSync(folder, { recursive: true });
    }
  });

  it("leaves neither memory nor threads behind", { timeout: 60_000 }, async () => {
    const handles = () =>
      process.getActiveResourcesInfo().filter((name) => /Worker|MessagePort|Timeout/.test(name)).length;
    const before = handles();
    const rss = await launch({
      ranks: 2,
      onFailure: "respawn",
      restarts: 1000,
      run: async (first: World) => {
        let world = first;
        const rss: number[] = [];
        for (let round = 0; round < 50; round++) {
          // 8 MiB that each rank touches: kept, fifty generations would hold 800.
          const x = world.tensor("f64", [1024 * 1024]);
          x.data.fill(round + world.rank);
          await world.comm.allReduce(x);
          if (x.data[x.size - 1] !== 2 * round + 1) throw new Error(`wrong in round ${round}`);
          rss.push(process.memoryUsage.rss());
          world = await world.rebuild();
        }
        return rss;
      },
    });
    const mebibytes = (rss[0] ?? []).map((bytes) => bytes / 2 ** 20);
    expect(mebibytes).toHaveLength(50);
    expect(Math.max(...mebibytes) - (mebibytes[0] ?? 0)).toBeLessThan(500);
    expect(handles()).toBeLessThanOrEqual(before);
  });
});
