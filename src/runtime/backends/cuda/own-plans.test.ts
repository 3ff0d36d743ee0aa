/** Plans that programs run on the devices of a group, over the stand-in library. */

import { describe, expect, it } from "vitest";
import { available, choices, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";

describe.skipIf(!available)("programs' own plans on stand-in devices (needs g++)", () => {
  it("keeps a plan that makes room for others open for the calls of it that wait", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...worldOf(),
      data: new Int32Array(new SharedArrayBuffer(8)),
      run: async (world, steps) => {
        const { algorithm } = await import("chorale/algorithms");
        const group = await world.comm.split(0);
        if (group === undefined) throw new Error("no group");
        const names = ["one-shot-packet-all-reduce", "ring-all-reduce"];
        const [first, second] = names.map((name) => algorithm(name).make({ numRanks: 2 }));
        if (first === undefined || second === undefined) throw new Error("no plans");
        const [x, y] = [world.tensor("i32", [100]), world.tensor("i32", [100])];
        world.upload(x, new Int32Array(100).fill(1 + group.rank));
        await group.run(first, { input: x, output: y, op: "max" });
        world.upload(y, new Int32Array(100));
        const reached = async (step: number, ranks: number) => {
          while (Atomics.load(steps, step) < ranks) await new Promise((resolve) => setTimeout(resolve, 2));
        };
        // Rank 0 makes calls that rank 1 never makes: none of their plans is opened, and nothing else before all are made.
        if (group.rank === 1) await reached(0, 1);
        void Promise.allSettled([group.run(second, { input: x, output: y, op: "max" })]);
        const waits = group.run(first, { input: x, output: y, op: "max" });
        let numOthers = 0;
        for (const dtype of ["f32", "f64", "f16", "bf16", "i8", "u8", "u32", "i64", "u64"] as const)
          for (const op of ["sum", "prod", "max", "min"] as const)
            for (const plan of [first, second])
              if (group.rank === 0 && numOthers++ < 64)
                void Promise.allSettled([group.run(plan, { input: world.tensor(dtype, [8]), op })]);
        Atomics.store(steps, 0, 1);
        await Promise.resolve(waits);
        const found = world.download(y)[99];
        Atomics.add(steps, 1, 1);
        await reached(1, 2);
        group.abort("the others are not needed");
        return found;
      },
    });
    expect(results).toEqual([2, 2]);
  });

  it("runs programs on device tensors and arrays, also from graphs", { timeout: 120_000 }, async () => {
    const results = await launch({
      ...worldOf(),
      backend: "nccl",
      backendOptions: {},
      run: async (world) => {
        const { algorithm } = await import("chorale/algorithms");
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const packets = algorithm("one-shot-packet-all-reduce").make({ numRanks: 2 });
        const reads = algorithm("two-phase-all-reduce").make({ numRanks: 2, inPlace: true });
        const x = world.tensor("i32", [100]);
        const y = world.tensor("i32", [100]);
        const fill = () =>
          world.upload(
            x,
            Int32Array.from({ length: 100 }, (_, i) => i + 1000 * world.rank),
          );
        const ends = (t: typeof x) => [world.download(t)[0], world.download(t)[99]];
        const found: unknown[] = [];
        fill();
        const out = await comm.run(packets, { input: x, output: y });
        found.push(out === y, ends(y));
        await comm.run(packets, { input: x, output: y, op: "max" });
        found.push(ends(y));
        await comm.run(reads, { input: x });
        found.push(ends(x));
        const made = await comm.run(packets, { input: Float32Array.of(1, 2, 3 + comm.rank) });
        found.push([...((made as typeof made & object).data as Float32Array)]);
        const scaled = await comm.run(packets, { input: Float32Array.of(2), op: comm.preMulSum(0.5) });
        found.push([...((scaled as typeof scaled & object).data as Float32Array)]);
        fill();
        const graph = comm.capture((group) => {
          group.run(packets, { input: x, output: y });
          group.run(reads, { input: x });
        });
        await comm.replay(graph);
        await comm.replay(graph);
        found.push(ends(y), ends(x));
        graph.close();
        return { found, runs: comm.stats().operations["run"]?.calls };
      },
    });
    for (const result of results) {
      expect(result.found).toEqual([
        true,
        [1000, 1198],
        [1000, 1099],
        [1000, 1198],
        [2, 4, 7],
        [2],
        [2000, 2396],
        [2000, 2396],
      ]);
      expect(result.runs).toBe(5);
    }
  });

  it("refuses what is not proved, differs between ranks, or cannot be opened; the group goes on", {
    timeout: 120_000,
  }, async () => {
    const [told] = await launch({
      ...worldOf(),
      run: async (world) => {
        const { algorithm } = await import("chorale/algorithms");
        const { compile } = await import("chorale/language");
        const { comm } = world;
        const x = world.tensor("f32", [64]);
        const said: string[] = [];
        const refused = async (make: () => unknown) => {
          try {
            await make();
            said.push("done");
          } catch (error) {
            said.push((error as Error).message);
          }
        };
        const entry = algorithm("one-shot-packet-all-reduce");
        const unproved = compile(entry.make({ numRanks: 2 }), { verify: false });
        await refused(() => comm.run(unproved, { input: x }));
        await refused(() => comm.run(entry.make({ numRanks: 3 }), { input: x }));
        await refused(() => comm.run(entry.make({ numRanks: 2, instances: 3 }), { input: x }));
        await refused(() => comm.run(unproved, { input: x, force: true }));
        await refused(() => comm.allReduce(x, { algorithm: "no-such-thing" }));
        await refused(() => comm.allReduce(x, { algorithm: "one-shot-packet-all-reduce@33" }));
        await refused(() => comm.allReduce(x, { algorithm: "one-shot-packet-all-reduce@32" }));
        await refused(() => comm.allReduce(x, { algorithm: "nccl" }));
        await refused(() => comm.allGatherV(x, { counts: [64, 64], algorithm: "nccl" }));
        // Room on one rank is missing: no rank opens it.
        const filler = comm.rank === 0 ? world.tensor("u8", [80 << 20]) : undefined;
        await refused(() =>
          comm.run(entry.make({ numRanks: 2, instances: 2 }), { input: world.tensor("f64", [1 << 18]) }),
        );
        if (filler !== undefined) world.free(filler);
        await refused(() => comm.allReduce(x));
        await refused(() =>
          comm.run(comm.rank === 0 ? entry.make({ numRanks: 2 }) : algorithm("ring-all-reduce").make({ numRanks: 2 }), {
            input: x,
          }),
        );
        return said;
      },
      backendOptions: { choices, memoryLimitBytes: 128 << 20 },
    }).catch((error: Error) => [[error.message]]);
    expect(told).toEqual([
      expect.stringMatching(/which was not verified/),
      expect.stringMatching(/for 3 ranks/),
      "done",
      "done",
      expect.stringMatching(/no-such-thing.*one of nccl, one-shot/),
      expect.stringMatching(/@33.*a kernel's shape/),
      "done",
      "done",
      expect.stringMatching(/NCCL serves this operation/),
      expect.stringMatching(/rank 0.*bytes asked for|CUDA device 0: \d+ bytes asked for/),
      "done",
      expect.stringMatching(
        /ranks of world disagree on operation #6(.|\n)*with plan (one-shot-packet|ring)-all-reduce/,
      ),
    ]);
  });
});
