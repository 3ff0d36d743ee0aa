/** What becomes of launches whose group or rank ends while they run, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { available, library, slowDown, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { heldByFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";

describe.skipIf(!available)("launches on stand-in devices that are ended (needs g++)", () => {
  it("fails calls that a member stopped, though the device is done with them", { timeout: 60_000 }, async () => {
    // Two turns, and how the three calls ended: 1 well, 2 with the abort's error.
    const shared = new Int32Array(new SharedArrayBuffer(20));
    const ended = launch({
      ...worldOf(),
      data: shared,
      run: async (world, turns) => {
        const { comm } = world;
        const [x, y] = [world.tensor("f32", [100]), world.tensor("f32", [100])];
        await comm.allReduce(x, { output: y });
        if (comm.rank === 1) {
          while (Atomics.load(turns, 0) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
          comm.allReduce(x, { output: y });
          comm.abort("rank 1 gives up");
          Atomics.store(turns, 1, 1);
          Atomics.notify(turns, 1);
          return;
        }
        const works = [1, 2, 3].map(() => comm.allReduce(x, { output: y }));
        // Time for marks behind them; then nobody looks while the other rank makes one of the three and stops the rest.
        const ends = Promise.allSettled(works);
        await new Promise((resolve) => setTimeout(resolve, 50));
        Atomics.store(turns, 0, 1);
        Atomics.wait(turns, 1, 0, 10_000);
        const { stream } = comm as { stream?: { isDone(): boolean } };
        for (const until = performance.now() + 10_000; stream?.isDone() === false && performance.now() < until; );
        (await ends).forEach((end, i) => {
          if (end.status === "fulfilled") turns[2 + i] = 1;
          else if ((end.reason as { code: string }).code === "ABORTED") turns[2 + i] = 2;
        });
      },
    });
    // Whether rank 1's own call was done when it gave up is open; if not, nobody looked at its failure.
    await ended.catch((error: Error) => expect(error.message).toContain("rank 1 gives up"));
    expect([...shared.subarray(3)]).toEqual([2, 2]);
  });

  it("gives no result of a call that all members made and one of them cut short", { timeout: 60_000 }, async () => {
    // Rank 1's kernels are slow: it leaves while they run.
    slowDown(1);
    // How far the ranks are, and how the call ended for rank 0: 1 well, 2 with an error, 3 with a wrong result.
    const shared = new Int32Array(new SharedArrayBuffer(8));
    const ended = launch({
      ...worldOf(),
      data: shared,
      run: async (world, seen) => {
        const { comm } = world;
        const [x, y] = [world.tensor("f32", [1000]), world.tensor("f32", [1000])];
        world.upload(x, new Float32Array(1000).fill(comm.rank + 1));
        await comm.allReduce(x, { output: y });
        world.upload(y, new Float32Array(1000));
        await comm.barrier();
        const work = comm.allReduce(x, { output: y });
        Atomics.add(seen, 0, 1);
        while (Atomics.load(seen, 0) < 2);
        if (comm.rank === 1) process.exit(4);
        const isRight = () => world.download(y).every((value) => value === 3);
        seen[1] = await work.then(
          () => (isRight() ? 1 : 3),
          () => 2,
        );
      },
    });
    await expect(ended).rejects.toThrow("process.exit(4)");
    // 1 where the kernels were done by then.
    expect([1, 2]).toContain(shared[1]);
  });

  it.each(spread(["thread", "process"] as const, 2))(
    "ends kernels that wait for ever when their ranks are killed, ranks as %s",
    { timeout: 120_000 },
    async (isolation) => {
      const world = new AbortController();
      let running = 0;
      const ended = launch({
        ...worldOf(isolation),
        signal: world.signal,
        onOutput: ({ text }) => {
          if (text.includes("it runs") && ++running === 2) world.abort("enough");
        },
        run: async (world) => {
          const { algorithm } = await import("chorale/algorithms");
          const { comm } = world;
          const good = algorithm("packet-all-gather").make({ numRanks: 2 }).plan();
          const plan = structuredClone(good) as unknown as { ranks: { strands: { ops: { kind: string }[] }[] }[] };
          // Rank 0 sends nothing.
          for (const strand of plan.ranks[0]?.strands ?? []) {
            strand.ops = strand.ops.filter(({ kind }) => kind !== "put");
          }
          const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [128])];
          // Often enough for a graph of it, which is freed with the rest.
          for (let i = 0; i < 40; i++) await comm.allGather(x, { output: y });
          const { stream } = comm as { stream?: { isDone(): boolean } };
          const work = comm.run(plan as never, { input: x, output: y, force: true });
          void Promise.allSettled([work]);
          // Its kernel is on the stream when the plan has been opened, in a turn of the event loop.
          while (stream?.isDone() !== false) await new Promise(setImmediate);
          console.log("it runs");
          await new Promise(() => {});
        },
      });
      await expect(ended).rejects.toThrow("enough");
    },
  );

  it.each(spread(["the launcher", "their successors"], 2))(
    "frees nothing of killed ranks while a kernel of one of them runs, when %s free",
    { timeout: 120_000 },
    async (who) => {
      // What rank 1's kernel is told reaches it long after rank 0's, into whose memory it then still copies.
      slowDown(1);
      const ended = launch({
        ...worldOf(),
        ...(who === "the launcher" ? {} : { onFailure: "respawn" as const }),
        data: new Int32Array(new SharedArrayBuffer(4)),
        run: async (world, numReady) => {
          const { algorithm } = await import("chorale/algorithms");
          const { comm } = world;
          const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [128])];
          if (world.generation > 1) return 1;
          const good = algorithm("packet-all-gather").make({ numRanks: 2 }).plan();
          const plan = structuredClone(good) as unknown as { ranks: { strands: { ops: { kind: string }[] }[] }[] };
          // Both wait for packets that nobody sends.
          for (const strand of plan.ranks.flatMap(({ strands }) => strands)) {
            strand.ops = strand.ops.filter(({ kind }) => kind !== "put");
          }
          const { stream } = comm as { stream?: { isDone(): boolean } };
          void Promise.allSettled([comm.run(plan as never, { input: x, output: y, force: true })]);
          while (stream?.isDone() !== false) await new Promise(setImmediate);
          Atomics.add(numReady, 0, 1);
          while (Atomics.load(numReady, 0) < 2);
          // What process.exit() comes to, but for all that is told on the way.
          return (process as unknown as { reallyExit(code: number): never }).reallyExit(9);
        },
      });
      if (who === "the launcher") await expect(ended).rejects.toThrow("rank");
      else expect(await ended).toEqual([1, 1]);
      expect(heldByFakeGpu(library).violations).toBe(0);
    },
  );
});
