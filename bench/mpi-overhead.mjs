/**
 * What the mpi backend adds to MPI: f32 all-reduces through `wait()` beside the same from C (MPI_Allreduce, and MPI_Iallreduce with
 * MPI_Wait; bench/peers/mpi-loop.c), in turn, each figure the lower quartile of its rounds (what else runs on the machine only
 * ever adds to a round); and the same inside the host by the exchange over shared memory, by plans, and by what is chosen without being told (`choices`), with how many times as fast as by MPI
 * alone the last is. Then the longest stall of the event loop while 64 MiB are awaited, and what 10,000 collectives and 500
 * communicators leave behind that follow as many others. Needs Open MPI or MPICH with mpicc; after `npm run build`:
 *   node bench/mpi-overhead.mjs [--ranks 2,4] [--rounds N] [--ms N] [--mpi openmpi|mpich] [--sizes BYTES,…] [--leaks]
 *     [--loop FILE] [--skip exchange,plans]
 * `--ms`: about how long the rounds of a size take together. `--loop`: bench/peers/mpi-loop.c, compiled elsewhere by this
 * library's mpicc. `--skip`: does not measure these. A quiet machine with a core for each rank: on fewer, every figure is
 * the scheduler's.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "chorale/world";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";
import { launcherOf, toolOf } from "./peers/mpi-launchers.mjs";

const config = {
  options: {
    ranks: { type: "string", default: "2,4" },
    rounds: { type: "string", default: "40" },
    ms: { type: "string", default: "200" },
    mpi: { type: "string", default: "openmpi" },
    sizes: { type: "string", default: "8,64,1024,8192,65536,1048576,8388608,67108864" },
    leaks: { type: "boolean", default: false },
    loop: { type: "string" },
    skip: { type: "string", default: "" },
  },
};
const { rankCounts, rounds, ms, mpi, sizes, leaks, given, skipped } = flagsOf(
  import.meta.url,
  config,
  ({ values }) => ({
    rankCounts: integers(values.ranks, "--ranks"),
    rounds: integer(values.rounds, "--rounds"),
    ms: integer(values.ms, "--ms"),
    mpi: oneOf(values.mpi, "--mpi", ["openmpi", "mpich"]),
    sizes: integers(values.sizes, "--sizes", 4),
    leaks: values.leaks,
    given: values.loop,
    skipped:
      values.skip === "" ? [] : values.skip.split(",").map((word) => oneOf(word, "--skip", ["exchange", "plans"])),
  }),
);
const library = mpi === "mpich" ? "libmpich.so.12" : "libmpi.so.40";
const { launcher, flags } = launcherOf(mpi);

/** Runs on each rank. */
const measure = async (world, { sizes, rounds, ms }) => {
  const { comm } = world;
  const rows = [];
  // The first size twice: in a world that has just begun, the engine compiles yet.
  for (const bytes of [sizes[0], ...sizes]) {
    const input = world.tensor("f32", [bytes / 4]);
    const output = world.tensor("f32", [bytes / 4]);
    const options = { output };
    const times = [];
    const callMs = (numCalls = 3) => {
      const began = performance.now();
      for (let i = 0; i < numCalls; i++) comm.allReduce(input, options).wait();
      const took = new Float64Array([(performance.now() - began) / numCalls]);
      comm.broadcast(took).wait();
      return took[0];
    };
    // What serves this size may be measured in the first call; small ones are compiled after some ten thousands.
    comm.allReduce(input, options).wait();
    let [warmMs, numWarm, oneMs] = [0, 0, callMs()];
    while (warmMs < ms && numWarm < 30_000) {
      const numCalls = Math.min(1000, Math.max(1, Math.floor(ms / 10 / oneMs)));
      oneMs = callMs(numCalls);
      warmMs += numCalls * oneMs;
      numWarm += numCalls;
    }
    const calls = Math.min(1000, Math.max(1, Math.floor(ms / rounds / Math.min(callMs(), callMs(), callMs()))));
    for (let round = 0; round < rounds; round++) {
      comm.barrier().wait();
      const start = performance.now();
      for (let i = 0; i < calls; i++) comm.allReduce(input, options).wait();
      times.push(((performance.now() - start) / calls) * 1000);
    }
    rows.push([bytes, times.sort((a, b) => a - b)[rounds >> 2]]);
  }
  const large = world.tensor("f32", [2 ** 24]);
  let [stallMs, last, going] = [0, performance.now(), true];
  const tick = () => {
    const now = performance.now();
    stallMs = Math.max(stallMs, now - last);
    last = now;
    if (going) setImmediate(tick);
  };
  setImmediate(tick);
  for (let i = 0; i < 3; i++) await comm.allReduce(large);
  going = false;
  return { rows: rows.slice(1), stallMs, choices: comm.stats().choices };
};

