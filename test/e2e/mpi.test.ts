/** The mpi backend under the launchers of Open MPI and MPICH, and under chorale's: right results, and every failure in its words. */
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "chorale";
import { runConformance } from "chorale/conformance";
import { beforeAll, describe, expect, it } from "vitest";
import type { ChoiceDocument, ChoiceRow } from "../../src/runtime/executor/internal.ts";
import { failuresOf } from "../conformance/failures.ts";
import { buildFakeGpu } from "../helpers/fake-gpu.ts";
import { type InstalledMpi, MPICH, MPIS, nameOf, OPEN_MPI } from "../helpers/mpi.ts";
import { scratchFolder } from "../helpers/scratch.ts";
import { spread } from "../support/spread.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const chorale = new URL("../../.cache/dev/index.js", import.meta.url).href;
/** Open MPI may leave its session's files behind. */
const temporary = scratchFolder("mpi");
const program = fileURLToPath(new URL("mpi-rank.mjs", import.meta.url));
const inHost = new URL("mpi-in-host-rank.mjs", import.meta.url);

const FEW_ON_DEVICE = "count=uneven output=apart tensor";
const fakeGpu = OPEN_MPI.installed ? buildFakeGpu() : undefined;
const staged = new URL("mpi-staged-rank.mjs", import.meta.url);

/** What a rank of mpi-staged-rank.mjs finds. */
interface Staged {
  readonly kind: string;
  readonly chained: readonly number[];
  readonly passed: readonly number[];
  readonly fromHost: readonly number[];
  readonly inUse: string;
  readonly freed: string;
  readonly foreign: string;
}

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly tookMs: number;
}

/** Runs the rank program's cases under an MPI's own launcher. */
function mpirun(
  mpi: InstalledMpi,
  ranks: number,
  whats: readonly string[],
  env: Record<string, string> = {},
): Promise<Ended> {
  const argv = [...mpi.flags, "-n", String(ranks), process.execPath, program, chorale, ...whats];
  const began = performance.now();
  return new Promise((resolve) => {
    const options = {
      encoding: "utf8",
      env: { ...process.env, CHORALE_BACKEND: "mpi", NO_COLOR: "1", TMPDIR: temporary, ...env },
      timeout: 120_000,
    } as const;
    execFile(mpi.launcher, argv, options, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
      resolve({ code, stdout, stderr, tookMs: performance.now() - began });
    });
  });
}

/** A choice document in which each row of the all-reduce is as told, and the exchange serves all else. */
const choicesOf = (...rows: readonly ChoiceRow[]): ChoiceDocument => ({
  schemaVersion: 1,
  source: "test",
  date: "2026-01-01",
  tables: (["all_reduce", "all_gather", "reduce_scatter"] as const).map((collective) => ({
    backend: "mpi",
    collective,
    ranks: [2, 16],
    rows: collective === "all_reduce" ? rows : [{ fromBytes: 0, use: "exchange" }],
  })),
});
const [SMALL, MIDDLE, LARGE] = [{ fromBytes: 0 }, { fromBytes: 512 * 1024 }, { fromBytes: 2 ** 20 }] as const;
const PLAN = "two-shot-fused-read-all-reduce";

/** What each rank of mpi-in-host-rank.mjs finds. */
interface Served {
  readonly small: string;
  readonly again: string;
  readonly sums: readonly number[];
  readonly choices: Readonly<Record<string, number>> | undefined;
  /** The most of a large call that is one turn of the event loop. */
  readonly longest: number;
  /** What two of the ranks are told whose calls differ. */
  readonly apart: string;
}

const linesOf = (text: string) =>
  text
    .split(/\r?\n/)
    .filter((line) => line !== "")
    .sort();

