/**
 * 1,000 random misuses of the communicator on every backend, each on the short way (a world tensor and no option that
 * asks for more) and on the careful one (a deadline beside it): the same class and words everywhere, and the group works
 * afterwards. CHORALE_SEED repeats a run; CHORALE_MISUSES says how many, on cuda, tcp and mpi too.
 */
import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { type BackendName, launch } from "chorale/world";
import { describe, expect, it, vi } from "vitest";
import { useFakeGpu } from "../helpers/fake-gpu.ts";
import { MPIS } from "../helpers/mpi.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const calls = Number(process.env["CHORALE_MISUSES"] ?? 1000);
const hasFakeGpu = useFakeGpu();
const isCampaign = process.env["CHORALE_MISUSES"] !== undefined;
const hasMpi = isCampaign && MPIS.some(({ installed }) => installed);
/** The backends beside threads and nccl have the checks of nccl or threads: in the suite a part of the calls suffices. */
const FEW = 250;

interface Report {
  /** What each misuse was answered, and the call; of both ways when they differ. */
  readonly answers: readonly string[];
  readonly apart: readonly string[];
  readonly sum: number;
  readonly pending: number;
}

/** Rank 0 misuses the world's communicator, and then all ranks use it. */
async function misuse(backend: BackendName, most = calls): Promise<Report> {
  const [report] = await launch({
    ranks: 2,
    backend,
    timeoutMs: 120_000,
    data: { seed, calls: most },
    run: async (world, { seed, calls }) => {
      const { comm } = world;
      let state = seed >>> 0 || 1;
      const random = (below: number): number => {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        return (state >>> 0) % below;
      };
      const one = <T>(list: readonly T[]): T => list[random(list.length)] as T;
      const words = [
        "preMulSum",
        "constructor",
        "toString",
        "__proto__",
        "valueOf",
        "hasOwnProperty",
        "SUM",
        "avg ",
        "",
      ];
      const freed = world.tensor("f32", [8]);
      world.free(freed);
      const [x, y, short] = [world.tensor("f32", [8]), world.tensor("f32", [8]), world.tensor("f32", [3])];
      const garbage = [null, 5, "text", {}, [], new DataView(new ArrayBuffer(8)), () => 1, Symbol.iterator, true, 1n];
      type Options = Record<string, unknown>;
      const c = comm as unknown as Record<string, (...args: unknown[]) => unknown>;
      const call = (method: string, ...args: unknown[]) =>
        (c[method] as (...args: unknown[]) => unknown).apply(comm, args);
      const reducing = ["allReduce", "reduce", "reduceScatter"];
      const rooted = ["broadcast", "reduce", "gather", "scatter"];
      const all = [...reducing, "broadcast", "allGather", "allToAll", "gather", "scatter"];
      const outputOf = (method: string) => (["reduceScatter", "allGather"].includes(method) ? short : y);
      // Each gives the call's name and the call, to which options can be added.
      const misuses: readonly (() => readonly [string, (more: Options) => unknown])[] = [
        () => {
          const [method, op] = [
            one(reducing),
            one([...words, 7, true, {}, { kind: "sum" }, ["sum"], { kind: "__proto__" }]),
          ];
          return [
            `${method} op ${JSON.stringify(op)}`,
            (more) => call(method, x, { ...more, op, output: outputOf(method) }),
          ];
        },
        () => {
          const [method, op] = [one(reducing), one(["band", "bor", "bxor"])];
          return [`${method} ${op} of floats`, (more) => call(method, x, { ...more, op })];
        },
        () => {
          const [method, root] = [one(rooted), one([-1, 2, 0.5, Number.NaN, "0", 2 ** 32, Number.POSITIVE_INFINITY])];
          return [`${method} root ${root}`, (more) => call(method, x, { ...more, root })];
        },
        () => {
          const [method, dtype] = [one(all), one([...words, "f64", "u8", 32])];
          return [`${method} dtype ${dtype}`, (more) => call(method, x, { ...more, dtype })];
        },
        () => {
          const [method, i] = [one(all), random(garbage.length)];
          return [`${method} data ${i}`, (more) => call(method, garbage[i], more)];
        },
        () => {
          const [method, i] = [one(["allReduce", "broadcast", "allGather", "allToAll"]), random(garbage.length)];
          return [`${method} output ${i}`, (more) => call(method, x, { ...more, output: garbage[i] })];
        },
        () => {
          const method = one(["allReduce", "broadcast", "allGather", "allToAll", "reduceScatter"]);
          return [`${method} short output`, (more) => call(method, x, { ...more, output: short })];
        },
        () => {
          const method = one([...all, "recv", "send"]);
          const peer = method === "recv" || method === "send" ? [1] : [];
          return [`${method} freed`, (more) => call(method, freed, ...peer, more)];
        },
        () => {
          const [method, peer] = [one(["send", "recv"]), one([-1, 0, 2, 0.5, Number.NaN, "1", undefined, null])];
          return [`${method} peer ${String(peer)}`, (more) => call(method, x, peer, more)];
        },
        () => {
          const method = one(["allGatherV", "reduceScatterV"]);
          const counts = one([
            undefined,
            [8],
            [4, -4],
            [4, 0.5],
            [1, 1],
            "44",
            { length: 2 },
            [4, Number.NaN],
            new Array(2),
          ]);
          return [
            `${method} counts ${JSON.stringify(counts)}`,
            (more) => call(method, x, { ...more, counts, output: y }),
          ];
        },
        () => {
          const [sendCounts, recvCounts] = [one([[4, 4], [8], [4, 3], null]), one([[5, 3], [4], [4, 5], undefined])];
          const name = `allToAllV ${JSON.stringify([sendCounts, recvCounts])}`;
          return [name, (more) => call("allToAllV", x, { ...more, sendCounts, recvCounts, output: y })];
        },
        () => {
          const [method, timeoutMs] = [one([...all, "barrier"]), one([0, -1, Number.NaN, "5", null])];
          const args = method === "barrier" ? [] : [x];
          return [`${method} timeoutMs ${String(timeoutMs)}`, () => call(method, ...args, { timeoutMs })];
        },
        () => {
          const [method, i] = [one([...all, "barrier"]), random(garbage.length)];
          const args = method === "barrier" ? [] : [x];
          return [`${method} signal ${i}`, (more) => call(method, ...args, { ...more, signal: garbage[i] })];
        },
        () => {
          const [method, options] = [one([...all, "barrier"]), one([null, 5, "x", true])];
          return [`${method} options ${options}`, () => call(method, ...(method === "barrier" ? [] : [x]), options)];
        },
        () => {
          const [color, key] = one([
            [-2, 0],
            [0.5, 0],
            [2 ** 31, 0],
            ["0", 0],
            [0, 0.5],
            [0, 2 ** 31],
            [undefined, 0],
          ]) as unknown[];
          return [`split ${String(color)} ${String(key)}`, (more) => call("split", color, key, more)];
        },
        () => {
          const excluded = one([[], [0], [2], [1, 1], ["1"], 1, null, [Number.NaN], "1"]);
          return [`shrink ${JSON.stringify(excluded)}`, () => call("shrink", excluded)];
        },
        () => {
          const i = random(garbage.length - 4);
          return [`batch ${i}`, (more) => call("batch", garbage[i], more)];
        },
        () => {
          const inner = one(["batch", "split", "shrink", "gatherObjects", "broadcastObject"]);
          return [`${inner} in a batch`, (more) => comm.batch(() => void call(inner, () => {}), more)];
        },
        () => {
          const [method, op] = [one(reducing), one(words)];
          return [`${method} ${op} in a batch`, (more) => comm.batch(() => void call(method, x, { op }), more)];
        },
        () => [`an asynchronous batch`, (more) => comm.batch(async () => {}, more)],
        () => {
          const i = random(3);
          const value = [() => 1, Symbol("s"), new (class Mine {})()][i];
          return [`object ${i}`, (more) => call("gatherObjects", { deep: [value] }, more)];
        },
        () => {
          const scalar = one(["2", null, undefined, {}, true]);
          return [`preMulSum ${String(scalar)}`, () => call("preMulSum", scalar)];
        },
      ];
      const answer = async (attempt: () => unknown): Promise<string> => {
        let timer: NodeJS.Timeout | undefined;
        try {
          // What is taken although it should not be would wait for a peer that never comes.
          const limit = new Promise((resolve) => {
            timer = setTimeout(resolve, 30_000);
          });
          await Promise.race([(async () => attempt())(), limit]);
        } catch (error) {
          return String(error);
        } finally {
          // A timer that is left keeps the rank alive.
          clearTimeout(timer);
        }
        return "accepted";
      };
      const answers: string[] = [];
      const apart: string[] = [];
      for (let i = 0; world.rank === 0 && i < calls; i++) {
        const [name, attempt] = one(misuses)();
        const short = await answer(() => attempt({}));
        const careful = await answer(() => attempt({ timeoutMs: 50_000 }));
        if (short !== careful) apart.push(`${name}: ${short} | ${careful}`);
        answers.push(`${name}: ${short}`);
        if (short === "accepted") break;
      }
      const result = await comm.allReduce(new Float32Array([world.rank + 1]));
      return { answers, apart, sum: result.data[0] as number, pending: comm.stats().pending };
    },
  });
  if (report === undefined) throw new Error("rank 0 gave no report");
  return report;
}

