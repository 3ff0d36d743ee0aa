/**
 * Collectives of the mpi backend over pretended hosts (network namespaces, test/campaigns/mpi-hosts.mjs): by MPI alone, host by
 * host, and as measured in the world, each a job of mpirun, in turn, `--jobs` times; a figure is the lower quartile of all rounds.
 * Behind them stands the median over the jobs of what is measured over MPI alone, with the interval that holds it with 95 % (sign
 * test, from six jobs on): SLOWER where all of that is above 1.03. MPI has shared memory inside a host and TCP between hosts. Open
 * MPI; root on Linux; after `npm run build`:
 *   node bench/mpi-hosts.mjs [--hosts 2] [--ranks 2] [--sizes BYTES,…] [--ops OP,…] [--ms N] [--jobs 2] [--ways mpi,exchange,measured]
 *     [--without-namespaces openmpi|mpich]
 * `--ms`: about how long a size of an operation is timed in each job. `--without-namespaces`, where there are none, or as another
 * user: CHORALE_HOST_ID says who is on which host, and MPI has the machine's shared memory between all of them.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";
import { makeHosts } from "../test/campaigns/host-namespaces.mjs";
import { mpirunInHosts } from "../test/campaigns/mpi-namespaces.mjs";
import { launcherOf } from "./peers/mpi-launchers.mjs";
import { intervalOf, median } from "./sign-test.mjs";

const WAYS = ["mpi", "exchange", "measured"];
const OPS = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"];
const config = {
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    sizes: { type: "string", default: "8,8192,65536,1048576,16777216" },
    ops: { type: "string", default: OPS.join() },
    ms: { type: "string", default: "60" },
    jobs: { type: "string", default: "2" },
    ways: { type: "string", default: WAYS.join() },
    "without-namespaces": { type: "string", default: "" },
  },
};
const { numHosts, perHost, sizes, ops, ms, jobs, ways, mpi } = flagsOf(import.meta.url, config, ({ values }) => ({
  numHosts: integer(values.hosts, "--hosts"),
  perHost: integer(values.ranks, "--ranks"),
  sizes: integers(values.sizes, "--sizes", 4),
  ops: values.ops.split(",").map((op) => oneOf(op, "--ops", OPS)),
  ms: integer(values.ms, "--ms"),
  jobs: integer(values.jobs, "--jobs"),
  ways: values.ways.split(",").map((way) => oneOf(way, "--ways", WAYS)),
  mpi:
    values["without-namespaces"] === ""
      ? undefined
      : oneOf(values["without-namespaces"], "--without-namespaces", ["openmpi", "mpich"]),
}));
const { hosts, remove } = mpi === undefined ? makeHosts(numHosts) : { hosts: [], remove: () => {} };
const folder = mkdtempSync(join(tmpdir(), "chorale-mpi-hosts-"));
const program = fileURLToPath(new URL("peers/mpi-hosts-rank.mjs", import.meta.url));

/** Runs the program with a name of its own for each host, by one launcher on this machine. */
function mpirunHere(args, env) {
  const isMpich = mpi === "mpich";
  const exported = { CHORALE_BACKEND: "mpi", ...env };
  const contexts = Array.from({ length: numHosts }, (_, host) => {
    const named = Object.entries({ ...exported, CHORALE_HOST_ID: `host${host}` });
    const words = named.flatMap(([name, value]) => (isMpich ? ["-env", name, value] : ["-x", `${name}=${value}`]));
    return [...(host > 0 ? [":"] : []), "-n", String(perHost), ...words, process.execPath, program, ...args];
  });
  const { launcher, flags } = launcherOf(mpi);
  const options = { encoding: "utf8", timeout: 120_000, env: { ...process.env, TMPDIR: folder } };
  const { stdout, stderr, status } = spawnSync(launcher, [...flags, ...contexts.flat()], options);
  const lines = stdout.split("\n").filter((line) => line.startsWith("{"));
  return { found: lines.map((line) => JSON.parse(line)), stderr, status };
}

try {
  /** By way, operation and size: by job, the times of its rounds, us. */
  const times = new Map();
  for (const way of Array.from({ length: jobs }, (_, job) => (job % 2 === 0 ? ways : ways.toReversed())).flat()) {
    const [args, env] = [[ops.join(), sizes.join(), String(ms)], { CHORALE_MPI_CHOICES: way }];
    const { found, stderr, status } =
      mpi === undefined
        ? mpirunInHosts(hosts, perHost, { folder, program, args, env, btl: "vader,tcp,self" })
        : mpirunHere(args, env);
    if (status !== 0 || found.length !== 1) throw new Error(`mpirun ended with ${status}: ${stderr.slice(-1000)}`);
    for (const { op, bytes, us } of found[0].rows) {
      const key = `${way} ${op} ${bytes}`;
      times.set(key, [...(times.get(key) ?? []), us]);
    }
  }
  const figure = (way, op, bytes) => {
    const all = (times.get(`${way} ${op} ${bytes}`) ?? []).flat().sort((a, b) => a - b);
    return all[all.length >> 2] ?? Number.NaN;
  };
  const changeOf = (op, bytes) => {
    const [alone = [], found = []] = ["mpi", "measured"].map((way) => times.get(`${way} ${op} ${bytes}`)?.map(median));
    const over = found.map((us, job) => us / alone[job]).toSorted((a, b) => a - b);
    if (alone.length === 0 || over.length === 0) return "";
    const at = intervalOf(over.length);
    const [low, high] = [over[at], over.at(-1 - at)];
    return `${median(over).toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})${over.length > 5 && low > 1.03 ? " SLOWER" : ""}`;
  };
  process.stdout.write(
    `${numHosts} hosts of ${perHost}: op, bytes, MPI alone us, host by host us, as measured us, MPI alone / as measured, measured over MPI by jobs (95 %)\n`,
  );
  for (const op of ops) {
    for (const bytes of sizes) {
      const [mpi, exchange, measured] = WAYS.map((way) => figure(way, op, bytes));
      const columns = [mpi, exchange, measured].map((us) => us.toFixed(1).padStart(11));
      process.stdout.write(
        `${op.padEnd(15)} ${String(bytes).padStart(9)} ${columns.join(" ")} ${(mpi / measured).toFixed(2).padStart(6)} ${changeOf(op, bytes)}\n`,
      );
    }
  }
} finally {
  remove();
  rmSync(folder, { recursive: true, force: true });
}
