/** Quantised all-reduces in worlds of CPU backends: order, failures, groups, refusals. Their arithmetic: quantizer.test.ts. */
import { closeRankPool, runRanks } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";

afterAll(closeRankPool);

describe.each(["threads", "shm", "tcp"] as const)("quantizedAllReduce on %s", (backend) => {
  const options = backend === "shm" ? { backend, isolation: "process" as const } : { backend };

  it("sums on all ranks alike, in order with other calls, in sub-groups and with empty tensors", async () => {
    const results = await runRanks(
      3,
      async (world) => {
        const { quantizedAllReduce } = await import("chorale/extensions");
        const { comm } = world;
        const x = world.tensor("f32", [1000]);
        x.data.set(Float32Array.from({ length: 1000 }, (_, i) => ((i % 16) + 1) * (comm.rank + 1)));
        const output = world.tensor("f32", [1000]);
        // Issued together, with an exact one in between, and awaited from the last to the first.
        const first = quantizedAllReduce(comm, x, { output });
        const exact = comm.allReduce(Float32Array.of(comm.rank));
        const second = quantizedAllReduce(comm, new Uint16Array(200).fill(0x3f80), {
          dtype: "bf16",
          op: "avg",
          format: "e5m2",
        });
        const empty = quantizedAllReduce(comm, new Float32Array(0));
        if ((await empty).size !== 0) throw new Error("not empty");
        const average = [...(await second).data];
        const sum = [...(await exact).data];
        const whole = [...(await first).data];
        const pair = await comm.split(comm.rank === 1 ? -1 : 0);
        const ofPair =
          pair && quantizedAllReduce(pair, Float32Array.of(2, comm.rank, 0), { blockSize: 32 }).wait().data;
        await pair?.close();
        const alone = await comm.split(comm.rank);
        const same = alone && [
          ...(await quantizedAllReduce(alone, Float32Array.of(1.2345), { output: new Float32Array(1) })).data,
        ];
        return {
          average,
          sum,
          whole,
          untouched: x.data[999],
          ofPair: ofPair && [...ofPair],
          same,
          count: comm.stats().pending,
        };
      },
      options as never,
    );
    for (const result of results as { average: number[]; whole: number[]; sum: number[]; same: number[] }[]) {
      expect(result.average).toEqual(Array(200).fill(0x3f80));
      expect(result.sum).toEqual([3]);
      expect(result.whole).toEqual((results[0] as typeof result).whole);
      for (const [i, y] of result.whole.entries()) {
        const exact = ((i % 16) + 1) * 6;
        expect(Math.abs(y - exact)).toBeLessThanOrEqual(exact / 8);
      }
      expect(result.same).toEqual([Math.fround(1.2345)]);
    }
    const [a, b, c] = results as { ofPair?: number[]; untouched: number }[];
    expect([a?.ofPair, b?.ofPair, c?.ofPair]).toEqual([[4, 2, 0], undefined, [4, 2, 0]]);
    expect(a?.untouched).toBe(8);
  });

  it("fails on all ranks that were asked for different things, and says so", async () => {
    const errors = await runRanks(
      2,
      async (world) => {
        const { quantizedAllReduce } = await import("chorale/extensions");
        const work = quantizedAllReduce(world.comm, new Float32Array(64), world.rank === 0 ? {} : { format: "e5m2" });
        return work.then(
          () => "fine",
          (error: Error) => error.message,
        );
      },
      options as never,
    );
    for (const message of errors)
      expect(message).toMatch(/ranks made different calls[\s\S]*e4m3[\s\S]*e5m2|e5m2[\s\S]*e4m3/);
  });

  it("ends the calls behind one that its rank gave up before the others had come", async () => {
    const results = await runRanks(
      2,
      async (world) => {
        const { quantizedAllReduce } = await import("chorale/extensions");
        const told = (work: { then: Promise<unknown>["then"] }) =>
          work.then(
            () => "done",
            (error: Error) => error.message.replace(/did not.*/s, "..."),
          );
        const [given, late] = (await Promise.all([world.comm.split(0), world.comm.split(0)])) as (typeof world.comm)[];
        const [tensor, other] = [world.tensor("f32", [64]), world.tensor("f32", [64])];
        if (world.rank === 1) await world.comm.barrier();
        // Rank 0's second call must not meet the first one of rank 1.
        const giving = new AbortController();
        const works = [
          quantizedAllReduce(given as never, tensor, world.rank === 0 ? { signal: giving.signal } : {}),
          quantizedAllReduce(given as never, other),
        ];
        let freed = "freed";
        try {
          world.free(other);
        } catch (error) {
          freed = (error as Error).message;
        }
        if (world.rank === 0) giving.abort("enough");
        if (world.rank === 0) await world.comm.barrier();
        const aborted = await Promise.all(works.map(told));
        if (world.rank === 1) await world.comm.barrier();
        const one = new Float32Array(8);
        const outOfTime = await told(
          quantizedAllReduce(late as never, one, { timeoutMs: world.rank === 0 ? 50 : 9000 }),
        );
        if (world.rank === 0) await world.comm.barrier();
        const exact = await late?.allReduce(Float32Array.of(1));
        await given?.close().catch(() => {});
        await late?.close().catch(() => {});
        return { aborted, freed, outOfTime, exact: exact?.data[0] };
      },
      options as never,
    );
    const [a, b] = results as { aborted: string[]; freed: string; outOfTime: string; exact: number }[];
    expect(a?.aborted).toEqual(['aborted: "enough"', 'aborted: "enough"']);
    expect(b?.aborted).toEqual(['aborted: "enough"', 'aborted: "enough"']);
    expect(a?.freed).toMatch(/tensor is in use by quantized_all_reduce #1 of group/);
    expect(a?.outOfTime).toMatch(/^split #0 of .*\.\.\.$/);
    expect(b?.outOfTime).toMatch(/^aborted: split #0 of .*\.\.\.$/);
    expect([a?.exact, b?.exact]).toEqual([2, 2]);
  });

  it("names the call of a rank whose blocks differ in size, and so its bytes", async () => {
    const errors = await runRanks(
      2,
      async (world) => {
        const { quantizedAllReduce } = await import("chorale/extensions");
        return quantizedAllReduce(world.comm, new Float32Array(300), { blockSize: world.rank === 0 ? 64 : 128 }).then(
          () => "fine",
          (error: Error) => error.message,
        );
      },
      options as never,
    );
    for (const [rank, message] of errors.entries())
      expect(message).toContain(
        `rank ${rank}: quantizedAllReduce(300 x f32, sum, e4m3 in blocks of ${64 * (rank + 1)}), by all_gather(`,
      );
  });
});

describe("quantizedAllReduce", () => {
  it("refuses what is wrong before anything is sent", async () => {
    const [messages] = await runRanks(2, async (world) => {
      const { quantizedAllReduce } = await import("chorale/extensions");
      const x = new Float32Array(8);
      const calls: (() => unknown)[] = [
        () => quantizedAllReduce({} as never, x),
        () => quantizedAllReduce(world.comm, [1] as never),
        () => quantizedAllReduce(world.comm, x, { format: "e3m4" as never }),
        () => quantizedAllReduce(world.comm, x, { blockSize: 100 as never }),
        () => quantizedAllReduce(world.comm, x, { op: "max" as never }),
        () => quantizedAllReduce(world.comm, new Int32Array(8)),
        () => quantizedAllReduce(world.comm, new Uint16Array(8)),
        () => quantizedAllReduce(world.comm, x, { output: new Float32Array(7) }),
        () => quantizedAllReduce(world.comm, x, { blocks: 128 } as never),
        () => quantizedAllReduce(world.comm, x, { timeoutMs: -1 }),
        () => world.comm.batch((group) => void quantizedAllReduce(group, x)),
      ];
      const said = calls.map((call) => {
        try {
          call();
          return "taken";
        } catch (error) {
          return (error as Error).message;
        }
      });
      // None of them took part in anything.
      const sum = await quantizedAllReduce(world.comm, Float32Array.of(1));
      return [...said, sum.data[0]];
    });
    expect(messages).toMatchInlineSnapshot(`
      [
        "communicator is {}; expected a communicator of a world",
        "input is [1]; expected a tensor or a typed array",
        "format is "e3m4"; expected one of e4m3, e5m2",
        "blockSize is 100; expected one of 32, 64, 128, 256, 512, 1024",
        "quantizedAllReduce of "max" is not supported; it has sum and avg",
        "quantizedAllReduce of i32 is not supported; use one of f32, f16, bf16",
        "input is a Uint16Array; expected an array whose class tells its element type, or the dtype option (f16 or bf16)",
        "output is 7 elements; expected 8 elements (as the input)",
        "options of quantizedAllReduce is "blocks"; expected one of format, blockSize, op, output, pieces, dtype, timeoutMs, signal",
        "timeoutMs is -1; expected a number of milliseconds above 0",
        "quantizedAllReduce inside a batch is not supported; a batch takes collectives, barriers, sends and receives",
        2,
      ]
    `);
  });

  it("is over with its communicator, and tells a failure that nobody saw", async () => {
    const [said] = await runRanks(2, async (world) => {
      const { quantizedAllReduce } = await import("chorale/extensions");
      const pair = await world.comm.split(0);
      if (pair === undefined) throw new Error("no group");
      await quantizedAllReduce(pair, new Float32Array(8));
      // Rank 1 asks for another size, and neither looks at what became of it.
      quantizedAllReduce(pair, new Float32Array(8 + 400 * world.rank));
      const unseen = await pair.close().then(
        () => "closed",
        (error: Error) => error.constructor.name,
      );
      let after = "";
      try {
        quantizedAllReduce(pair, new Float32Array(8));
      } catch (error) {
        after = (error as Error).message;
      }
      const other = await world.comm.split(0);
      let aborted: string | undefined;
      if (world.rank === 0) {
        const pending = quantizedAllReduce(other as never, new Float32Array(8));
        await world.comm.barrier();
        aborted = await pending.then(
          () => "done",
          (error: Error) => error.message,
        );
      } else {
        await world.comm.barrier();
        other?.abort("enough");
      }
      await other?.close().catch(() => {});
      return [unseen, after, aborted];
    });
    expect(said).toMatchInlineSnapshot(`
      [
        "MismatchError",
        "group world/split0.0 was closed",
        "aborted: enough",
      ]
    `);
  });

  it("and residual + RMSNorm are told of as other calls are where nobody awaits them", async () => {
    const [said] = await runRanks(
      2,
      async (world) => {
        const { allReduceResidualRmsNorm, quantizedAllReduce } = await import("chorale/extensions");
        const group = await world.comm.split(0);
        if (group === undefined) throw new Error("no group");
        const f32 = (count: number) => new Float32Array(count).fill(1);
        await quantizedAllReduce(group, f32(8));
        quantizedAllReduce(group, f32(8));
        allReduceResidualRmsNorm(group, { input: f32(8), residual: f32(8), weight: f32(4) });
        return group.close().then(
          () => "closed",
          (error: Error) => error.message,
        );
      },
      { backendOptions: { strictWork: true } },
    );
    expect(said).toMatch(/work is 2 calls of group world\/split0\.0 that nobody awaited or waited for/);
    expect(said).toMatch(/\n {2}quantized_all_reduce #1 at .*\n {2}all_reduce #1 at /);
  });
});
