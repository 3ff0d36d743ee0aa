/** Plans whose data copy engines send, over the stand-in library, which runs the rest of their kernels on the host (needs g++). */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "chorale/world";
import { afterAll, describe, expect, it } from "vitest";
import {
  buildFakeGpu,
  fakeGpuFolder,
  heldByFakeGpu,
  NOTHING_HELD,
  useFakeGpu,
} from "../../../../test/helpers/fake-gpu.ts";

const library = buildFakeGpu();
const available = library !== undefined && useFakeGpu();
const cache = mkdtempSync(join(tmpdir(), "chorale-engines-"));
process.env["XDG_CACHE_HOME"] = cache;
if (library !== undefined) process.env["CHORALE_NVRTC_LIBRARY"] = library;
const folder = fakeGpuFolder();
afterAll(() => {
  rmSync(cache, { recursive: true });
  folder.remove();
});

describe.skipIf(!available)("copy engines over a stand-in library (needs g++)", () => {
  afterAll(() => {
    expect(heldByFakeGpu(library ?? "")).toEqual(NOTHING_HELD);
  });

  it.each([
    ["thread", 2],
    ["process", 2],
    ["thread", 3],
  ] as const)("serve every collective, ranks as %s, %i of them", { timeout: 180_000 }, async (isolation, ranks) => {
    const results = await launch({
      ranks,
      backend: "cuda",
      isolation,
      env: isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {},
      timeoutMs: 170_000,
      run: async (world) => {
        const { rank } = world;
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        const n = comm.size;
        const MOST = 3000;
        // Parts that begin where no unit does.
        const [x, y] = [world.tensor("i32", [n * MOST + 3]), world.tensor("i32", [n * MOST + 3])];
        const value = (i: number, of: number, turn: number) => 7 * i + 100_003 * of + 1_000_003 * turn;
        const shape = (name: string, instances = 2) => `${name}*${instances}@32.unit1K.engine${instances}`;
        const wrong: string[] = [];
        let turn = 0;
        const check = async (
          what: string,
          counts: readonly [number, number],
          call: (input: typeof x, output: typeof x) => unknown,
          wanted: (i: number) => number,
        ) => {
          const [input, output] = [x.slice(3, 3 + counts[0]), y.slice(1, 1 + counts[1])];
          turn++;
          world.upload(
            x,
            Int32Array.from({ length: x.size }, (_, i) => value(i - 3, rank, turn)),
          );
          world.upload(y, new Int32Array(y.size).fill(-1));
          await call(input, output);
          const got = world.download(y) as Int32Array;
          for (let i = 0; i < y.size; i++) {
            const isOutput = i >= 1 && i < 1 + counts[1];
            const want = isOutput ? wanted(i - 1) | 0 : -1;
            if (got[i] !== want) {
              wrong.push(`${what}: ${got[i]} at ${i - 1}, not ${want}`);
              break;
            }
          }
        };
        const sum = (i: number) => {
          let all = 0;
          for (let of = 0; of < n; of++) all += value(i, of, turn);
          return all;
        };
        // Other sizes over the same windows, and the same again: counters go on.
        const sizes = world.comm.size === 2 ? [1000, 5, 3000] : [1, 3000];
        for (const part of sizes) {
          const gather = { algorithm: shape("staged-all-gather") };
          await check(
            `all-gather ${part}`,
            [part, n * part],
            (input, output) => comm.allGather(input, { output, ...gather }),
            (i) => value(i % part, Math.floor(i / part), turn),
          );
          const scatter = { algorithm: shape("streaming-reduce-scatter") };
          await check(
            `reduce-scatter ${part}`,
            [n * part, part],
            (input, output) => comm.reduceScatter(input, { output, ...scatter }),
            (i) => sum(rank * part + i),
          );
          const all = { algorithm: shape("streaming-all-reduce", 1) };
          await check(
            `all-reduce ${part}`,
            [part, part],
            (input, output) => comm.allReduce(input, { output, ...all }),
            sum,
          );
          const exchange = { algorithm: shape("staged-all-to-all") };
          await check(
            `all-to-all ${part}`,
            [n * part, n * part],
            (input, output) => comm.allToAll(input, { output, ...exchange }),
            (i) => value(rank * part + (i % part), Math.floor(i / part), turn),
          );
          for (const root of [0, n - 1]) {
            const broadcast = { algorithm: shape("staged-broadcast"), root };
            await check(
              `broadcast ${part} ${root}`,
              [part, part],
              (input, output) => comm.broadcast(input, { output, ...broadcast }),
              (i) => value(i, root, turn),
            );
            const reduce = { algorithm: shape("staged-reduce"), root };
            const isRoot = rank === root;
            await check(
              `reduce ${part} ${root}`,
              [part, isRoot ? part : 0],
              (input, output) => comm.reduce(input, { ...reduce, ...(isRoot && { output }) }),
              sum,
            );
          }
        }
        // In a graph, beside calls of their own kind outside of it.
        const part = 2000;
        const [input, output] = [x.slice(3, 3 + part), y.slice(1, 1 + n * part)];
        const options = { output, algorithm: shape("staged-all-gather") };
        await comm.allGather(input, options);
        const graph = comm.capture((group) => {
          for (let k = 0; k < 3; k++) group.allGather(input, options);
        });
        const gathered = (i: number) => value(i % part, Math.floor(i / part), turn);
        for (let k = 0; k < 3; k++) {
          await check(`replay ${k}`, [part, n * part], () => comm.replay(graph), gathered);
          await check(`call ${k}`, [part, n * part], () => comm.allGather(input, options), gathered);
        }
        graph.close();
        return { wrong, choices: comm.stats().choices };
      },
    });
    const sizes = ranks === 2 ? 3 : 2;
    for (const { wrong, choices } of results) {
      expect(wrong).toEqual([]);
      // None fell back to NCCL. The graph's calls are captured, not made.
      expect(choices?.["all_gather staged-all-gather*2@32.unit1K.engine2"]).toBe(sizes + 7);
      expect(choices?.["reduce staged-reduce*2@32.unit1K.engine2"]).toBe(2 * sizes);
    }
  });

  it("end when a member does not come, with what waits for it", { timeout: 60_000 }, async () => {
    const ended = launch({
      ranks: 2,
      backend: "cuda",
      timeoutMs: 50_000,
      run: async (world) => {
        const { comm, rank } = world;
        const [x, y] = [world.tensor("f32", [1000]), world.tensor("f32", [2000])];
        const options = { output: y, algorithm: "staged-all-gather*2@32.unit1K.engine" };
        await comm.allGather(x, options);
        await comm.barrier();
        if (rank === 1) await new Promise(() => {});
        comm.allGather(x, options);
        await comm.allGather(x, { ...options, timeoutMs: 500 });
      },
    });
    await expect(ended).rejects.toThrow(/all_gather #\d+ of world did not complete within 500 ms/);
  });

  it("are refused where a plan's senders do more than send", { timeout: 60_000 }, async () => {
    const [said] = await launch({
      ranks: 2,
      backend: "cuda",
      timeoutMs: 50_000,
      run: async (world) => {
        const x = world.tensor("f32", [64]);
        const told: string[] = [];
        for (const algorithm of [
          "ring-all-reduce@32.engine",
          "one-shot-packet-all-reduce@32.engine",
          "staged@32.engine5",
        ]) {
          await Promise.resolve()
            .then(() => world.comm.allReduce(x, { algorithm }))
            .catch((error: Error) => told.push(error.message));
        }
        return told;
      },
    });
    expect(said).toEqual([
      expect.stringMatching(/ring-all-reduce by copy engines/),
      expect.stringMatching(/one-shot-packet-all-reduce by copy engines/),
      expect.stringMatching(/a kernel's shape/),
    ]);
  });
});
