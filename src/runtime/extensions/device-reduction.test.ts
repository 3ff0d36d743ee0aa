/** Quantised all-reduces of device tensors, over the stand-in of CUDA and NCCL: the same results as on CPUs, bit for bit. */
import { closeRankPool, runRanks } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import { useFakeGpu } from "../../../test/helpers/fake-gpu.ts";

const available = useFakeGpu();
// The stand-in is its own compiler.
process.env["CHORALE_NVRTC_LIBRARY"] = process.env["CHORALE_CUDA_LIBRARY"];
afterAll(closeRankPool);

const seed = Number(process.env["CHORALE_SEED"] ?? (Math.random() * 2 ** 31) | 0);

const CASES = [
  { dtype: "f32", format: "e4m3", blockSize: 128, op: "sum", count: 30_000, from: 0, pieces: 3 },
  { dtype: "bf16", format: "e5m2", blockSize: 32, op: "avg", count: 1111, from: 1 },
  { dtype: "f16", format: "e4m3", blockSize: 64, op: "sum", count: 777, from: 0 },
  { dtype: "f32", format: "e5m2", blockSize: 1024, op: "avg", count: 2500, from: 3 },
  { dtype: "f16", format: "e5m2", blockSize: 256, op: "avg", count: 513, from: 2 },
  { dtype: "bf16", format: "e4m3", blockSize: 512, op: "sum", count: 1, from: 0 },
  { dtype: "f32", format: "e4m3", blockSize: 128, op: "sum", count: 0, from: 0 },
] as const;

describe.skipIf(!available)("quantizedAllReduce of device tensors (needs a C++ compiler)", () => {
  it.each([
    ["nccl", 3, CASES],
    ["cuda", 2, CASES.slice(0, 2)],
  ] as const)(`gives on %s what CPUs give (seed ${seed})`, async (backend, ranks, cases) => {
    const results = await runRanks(
      ranks,
      async (world, data) => {
        const { seed, cases } = data as unknown as { seed: number; cases: typeof CASES };
        const { quantizedAllReduce } = await import("chorale/extensions");
        const { newArray } = await import("chorale");
        const { comm } = world;
        let state = seed + 1000 * world.rank;
        const random = () => {
          state = (Math.imul(state, 1664525) + 1013904223) | 0;
          return (state >>> 8) / 2 ** 24;
        };
        const wrong: string[] = [];
        for (const { dtype, from, count, ...options } of cases) {
          const values = newArray(dtype, from + count);
          // Any bits: subnormal numbers, huge ones, infinities and NaN among them.
          const words = new Uint16Array(values.buffer as ArrayBuffer);
          for (let i = 0; i < words.length; i++) words[i] = random() < 0.5 ? 0x3f80 + random() * 256 : random() * 65536;
          const x = world.tensor(dtype, [from + count]);
          world.upload(x, values as never);
          const given = x.slice(from, from + count);
          const onHost = quantizedAllReduce(comm, values.slice(from) as never, { ...options, dtype }).wait();
          const made = world.tensor(dtype, [count]);
          await quantizedAllReduce(comm, given, { ...options, output: made });
          // Another stream's work comes behind by itself, and so does a call in place.
          quantizedAllReduce(comm, given, options);
          (comm as import("chorale/nccl").NcclCommunicator).synchronize();
          const expected = Buffer.from(new Uint8Array(onHost.data.buffer as ArrayBuffer));
          const found = [made, given].map((one) => world.download(one));
          for (const [i, bits] of found.entries()) {
            const same = Buffer.from(bits.buffer as ArrayBuffer, bits.byteOffset, bits.byteLength).equals(expected);
            if (!same) wrong.push(`${JSON.stringify({ dtype, count, ...options })} ${i === 0 ? "" : "in place"}`);
          }
        }
        return wrong;
      },
      { backend, data: { seed, cases } } as never,
    );
    expect(results).toEqual(Array(ranks).fill([]));
  });

  it("is recorded in graphs, keeps its place among other calls, and tells what differs", async () => {
    const results = await runRanks(
      2,
      async (world) => {
        const { quantizedAllReduce } = await import("chorale/extensions");
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const x = world.tensor("f32", [20_000]);
        const first = () => world.download(x)[299];
        const values = new Float32Array(20_000).fill(world.rank + 1);
        let early = "";
        try {
          comm.capture((group) => void quantizedAllReduce(group, x));
        } catch (error) {
          early = (error as Error).message;
        }
        world.upload(x, values);
        // Not awaited: 3, 6, 12.
        quantizedAllReduce(comm, x, { pieces: 2 });
        comm.allReduce(x);
        await quantizedAllReduce(comm, x);
        const eager = first();
        const graph = comm.capture((group) => {
          quantizedAllReduce(group, x, { pieces: 2 });
          group.allReduce(x);
        });
        world.upload(x, values);
        await comm.replay(graph);
        await comm.replay(graph);
        const replayed = first();
        graph.close();
        const alone = await comm.split(world.rank);
        const own = alone && (await quantizedAllReduce(alone, x, { output: world.tensor("f32", [20_000]) }));
        const copied = own && world.download(own)[0];
        await alone?.close();
        const mixed = await quantizedAllReduce(comm, x, { format: world.rank === 0 ? "e4m3" : "e5m2" }).then(
          () => "fine",
          (error: Error) => error.message,
        );
        return { early, eager, replayed, copied, mixed };
      },
      { backend: "nccl" } as never,
    );
    for (const result of results as Record<string, unknown>[]) {
      expect(result).toMatchObject({ eager: 12, replayed: 24, copied: 24 });
      expect(result["early"]).toMatch(/capture of a quantizedAllReduce of a kind that was not made before/);
      expect(result["mixed"]).toMatch(/quantizedAllReduce, e[45]m[32] in blocks of 128/);
    }
  });
});