describe(`${calls} random misuses, seed ${seed}`, () => {
  let threads: Promise<Report> | undefined;
  const onThreads = () => {
    threads ??= misuse("threads");
    return threads;
  };

  it("are refused alike on the short and the careful way of threads, and harm nothing", {
    timeout: 120_000,
  }, async () => {
    const { answers, apart, sum, pending } = await onThreads();
    expect(apart).toEqual([]);
    expect(answers.filter((text) => !/: (InvalidArgument|Unsupported|Closed)Error: /.test(text))).toEqual([]);
    expect([answers.length, sum, pending]).toEqual([calls, 3, 0]);
  });

  it.for(["nccl", "cuda", "tcp", "mpi"] as const)(
    "are refused by %s with the class and words of threads (nccl, cuda: need a C++ compiler; mpi: MPI and CHORALE_MISUSES)",
    { timeout: 120_000 },
    async (backend, { skip }) => {
      if ((backend === "nccl" || backend === "cuda") && !hasFakeGpu) skip();
      if (backend === "mpi" && !hasMpi) skip();
      const most = backend === "nccl" || isCampaign ? calls : FEW;
      const [{ answers, apart, sum, pending }, reference] = [await misuse(backend, most), await onThreads()];
      expect(apart).toEqual([]);
      expect(answers.filter((text, i) => text !== reference.answers[i])).toEqual([]);
      expect([answers.length, sum, pending]).toEqual([most, 3, 0]);
      // The folder of mpirun's ranks goes when mpirun has ended, a moment after them.
      const folders = () => readdirSync(tmpdir()).filter((name) => name.startsWith("chorale-ranks-"));
      await vi.waitFor(() => expect(folders()).toEqual([]), { timeout: 20_000 });
    },
  );
});
