/**
 * Collectives of the mpi backend over pretended hosts (network namespaces, test/campaigns/mpi-hosts.mjs): by MPI alone, host by
 * host, and as measured in the world, each a job of mpirun, in turn, twice; a figure is the lower quartile of all rounds. MPI has
 * shared memory inside a host and TCP between hosts. Open MPI; root on Linux; after `npm run build`:
 *   node bench/mpi-hosts.mjs [--hosts 2] [--ranks 2] [--sizes BYTES,…] [--ops OP,…] [--ms N]
 * `--ms`: about how long a size of an operation is timed in each job.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { flagsOf, integer, integers } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";
import { makeHosts } from "../test/campaigns/host-namespaces.mjs";
import { mpirunInHosts } from "../test/campaigns/mpi-namespaces.mjs";

const OPS = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"];
const config = {
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    sizes: { type: "string", default: "8,8192,65536,1048576,16777216" },
    ops: { type: "string", default: OPS.join() },
    ms: { type: "string", default: "60" },
  },
};
const { numHosts, perHost, sizes, ops, ms } = flagsOf(import.meta.url, config, ({ values }) => ({
  numHosts: integer(values.hosts, "--hosts"),
  perHost: integer(values.ranks, "--ranks"),
  sizes: integers(values.sizes, "--sizes", 4),
  ops: values.ops.split(",").map((op) => oneOf(op, "--ops", OPS)),
  ms: integer(values.ms, "--ms"),
}));
const WAYS = ["mpi", "exchange", "measured"];
const { hosts, remove } = makeHosts(numHosts);
const folder = mkdtempSync(join(tmpdir(), "chorale-mpi-hosts-"));
const program = fileURLToPath(new URL("peers/mpi-hosts-rank.mjs", import.meta.url));
try {
  /** By way, operation and size: the times of all rounds, us. */
  const times = new Map();
  for (const way of [...WAYS, ...WAYS]) {
    const { found, stderr, status } = mpirunInHosts(hosts, perHost, {
      folder,
      program,
      args: [ops.join(), sizes.join(), String(ms)],
      env: { CHORALE_MPI_CHOICES: way },
      btl: "vader,tcp,self",
    });
    if (status !== 0 || found.length !== 1) throw new Error(`mpirun ended with ${status}: ${stderr.slice(-1000)}`);
    for (const { op, bytes, us } of found[0].rows) {
      const key = `${way} ${op} ${bytes}`;
      times.set(key, [...(times.get(key) ?? []), ...us]);
    }
  }
  const figure = (way, op, bytes) => {
    const all = times.get(`${way} ${op} ${bytes}`).sort((a, b) => a - b);
    return all[all.length >> 2];
  };
  process.stdout.write(
    `${numHosts} hosts of ${perHost}: op, bytes, MPI alone us, host by host us, as measured us, MPI alone / as measured\n`,
  );
  for (const op of ops) {
    for (const bytes of sizes) {
      const [mpi, exchange, measured] = WAYS.map((way) => figure(way, op, bytes));
      const columns = [mpi, exchange, measured].map((us) => us.toFixed(1).padStart(11));
      process.stdout.write(
        `${op.padEnd(15)} ${String(bytes).padStart(9)} ${columns.join(" ")} ${(mpi / measured).toFixed(2).padStart(6)}\n`,
      );
    }
  }
} finally {
  remove();
  rmSync(folder, { recursive: true, force: true });
}
