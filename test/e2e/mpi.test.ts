/** The mpi backend under the launchers of Open MPI and MPICH, and under chorale's: right results, and every failure in its words. */
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "chorale";
import { runConformance } from "chorale/conformance";
import { describe, expect, it } from "vitest";
import { failuresOf } from "../conformance/failures.ts";
import { type InstalledMpi, MPICH, MPIS, nameOf, OPEN_MPI } from "../helpers/mpi.ts";
import { scratchFolder } from "../helpers/scratch.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const chorale = new URL("../../.cache/dev/index.js", import.meta.url).href;
/** Open MPI may leave its session's files behind. */
const temporary = scratchFolder("mpi");
const program = fileURLToPath(new URL("mpi-rank.mjs", import.meta.url));

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly tookMs: number;
}

/** Runs the rank program under an MPI's own launcher. */
function mpirun(mpi: InstalledMpi, ranks: number, what: string, env: Record<string, string> = {}): Promise<Ended> {
  const argv = [...mpi.flags, "-n", String(ranks), process.execPath, program, chorale, what];
  const began = performance.now();
  return new Promise((resolve) => {
    const options = {
      encoding: "utf8",
      env: { ...process.env, CHORALE_BACKEND: "mpi", NO_COLOR: "1", TMPDIR: temporary, ...env },
      timeout: 60_000,
    } as const;
    execFile(mpi.launcher, argv, options, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
      resolve({ code, stdout, stderr, tookMs: performance.now() - began });
    });
  });
}

const linesOf = (text: string) =>
  text
    .split(/\r?\n/)
    .filter((line) => line !== "")
    .sort();