/** Runs on each rank: what is left after 10,000 collectives and 500 communicators, once V8's heap is as large as they need. */
const leak = async (world) => {
  const { comm } = world;
  const x = new Float32Array(256);
  const round = async (collectives, communicators) => {
    for (let i = 0; i < collectives; i++) comm.allReduce(x).wait();
    for (let i = 0; i < communicators; i++) {
      const child = await comm.split(i % 2 === 0 ? 0 : world.rank);
      child.allReduce(x).wait();
      await child.close();
    }
    globalThis.gc?.();
    return process.memoryUsage().rss;
  };
  const before = await round(10_000, 500);
  const after = await round(10_000, 500);
  return { grownMiB: (after - before) / 2 ** 20 };
};

const folder = mkdtempSync(join(tmpdir(), "chorale-mpi-"));
try {
  const loop = given ?? join(folder, "mpi-loop");
  if (given === undefined) {
    const source = fileURLToPath(new URL("peers/mpi-loop.c", import.meta.url));
    execFileSync(toolOf([`mpicc.${mpi}`, "mpicc"]), ["-O2", source, "-o", loop]);
  }
  for (const ranks of rankCounts) {
    const argv = [...flags, "-n", String(ranks), loop, sizes.join(","), String(rounds), String(ms)];
    const fromC = () =>
      execFileSync(launcher, argv, { encoding: "utf8", env: { ...process.env, TMPDIR: folder } })
        .trim()
        .split("\n")
        .map((line) => line.split(" ").map(Number));
    const options = { ranks, backend: "mpi", env: { CHORALE_MPI_LIBRARY: library } };
    const c = fromC();
    const by = (backendOptions) => launch({ ...options, backendOptions, run: measure, data: { sizes, rounds, ms } });
    const results = await by({ choices: "mpi" });
    const other = (choices) => (skipped.includes(choices) ? undefined : by({ choices }));
    const exchanged = await other("exchange");
    const planned = await other("plans");
    const chosen = await by({});
    const again = fromC();
    const [{ rows }] = results;
    console.log(
      `${mpi}, ${ranks} ranks: bytes, MPI alone through wait() us, C MPI_Allreduce us, C MPI_Iallreduce us, over the faster C, bound, exchange us, plans us, as chosen us, chosen: times as fast as MPI alone`,
    );
    for (const [i, [bytes, us]] of rows.entries()) {
      const [blocking, pending] = [1, 2].map((column) => (c[i][column] + again[i][column]) / 2);
      const base = Math.min(blocking, pending);
      const bound = Math.max(2, base * 0.1);
      const [byExchange, byPlans, asChosen] = [exchanged, planned, chosen].map(
        (all) => all?.[0].rows[i][1] ?? Number.NaN,
      );
      const figures = [us, blocking, pending, us - base, bound, byExchange, byPlans, asChosen, us / asChosen].map(
        (value) => value.toFixed(2).padStart(11),
      );
      console.log(`${String(bytes).padStart(10)} ${figures.join(" ")} ${us - base <= bound ? "" : "OVER"}`);
    }
    console.log(`chosen: ${JSON.stringify(chosen[0].choices ?? "MPI alone")}`);
    for (const [name, found] of Object.entries({ "MPI alone": results, "what is chosen": chosen })) {
      const stall = Math.max(...found.map(({ stallMs }) => stallMs));
      console.log(
        `longest stall of the event loop in an awaited 64 MiB all-reduce by ${name}: ${stall.toFixed(1)} ms (at most 20)`,
      );
    }
    if (!leaks) continue;
    const left = await launch({ ...options, run: leak });
    console.log(
      `10,000 collectives and 500 communicators: ${left.map(({ grownMiB }) => `${grownMiB.toFixed(1)} MiB`).join(", ")} more`,
    );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
