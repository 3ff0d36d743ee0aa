/** Failure and rebuild on the threads backend: every way to go, what is told of it, and nothing left behind. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Plan } from "../../../test/e2e/ranks/faulty.ts";
import { withFault } from "../../../test/helpers/with-fault.ts";
import { spread } from "../../../test/support/spread.ts";
import { WORLD_CHANNEL, type WorldEvent } from "./events.ts";
import { launch, runWorld } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";
import type { RankHost } from "./rank-host.ts";
import { RankWorker } from "./rank-worker.ts";
import type { World } from "./world.ts";

describe("a rank that is gone", () => {
  const ends = [
    ["throw", "throw"],
    ["reject", "unhandled"],
    ["exit1", "called process.exit(1)"],
  ] as const;
  it.each(spread(ends, 3))("is started again: %s", async (how, message) => {
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

  it.each(spread(["loop", "block"] as const, 2))("is ended when it does not come: %s", async (how) => {
    const { results, events } = await withFault(how, {
      onFailure: how === "block" ? "shrink" : "respawn",
      data: {
        steps: 2,
        timeoutMs: 1000,
        faults: [{ generation: 1, rank: 1, how, step: 1 }],
        lastAsks: { asked: new Int32Array(new SharedArrayBuffer(4)), timeoutMs: 300 },
      },
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
    for (const onFailure of spread(["respawn", "shrink"] as const, 2)) {
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
        for (let round = 0; round < 25; round++) {
          // 8 MiB that each rank touches: kept, 25 generations would hold 400 MiB. Ten may wait for the collector.
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
    expect(mebibytes).toHaveLength(25);
    expect(Math.max(...mebibytes) - (mebibytes[0] ?? 0)).toBeLessThan(250);
    expect(handles()).toBeLessThanOrEqual(before);
  });

  it("keeps no generation of which a rank died", { timeout: 60_000 }, async () => {
    const rss: number[] = [];
    await launch({
      ranks: 2,
      onFailure: "respawn",
      restarts: 100,
      run: async (first: World) => {
        let world = first;
        for (;;) {
          const x = world.tensor("f64", [2 * 1024 * 1024]);
          x.data.fill(1);
          await world.comm.allReduce(x);
          if (world.generation === 11) return;
          try {
            // Both die in turn, so that neither can be what keeps a generation.
            if (world.rank === world.generation % 2) throw new Error("this rank dies");
            await world.comm.barrier();
          } catch (error) {
            if ((error as Error).name !== "RankFailedError") throw error;
            world = await world.rebuild();
          }
        }
      },
      onOutput: () => {},
      onEvent: ({ kind }) => void (kind === "generation-ready" && rss.push(process.memoryUsage.rss() / 2 ** 20)),
    });
    expect(rss).toHaveLength(11);
    // 32 MiB are touched in each: kept, eleven would hold 352.
    expect(Math.max(...rss) - (rss[1] ?? 0)).toBeLessThan(200);
  });
});