for (const mpi of MPIS) {
  describe.skipIf(!mpi.installed)(nameOf(mpi), () => {
    const env = { CHORALE_MPI_LIBRARY: mpi.library };

    it("joins under its own launcher, without a word of configuration but the backend", async () => {
      const { code, stdout, stderr } = await mpirun(mpi, 3, "sum");
      expect({ code, lines: linesOf(stdout), stderr }).toEqual({
        code: 0,
        lines: ["rank 0 of 3: 6, 2, mpi", "rank 1 of 3: 6, 1, mpi", "rank 2 of 3: 6, 2, mpi"],
        stderr: "",
      });
    });

    it("moves and reduces as the reference says", { timeout: 120_000 }, async () => {
      const data = { backend: "mpi", isolation: "process", only: "data", seed, env } as const;
      const result = await runConformance({ ...data, ranks: [mpi === OPEN_MPI ? 3 : 2], filter: "count=uneven" });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(20);
    });

    const served = [
      ["exchange", /^all_reduce exchange/],
      ["plans", /^all_reduce two-shot-fused-read-all-reduce/],
      ["measured", /^all_reduce (mpi|exchange)/],
    ] as const;
    it.each(mpi === OPEN_MPI ? served : served.slice(0, 1))(
      "has %s serve inside the host where it is told to, in groups that overlap too",
      {
        timeout: 60_000,
      },
      async (choices, label) => {
        const found = await launch({
          ranks: 3,
          backend: "mpi",
          backendOptions: { choices },
          env,
          run: async (world) => {
            const { comm, rank } = world;
            const low = await comm.split(rank < 2 ? 0 : -1);
            const groups = [comm, low, await comm.split(rank > 0 ? 0 : -1)];
            const sums: number[] = [];
            // More than a piece of the shared memory, in all groups at once.
            const count = 100_003;
            const works = groups.flatMap((group, i) => {
              if (!group) return [];
              const x = new Float32Array(count).fill(rank + i + 1);
              return [
                group.allReduce(x),
                group.allGather(x.subarray(0, 5)),
                group.reduceScatter(new Float32Array(6).fill(rank)),
              ];
            });
            for (const work of works.reverse()) sums.unshift(Number((await work).at(-1)));
            return { sums, choices: comm.stats().choices };
          },
        });
        expect(found.map(({ sums }) => sums)).toEqual([
          [6, 6, 3, 5, 5, 1],
          [6, 6, 3, 5, 5, 1, 9, 9, 3],
          [6, 6, 3, 9, 9, 3],
        ]);
        expect(Object.keys(found[0]?.choices ?? {})[0]).toMatch(label);
        // One answer on all ranks.
        expect(found[1]?.choices).toEqual(found[0]?.choices);
        expect(found[2]?.choices).toEqual(found[0]?.choices);
      },
    );

    it("has everything done that was called before a barrier which has ended", { timeout: 60_000 }, async () => {
      const states = await launch({
        ranks: 2,
        backend: "mpi",
        env,
        run: async ({ comm }) => {
          const found = new Set<string>();
          for (let i = 0; i < 20; i++) {
            const works = [
              comm.allReduce(new Float32Array(5000)),
              comm.broadcast(new Float32Array(100), { root: i % 2 }),
            ];
            comm.barrier().wait();
            for (const work of works) {
              found.add(work.state);
              await work;
            }
          }
          return [...found];
        },
      });
      expect(states).toEqual([["done"], ["done"]]);
    });

    it.each(mpi === OPEN_MPI ? (["mpi", "exchange"] as const) : (["mpi"] as const))(
      "keeps the event loop alive while 64 MiB are summed (by %s)",
      { timeout: 60_000 },
      async (choices) => {
        const stalls = await launch({
          ranks: 2,
          backend: "mpi",
          backendOptions: { choices },
          env,
          run: async (world) => {
            const large = world.tensor("f32", [2 ** 24]);
            const { readFileSync } = await import("node:fs");
            // The main thread's time on a core, not the clock's: how long others hold the core, and what V8 compiles in other
            // threads meanwhile, is no matter of ours.
            const ranMs = () =>
              Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8"), 10) / 1e6;
            let [longestMs, last, going] = [0, ranMs(), true];
            const tick = () => {
              const now = ranMs();
              longestMs = Math.max(longestMs, now - last);
              last = now;
              if (going) setImmediate(tick);
            };
            // The first call of a kind loads and compiles what serves it.
            await world.comm.allReduce(new Float32Array(8));
            last = ranMs();
            setImmediate(tick);
            await world.comm.allReduce(large);
            going = false;
            return longestMs;
          },
        });
        for (const stallMs of stalls) expect(stallMs).toBeLessThan(20);
      },
    );

    it("tells both sides of a mismatch, on every rank", async () => {
      const { stdout } = await mpirun(mpi, 2, "mismatch");
      const [zero = "", one = ""] = linesOf(stdout);
      expect(zero).toMatch(/^rank 0: MISMATCH: .*rank 0: all_reduce\(.*4.*rank 1: all_reduce\(.*8/);
      expect(one).toBe(zero.replace("rank 0: MISMATCH", "rank 1: MISMATCH"));
    });

    it("refuses a rebuild in words", async () => {
      const { stdout } = await mpirun(mpi, 2, "rebuild");
      expect(linesOf(stdout)[0]).toContain("UNSUPPORTED: world.rebuild() in this world is not supported; MPI started");
    });

    it("ends the job when a rank is killed", async () => {
      const { code, tookMs } = await mpirun(mpi, 2, "die");
      expect(code).not.toBe(0);
      expect(tookMs).toBeLessThan(15_000);
    });
  });
}

describe.skipIf(!OPEN_MPI.installed)(nameOf(OPEN_MPI), () => {
  it("sums where some ranks are in place and others are not, which MPI has no call for", {
    timeout: 60_000,
  }, async () => {
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
  });

  it("names a rank that never calls, at the deadline", async () => {
    const { stdout } = await mpirun(OPEN_MPI, 3, "never");
    for (const line of linesOf(stdout))
      expect(line).toMatch(/TIMEOUT: barrier #0 of world .*700 ms.*rank 1|RANK_FAILED|TIMEOUT/);
    expect(stdout).toMatch(/not arrived|has not|did not|missing/);
  });

  it("is launched by chorale: results, and a rank that dies is named", { timeout: 60_000 }, async () => {
    const lines: string[] = [];
    const sums = await launch({
      ranks: 2,
      backend: "mpi",
      onOutput: ({ rank, text }) => lines.push(`${rank} ${text}`),
      run: async (world) => {
        const { writeSync } = await import("node:fs");
        // By itself, as native libraries print: through mpirun.
        writeSync(1, `raw ${world.rank}\n`);
        const x = world.tensor("f16", [3]).fill(world.rank + 0.5);
        await world.comm.allReduce(x);
        return x.toArray();
      },
    });
    expect(sums).toEqual([
      [2, 2, 2],
      [2, 2, 2],
    ]);
    await expect.poll(() => lines.toSorted()).toEqual(["0 raw 0", "1 raw 1"]);
    const dying = launch({
      ranks: 2,
      backend: "mpi",
      onOutput: () => {},
      run: async (world) => {
        await world.comm.barrier();
        if (world.rank === 1) process.kill(process.pid, "SIGKILL");
        await world.comm.barrier({ timeoutMs: 20_000 });
      },
    });
    await expect(dying).rejects.toThrow(/rank 1 failed.*killed/);
  });

  it("leaves no mpirun, rank or folder behind when its launcher is ended by a signal", {
    timeout: 60_000,
  }, async () => {
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
    const folders = () =>
      readdirSync("/tmp").filter((name) => name.startsWith("chorale-ranks-") && name.includes(`-${launcher.pid}-`));
    let said = "";
    for await (const text of launcher.stdout) {
      said += text;
      if (/pids \d+ \d+\n/.test(said)) break;
    }
    const made = folders();
    expect(made).toHaveLength(1);
    const pids = said.match(/pids (\d+) (\d+)/)?.slice(1) ?? [];
    expect(pids).toHaveLength(2);
    launcher.kill("SIGTERM");
    const left = () => [
      ...pids.filter((pid) => existsSync(`/proc/${pid}/exe`)),
      ...folders().filter((name) => made.includes(name)),
    ];
    await expect.poll(left, { timeout: 15_000 }).toEqual([]);
  });

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
  it.each([
    ["MPICH's mpiexec", MPICH, OPEN_MPI, /library is Open MPI 4\S+ \(libmpi\.so\.40\)/],
    ["Open MPI's mpirun", OPEN_MPI, MPICH, /library is MPICH 4\S+ \(libmpich\.so\.12\)/],
  ] as const)("tells at once that %s is not the library's launcher", async (name, launcher, other, library) => {
    const { code, stderr, stdout } = await mpirun(launcher, 3, "sum", { CHORALE_MPI_LIBRARY: other.library });
    expect(code).not.toBe(0);
    expect(stdout + stderr).toContain(
      `3 processes started, each believes it is alone: started with ${name}, library is`,
    );
    expect(stdout + stderr).toMatch(library);
  });
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
