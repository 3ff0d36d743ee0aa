/**
 * Worlds of the mpi backend over pretended hosts: each is a network namespace of this machine (host-namespaces.mjs), mpirun
 * starts its daemons there by an agent in the place of ssh, and MPI's data goes through TCP alone. Ranks of different hosts
 * share no memory of chorale's. By `--choices exchange`, collectives go host by host; by `mpi`, through MPI alone.
 * Open MPI; root on Linux:
 *   node test/campaigns/mpi-hosts.mjs [--hosts 2] [--ranks 2 | --ranks 3,1] [--choices mpi] [--url file:///…/dist/index.js]
 * Prints what each rank found. Exits 1 when something was wrong, 3 where namespaces are not permitted.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeHosts } from "./host-namespaces.mjs";
import { mpirunInHosts } from "./mpi-namespaces.mjs";

const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    choices: { type: "string", default: "mpi" },
    url: { type: "string", default: new URL("../../dist/index.js", import.meta.url).href },
  },
});
const numHosts = Number(values.hosts);
const listed = values.ranks.split(",").map(Number);
/** Ranks of each host. */
const counts = Array.from({ length: numHosts }, (_, host) => listed[host % listed.length]);
const total = counts.reduce((sum, one) => sum + one, 0);
const placeOf = (rank) => {
  let [host, local] = [0, rank];
  while (local >= counts[host]) local -= counts[host++];
  return { host, local };
};
const { hosts, remove } = makeHosts(numHosts);
const folder = mkdtempSync(join(tmpdir(), "chorale-mpi-hosts-"));
try {
  const program = fileURLToPath(new URL("mpi-hosts-rank.mjs", import.meta.url));
  const { found, stderr, status } = mpirunInHosts(hosts, counts, {
    folder,
    program,
    args: [values.url, counts.join(), values.choices],
    env: { CHORALE_MPI_CHOICES: values.choices },
  });
  found.sort((a, b) => a.rank - b.rank);
  const faults = found.flatMap(({ rank: own, address, coords, wrong }) => {
    const { host, local } = placeOf(own);
    const placed =
      address === hosts[host].address && (coords === null || (coords.host === host && coords.local === local));
    return [
      ...wrong.map((text) => `rank ${own}: ${text}`),
      ...(placed
        ? []
        : [`rank ${own} is on ${address} at ${JSON.stringify(coords)}, and ${hosts[host].address} is its host`]),
    ];
  });
  if (status !== 0 || found.length !== total) {
    faults.push(`mpirun ended with ${status}, and ${found.length} ranks reported: ${stderr.slice(-1500)}`);
  }
  process.stdout.write(`${JSON.stringify({ hosts: numHosts, ranks: found, faults }, null, 1)}\n`);
  process.exitCode = faults.length > 0 ? 1 : 0;
} finally {
  remove();
  rmSync(folder, { recursive: true, force: true });
}
