/** `world.rebuild()` on the threads backend: what it gives and refuses, and every answer of the launcher. */
import { afterAll, describe, expect, it } from "vitest";
import { withFault } from "../../../test/helpers/with-fault.ts";
import { AbortedError, RankFailedError, TimeoutError } from "../../core/index.ts";
import type { WorldEvent } from "./events.ts";
import { joinWorld } from "./join.ts";
import { launch, runWorld } from "./launch.ts";
import { RankWorker } from "./rank-worker.ts";
import type { RestartOptions } from "./restart-policy.ts";
import { closeRankPool, runRanks } from "./run-ranks.ts";
import type { World } from "./world.ts";

afterAll(closeRankPool);

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
      graceMs: 20_000,
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
    const run = async (world: World, returned: Int32Array) => {
      if (world.rank === 0) return "early";
      // Until the launcher has the result, and until rank 1 dies.
      const awaited = world.rank === 1 ? 1 : 2;
      while (Atomics.load(returned, 0) < awaited) await new Promise((resolve) => setTimeout(resolve, 2));
      if (world.rank === 1) {
        Atomics.store(returned, 0, 2);
        throw new Error("late");
      }
      // Late, the call itself throws.
      const error = await (async () => world.comm.barrier())().catch((caught: Error) => caught);
      if (error === undefined) return "worked";
      const next = await world.rebuild();
      return [next.rank, next.size];
    };
    const start = (options: RestartOptions & { onEvent?: (event: WorldEvent) => void }) => {
      const returned = new Int32Array(new SharedArrayBuffer(4));
      class Told extends RankWorker {
        protected override take(value: unknown): void {
          super.take(value);
          if ((value as { kind?: unknown }).kind === "done") Atomics.compareExchange(returned, 0, 0, 1);
        }
      }
      return runWorld({ ranks: 4, run, data: returned, onOutput: () => {}, ...options }, () => new Told(), false);
    };
    const events: WorldEvent[] = [];
    const failing = start({ onFailure: "respawn", onEvent: (event) => events.push(event) });
    await expect(failing).rejects.toMatchObject({ rank: 1, cause: { message: "late" } });
    expect(events.find(({ kind }) => kind === "rebuild-refused")).toMatchObject({
      because: "rank 0 has returned already, and a rank that returned is not run again",
    });
    expect(await start({ onFailure: "shrink" })).toEqual([
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
      data: new Int32Array(new SharedArrayBuffer(4)),
      run: async (world: World, hasAsked: Int32Array) => {
        await world.comm.barrier();
        if (world.rank === 2) for (;;);
        // Who asks for less asks last, so that the other is not taken for late.
        if (world.rank === 0) Atomics.wait(hasAsked, 0, 0);
        void world.rebuild(world.rank === 0 ? { timeoutMs: 300 } : {});
        Atomics.store(hasAsked, 0, 1);
        Atomics.notify(hasAsked, 0);
        return "before the rebuild is done";
      },
    });
    expect(results).toEqual(["before the rebuild is done", "before the rebuild is done"]);
    // Without what the rank asked for, a minute.
    expect(performance.now() - start).toBeLessThan(25_000);
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