/** Whose results are compared with the reference, and who ends its job: its own launcher's doing. The other with the next seed. */
const compared = spread(MPIS, 2);
/** Who has a rank die under chorale's launcher: the other one. */
const served = spread(MPIS, 2, 1);
/** Who has plans serve inside the host: one of them with every other seed. */
const planned = spread([OPEN_MPI, undefined, MPICH, undefined], 4, 1);
/** Which of the ways to all data: of a launcher of its own, host by host, or from a device. */
const paths = spread(["ranks", "hosts", "device"], 3);
/** Which of the cases that Open MPI alone has: each starts processes of its own. */
const alone = spread(["hosts", "in place", "left", "measured", "given up", "signal"], 3);
for (const mpi of MPIS) {
  describe.skipIf(!mpi.installed)(nameOf(mpi), () => {
    const env = { CHORALE_MPI_LIBRARY: mpi.library };

    describe("under its own launcher, without a word of configuration but the backend", () => {
      let ended: Ended;
      beforeAll(async () => {
        ended = await mpirun(mpi, 3, ["sum", "small", "again", "sent", "order", "rebuild", "mismatch", "never"], env);
      }, 70_000);
      /** What each rank said in a case, without the case's name. */
      const said = (what: string) =>
        linesOf(ended.stdout).flatMap((line) => (line.startsWith(`${what} `) ? [line.slice(what.length + 1)] : []));

      it("joins, moves and reduces", () => {
        expect(ended).toMatchObject({ code: 0, stderr: "" });
        expect(said("sum")).toEqual(["0 of 3: 6, 2, mpi", "1 of 3: 6, 1, mpi", "2 of 3: 6, 2, mpi"]);
      });

      it("has calls that go the short way meet those that go the long way", () => {
        expect(said("small")).toEqual(["0 right", "1 right", "2 right"]);
      });

      it("makes calls of the same tensors again", () => {
        expect(said("again")).toEqual(["0 right", "1 right", "2 right"]);
      });

      it("has a large message arrive whose sender waits for others", () => {
        expect(said("sent")).toEqual(["0 1", "1 1", "2 3"]);
      });

      it("has everything done that was called before a barrier which has ended", () => {
        expect(said("order")).toEqual(["0 done", "1 done", "2 done"]);
      });

      it("refuses a rebuild in words", () => {
        const words = "UNSUPPORTED: world.rebuild() in this world is not supported; MPI started";
        expect(said("rebuild")[0]).toContain(words);
      });

      it("tells both sides of a mismatch, on every rank", () => {
        const [zero = "", one] = said("mismatch");
        expect(zero).toMatch(/^0 MISMATCH: .*rank 0: all_reduce\(.*4.*rank 1: all_reduce\(.*8/);
        expect(one).toBe(zero.replace("0 MISMATCH", "1 MISMATCH"));
      });

      it("names a rank that never calls, at the deadline", () => {
        const lines = said("never");
        expect(lines).toHaveLength(2);
        // A rank held up by others of this machine may have come after the deadline of the first.
        for (const line of lines) {
          expect(line).toMatch(
            /^[02] TIMEOUT: barrier #0 of world\/split2\.0 .* within 700 ms; .*missing: ranks \[.*1.*\]/,
          );
        }
      });
    });

    it.runIf(compared.includes(mpi) && paths.includes("ranks"))(
      "moves and reduces as the reference says",
      { timeout: 120_000 },
      async () => {
        const data = { backend: "mpi", isolation: "process", only: "data", seed, env } as const;
        const result = await runConformance({ ...data, ranks: [mpi === OPEN_MPI ? 3 : 2], filter: "count=uneven" });
        expect(failuresOf(result)).toEqual([]);
        expect(result.numPassed).toBeGreaterThan(20);
      },
    );

    // What goes from host to host is the same code with both, over what the tests above show of each.
    it.skipIf(mpi === MPICH || !paths.includes("hosts"))(
      "moves and reduces host by host as the reference says",
      { timeout: 120_000 },
      async () => {
        const backendOptions = { hosts: [0, 1, 0], choices: "exchange" } as const;
        const data = { backend: "mpi", isolation: "process", only: "data", seed, env, backendOptions } as const;
        const result = await runConformance({ ...data, ranks: [4], filter: "count=uneven output=apart tensor" });
        expect(failuresOf(result)).toEqual([]);
        expect(result.numPassed).toBeGreaterThan(20);
      },
    );

    const gpu = mpi === OPEN_MPI ? fakeGpu : undefined;
    it.skipIf(gpu === undefined || !paths.includes("device"))(
      "stages tensors on a device, over a stand-in for the driver (Open MPI, with g++)",
      {
        timeout: 120_000,
      },
      async () => {
        const onDevice = {
          backend: "mpi",
          backendOptions: { devices: [0, 0] },
          env: { ...env, CHORALE_CUDA_LIBRARY: gpu ?? "" },
        } as const;
        const data = { isolation: "process", only: "data", seed, ranks: [2], filter: FEW_ON_DEVICE } as const;
        const result = await runConformance({ ...onDevice, ...data });
        expect(failuresOf(result)).toEqual([]);
        expect(result.numPassed).toBeGreaterThan(9);
        const found = await launch<Staged>({ ...onDevice, ranks: 2, module: staged });
        expect(found).toEqual(
          [0, 1].map((rank) => ({
            kind: "device",
            // 1 + 2, doubled by the second call, which reads what the first one wrote.
            chained: [6, 6, 6],
            // Sent before anybody received, and in one batch: the other rank's.
            passed: [11 - rank, 21 - rank],
            fromHost: [3, 3, 3],
            inUse: expect.stringMatching(/in use by 1 pending call/),
            freed: expect.stringMatching(/freed/),
            foreign: expect.stringMatching(/a tensor on CUDA device 0.*one of this world/),
          })),
        );
      },
    );

    it.runIf(planned.includes(mpi))(
      "has the exchange and plans serve inside the host as it is told to, and keeps the event loop alive",
      {
        timeout: 120_000,
      },
      async () => {
        const choices =
          mpi === OPEN_MPI
            ? choicesOf({ ...SMALL, use: "exchange" }, { ...MIDDLE, use: PLAN }, { ...LARGE, use: "exchange" })
            : choicesOf({ ...SMALL, use: "exchange" }, { ...LARGE, use: "mpi" });
        const found = await launch<Served>({
          ranks: 3,
          backend: "mpi",
          backendOptions: { choices },
          env,
          module: inHost,
        });
        const [all, low, high] = [
          [6, 6, 3],
          [5, 5, 1],
          [9, 9, 3],
        ];
        const thrice = (...sums: readonly (readonly number[] | undefined)[]) => [sums, sums, sums].flat(2);
        expect(found.map(({ sums }) => sums)).toEqual([thrice(all, low), thrice(all, low, high), thrice(all, high)]);
        expect(found.map(({ small }) => small)).toEqual(["right", "right", "right"]);
        expect(found.map(({ again }) => again)).toEqual(["right", "right", "right"]);
        const used = found.map(({ choices }) => Object.keys(choices ?? {}).map((label) => label.split(" ")[1]));
        expect(new Set(used[0])).toEqual(new Set(mpi === OPEN_MPI ? ["exchange", PLAN] : ["exchange", "mpi"]));
        // One answer on all ranks.
        expect(used).toEqual([used[0], used[0], used[0]]);
        // A fifth, where the exchange serves; less where MPI does.
        for (const { longest } of found) expect(longest).toBeLessThan(0.6);
        for (const { apart } of found.slice(0, 2)) {
          expect(apart).toMatch(/^MISMATCH: .*rank 0: all_reduce\(.*4.*rank 1: all_reduce\(.*8/s);
        }
      },
    );

    it.runIf(served.includes(mpi))(
      "names a rank that dies under chorale's launcher, and leaves no rank behind",
      { timeout: 120_000 },
      async () => {
        let said = "";
        const dying = launch({
          ranks: 3,
          backend: "mpi",
          env,
          onOutput: ({ text }) => {
            said += text;
          },
          run: async (world) => {
            const pids = await world.comm.gatherObjects(process.pid);
            if (world.rank === 0) console.log(`pids ${pids.join()} end`);
            await world.comm.barrier();
            if (world.rank === 1) process.kill(process.pid, "SIGKILL");
            await world.comm.barrier({ timeoutMs: 20_000 });
          },
        });
        // MPICH's launcher kills the others at once, so that any may be heard of first.
        await expect(dying).rejects.toThrow(
          /rank 1 failed.*killed|rank [02] failed.*killed.*as were those of ranks (0, )?1(, 2)?/,
        );
        const pids = () => said.match(/pids ([\d,]+) end/)?.[1]?.split(",") ?? [];
        await expect.poll(pids, { timeout: 30_000 }).toHaveLength(3);
        await expect
          .poll(() => pids().filter((pid) => existsSync(`/proc/${pid}/exe`)), { timeout: 30_000 })
          .toEqual([]);
      },
    );

    it.runIf(compared.includes(mpi))("ends the job when a rank is killed", { timeout: 120_000 }, async () => {
      const { code, tookMs } = await mpirun(mpi, 2, ["die"], env);
      expect(code).not.toBe(0);
      // The deadline is a minute.
      expect(tookMs).toBeLessThan(40_000);
    });
  });
}

describe.skipIf(!OPEN_MPI.installed)(nameOf(OPEN_MPI), () => {
  it.runIf(alone.includes("hosts"))(
    "joins ranks of several hosts: groups, a mismatch, a rank that never calls, one that dies",
    {
      timeout: 90_000,
    },
    async () => {
      // Ranks 0 and 2 are on one host, rank 1 on the other.
      const options = { ranks: 3, backend: "mpi", env: { CHORALE_MPI_LIBRARY: OPEN_MPI.library } } as const;
      const found = await launch({
        ...options,
        backendOptions: { hosts: [0, 1], choices: "exchange" },
        run: async ({ comm, rank }) => {
          const told = async (call: () => PromiseLike<unknown> | undefined) => {
            try {
              await call();
              return "no error";
            } catch (error) {
              return (error as Error).message;
            }
          };
          const sum = (await comm.allReduce(new Float32Array(3).fill(rank + 1))).at(2);
          // The first is inside a host, the second spans two.
          const pairs = [await comm.split(rank === 1 ? 1 : 0), await comm.split(rank < 2 ? 0 : 1)];
          const sums = pairs.map((pair) =>
            pair
              ?.allReduce(new Float32Array(3).fill(rank + 1))
              .wait()
              .at(2),
          );
          const served = pairs.map((pair) => Object.keys(pair?.stats().choices ?? {}).join());
          const objects = await comm.gatherObjects({ rank });
          const apart = await comm.split(0);
          const mismatch = await told(() => apart?.allReduce(new Float32Array(rank === 1 ? 4 : 8)));
          const late = await comm.split(0);
          await comm.barrier();
          const never = rank === 1 ? "" : await told(() => late?.barrier({ timeoutMs: 700 }));
          await comm.barrier();
          const byHosts = Object.keys(comm.stats().choices ?? {}).join();
          return { sum, sums, served, byHosts, objects, mismatch, never };
        },
      });
      expect(found.map(({ sum }) => sum)).toEqual([6, 6, 6]);
      expect(found.map(({ sums }) => sums)).toEqual([
        [4, 3],
        [2, 3],
        [4, 3],
      ]);
      expect(found.map(({ served }) => served[0])).toEqual(["all_reduce exchange", "", "all_reduce exchange"]);
      expect(found.map(({ byHosts }) => byHosts)).toEqual(Array(3).fill("all_reduce exchange"));
      expect(found[1]?.objects).toEqual([{ rank: 0 }, { rank: 1 }, { rank: 2 }]);
      for (const { mismatch } of found) {
        expect(mismatch).toMatch(/rank [02]: all_reduce\(f32\[8\], sum\)/);
        expect(mismatch).toMatch(/rank 1: all_reduce\(f32\[4\], sum\)/);
      }
      for (const rank of [0, 2]) expect(found[rank]?.never).toMatch(/within 700 ms; .*missing: ranks \[.*1.*\]/);
      const dead = launch({
        ...options,
        backendOptions: { hosts: [0, 1] },
        run: async ({ comm, rank }) => {
          await comm.barrier();
          if (rank === 1) process.kill(process.pid, "SIGKILL");
          await comm.barrier();
        },
      });
      await expect(dead).rejects.toMatchObject({ code: "RANK_FAILED", rank: 1 });
      const nonsense = launch({ ...options, backendOptions: { hosts: [0, -1] }, run: async () => {} });
      await expect(nonsense).rejects.toThrow(/hosts.*1 to 16 integers from 0/);
    },
  );

  it.runIf(alone.includes("in place"))(
    "sums where some ranks are in place and others are not, which MPI has no call for",
    {
      timeout: 120_000,
    },
    async () => {
      const found = await launch({
        ranks: 4,
        backend: "mpi",
        backendOptions: { choices: "mpi" },
        env: { CHORALE_MPI_LIBRARY: OPEN_MPI.library },
        // From 64 KiB and four ranks on, Open MPI chooses its algorithm by that; more than 2 MiB go in pieces.
        run: ({ comm, rank }) =>
          [20_000, 1_200_000].flatMap((count) => {
            const x = new Int32Array(count).fill(rank + 1);
            const sum = comm.allReduce(x, rank === 0 ? {} : { output: new Int32Array(count) }).wait().data;
            return [sum[0], sum[count - 1]];
          }),
      });
      for (const sums of found) expect(sums).toEqual([10, 10, 10, 10]);
    },
  );

  it.runIf(alone.includes("left"))(
    "writes nothing to the result of a rank that has left a call which others have found",
    {
      timeout: 120_000,
    },
    async () => {
      const found = await launch({
        ranks: 3,
        backend: "mpi",
        backendOptions: { choices: "exchange" },
        env: { CHORALE_MPI_LIBRARY: OPEN_MPI.library },
        run: async (world) => {
          const { comm, rank, size } = world;
          const pass = (ms: number) => {
            for (const until = performance.now() + ms; performance.now() < until; );
          };
          const group = await comm.split(0, rank);
          if (group === undefined) return false;
          const input = world.tensor("i8", [24 * 2 ** 20]).fill(rank);
          const output = world.tensor("i8", [size * input.size]);
          group.barrier().wait();
          let isAsLeft = true;
          try {
            // The first to call, and busy until the others copy, for some 50 ms: no look at its call tells that they have come.
            pass(rank === 1 ? 0 : 20);
            const work = group.allGather(input, { output });
            pass(rank === 1 ? 25 : 0);
            if (rank === 1) group.abort("enough");
            work.wait();
          } catch {
            output.fill(7);
            pass(200);
            isAsLeft = Buffer.compare(Buffer.from(output.data.buffer), Buffer.alloc(output.size, 7)) === 0;
          }
          await group.close().catch(() => {});
          await comm.barrier();
          return isAsLeft;
        },
      });
      expect(found).toEqual([true, true, true]);
    },
  );

  const givenUp = [
    ["of a group that the others are not in", "all_reduce"],
    ["that another one failed before it began", "barrier"],
  ] as const;
  it.runIf(alone.includes("given up")).each(spread(givenUp, 2))(
    "ends where some ranks gave up a call that MPI holds, %s",
    { timeout: 120_000 },
    async (_what, op) => {
      const found = await launch({
        ranks: 3,
        backend: "mpi",
        backendOptions: { choices: "mpi" },
        env: { CHORALE_MPI_LIBRARY: OPEN_MPI.library },
        data: { op, folder: join(temporary, op) },
        run: async ({ comm, rank, data }) => {
          const { op, folder } = data as { readonly op: string; readonly folder: string };
          const { existsSync, mkdirSync } = await import("node:fs");
          const say = (what: string) => mkdirSync(`${folder}/${what}`, { recursive: true });
          const isSaid = (what: string) => existsSync(`${folder}/${what}`);
          /** Lets MPI go on meanwhile. */
          const hear = async (what: string) => {
            while (!isSaid(what)) await new Promise((resolve) => setTimeout(resolve, 5));
          };
          /** MPI gets no further while this rank does not look at it. */
          const block = (what: string) => {
            while (!isSaid(what));
          };
          const group = op === "barrier" ? comm : await comm.split(rank < 2 ? 0 : -1);
          if (group === undefined) return "apart";
          await group.barrier();
          let work: PromiseLike<unknown>;
          if (op === "all_reduce") {
            work = group.allReduce(new Float32Array(2 ** 22));
            say(`${rank} has called`);
            if (rank === 1) block("aborted");
            else await hear("1 has called");
          } else {
            if (rank !== 0) await hear("0 has called");
            work = group.barrier();
            say(`${rank} has called`);
            if (rank === 0) for (const other of [1, 2]) block(`${other} has called`);
          }
          if (rank === 0) {
            group.abort("enough");
            say("aborted");
          }
          const how = await Promise.resolve(work).then(
            () => "done",
            (error: Error) => error.message,
          );
          await group.close().catch(() => {});
          return how;
        },
      });
      const failed = expect.stringMatching(/enough/);
      expect(found).toEqual([failed, failed, op === "barrier" ? failed : "apart"]);
    },
  );

  it.runIf(alone.includes("measured"))(
    "is launched by chorale: results, by what it measures to be faster, and native output",
    {
      timeout: 120_000,
    },
    async () => {
      const lines: string[] = [];
      const found = await launch({
        ranks: 2,
        backend: "mpi",
        backendOptions: { choices: "measured" },
        onOutput: ({ rank, text }) => lines.push(`${rank} ${text}`),
        run: async (world) => {
          const { writeSync } = await import("node:fs");
          // By itself, as native libraries print: through mpirun.
          writeSync(1, `raw ${world.rank}\n`);
          const x = world.tensor("f16", [140_000]).fill(world.rank + 0.5);
          await world.comm.allReduce(x);
          return { sums: [x.at(0), x.at(-1)], choices: Object.keys(world.comm.stats().choices ?? {}) };
        },
      });
      expect(found.map(({ sums }) => sums)).toEqual([
        [2, 2],
        [2, 2],
      ]);
      expect(found[0]?.choices).toEqual([expect.stringMatching(/^all_reduce (mpi|exchange)/)]);
      // One answer on all ranks.
      expect(found[1]?.choices).toEqual(found[0]?.choices);
      await expect.poll(() => lines.toSorted(), { timeout: 30_000 }).toEqual(["0 raw 0", "1 raw 1"]);
    },
  );

  it.runIf(alone.includes("signal"))(
    "leaves no mpirun, rank or folder behind when its launcher is ended by a signal",
    {
      timeout: 120_000,
    },
    async () => {
      const program = `import { launch } from ${JSON.stringify(chorale)};
      await launch({ ranks: 2, backend: "mpi", run: async (world) => {
        await world.comm.barrier();
        if (world.rank === 0) console.log(\`pids \${process.pid} \${process.ppid}\`);
        await new Promise((resolve) => setTimeout(resolve, 50_000));
      } });`;
      // Too long for the path of a socket: the ranks' folder is in /tmp then.
      const long = join(temporary, "long".repeat(20));
      mkdirSync(long);
      const env = { ...process.env, TMPDIR: long };
      const launcher = spawn(process.execPath, ["--input-type=module", "-e", program], { env });
      const isOwn = (name: string) => /^chorale-(ranks|mpi)-/.test(name) && name.includes(`-${launcher.pid}-`);
      // The second is for Open MPI's shared memory.
      const folders = () => ["/tmp", "/dev/shm"].flatMap((parent) => readdirSync(parent).filter(isOwn));
      let said = "";
      for await (const text of launcher.stdout) {
        said += text;
        if (/pids \d+ \d+\n/.test(said)) break;
      }
      const made = folders();
      expect(made).toEqual([expect.stringMatching(/^chorale-ranks-/), expect.stringMatching(/^chorale-mpi-/)]);
      const pids = said.match(/pids (\d+) (\d+)/)?.slice(1) ?? [];
      expect(pids).toHaveLength(2);
      launcher.kill("SIGTERM");
      const left = () => [
        ...pids.filter((pid) => existsSync(`/proc/${pid}/exe`)),
        ...folders().filter((name) => made.includes(name)),
      ];
      await expect.poll(left, { timeout: 120_000 }).toEqual([]);
    },
  );

  it("refuses worlds that are rebuilt, and threads", async () => {
    const run = () => {};
    await expect(launch({ ranks: 2, backend: "mpi", restarts: 1, run })).rejects.toThrow(
      /onFailure.*"end" with the mpi/,
    );
    await expect(launch({ ranks: 2, backend: "mpi", isolation: "thread", run })).rejects.toThrow(
      /isolation.*"process"/,
    );
  });
});

describe.skipIf(!OPEN_MPI.installed || !MPICH.installed)(`${nameOf(OPEN_MPI)} and ${nameOf(MPICH)}`, () => {
  const strangers = [
    ["MPICH's mpiexec", MPICH, OPEN_MPI, /library is Open MPI 4\S+ \(libmpi\.so\.40\)/],
    ["Open MPI's mpirun", OPEN_MPI, MPICH, /library is MPICH 4\S+ \(libmpich\.so\.12\)/],
  ] as const;
  it.each(spread(strangers, 2))(
    "tells at once that %s is not the library's launcher",
    async (name, launcher, other, library) => {
      const { code, stderr, stdout } = await mpirun(launcher, 3, ["sum"], { CHORALE_MPI_LIBRARY: other.library });
      expect(code).not.toBe(0);
      expect(stdout + stderr).toContain(
        `3 processes started, each believes it is alone: started with ${name}, library is`,
      );
      expect(stdout + stderr).toMatch(library);
    },
  );
});

it("says where MPI was looked for when there is none, and how to get it", async () => {
  const run = () => {};
  process.env["CHORALE_MPI_LIBRARY"] = "/nowhere/libmpi.so.40";
  try {
    await expect(launch({ ranks: 2, backend: "mpi", run })).rejects.toThrow(
      /MPI is not available: CHORALE_MPI_LIBRARY names \/nowhere\/libmpi\.so\.40.*no file libmpi\.so\.40.*apt-get install openmpi-bin/,
    );
  } finally {
    delete process.env["CHORALE_MPI_LIBRARY"];
  }
});
