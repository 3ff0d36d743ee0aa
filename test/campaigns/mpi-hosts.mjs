/**
 * Worlds of the mpi backend over pretended hosts: each is a network namespace of this machine (host-namespaces.mjs), mpirun
 * starts its daemons there by an agent in the place of ssh, and MPI's data goes through TCP alone. The namespaces share this
 * machine's memory, and so do chorale's control words: what is shown is MPI's way and the ranks' places, not a second host.
 * MPI is told to serve every call, as it would between hosts: the exchange over shared memory would serve most of them.
 * Open MPI; root on Linux:
 *   node test/campaigns/mpi-hosts.mjs [--hosts 2] [--ranks 2] [--url file:///…/dist/index.js]
 * Prints what each rank found. Exits 1 when something was wrong, 3 where namespaces are not permitted.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeHosts } from "./host-namespaces.mjs";

const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    url: { type: "string", default: new URL("../../dist/index.js", import.meta.url).href },
  },
});
const [numHosts, perHost] = [Number(values.hosts), Number(values.ranks)];
const { hosts, remove } = makeHosts(numHosts);
const folder = mkdtempSync(join(tmpdir(), "chorale-mpi-hosts-"));
try {
  // What mpirun calls as `ssh HOST COMMAND`.
  const agent = join(folder, "agent");
  const cases = hosts.map(({ ns, address }) => `  ${address}) ns=${ns} ;;`).join("\n");
  writeFileSync(
    agent,
    `#!/bin/sh\nhost=$1\nshift\ncase $host in\n${cases}\nesac\nexec ip netns exec "$ns" sh -c "$*"\n`,
  );
  chmodSync(agent, 0o755);
  const mca = {
    plm_rsh_agent: agent,
    btl: "tcp,self",
    pml: "ob1",
    btl_tcp_if_include: "eth0",
    oob_tcp_if_include: "eth0",
  };
  const rank = fileURLToPath(new URL("mpi-hosts-rank.mjs", import.meta.url));
  const words = [
    ...["netns", "exec", hosts[0].ns, "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
    ...["--map-by", "slot", "--host", hosts.map(({ address }) => `${address}:${perHost}`).join(",")],
    ...["-n", String(numHosts * perHost)],
    ...Object.entries(mca).flatMap(([name, value]) => ["--mca", name, value]),
    ...[
      "-x",
      "CHORALE_BACKEND=mpi",
      "-x",
      `TMPDIR=${folder}`,
      "-x",
      "CHORALE_MPI_CHOICES=mpi",
      process.execPath,
      rank,
      values.url,
      values.hosts,
    ],
  ];
  const env = { ...process.env, TMPDIR: folder, NO_COLOR: "1" };
  const { stdout, stderr, status } = spawnSync("ip", words, { encoding: "utf8", timeout: 120_000, env });
  const found = stdout
    .split(/\r?\n/)
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line))
    .sort((a, b) => a.rank - b.rank);
  const faults = found.flatMap(({ rank: own, address, coords, wrong }) => {
    const host = hosts[Math.floor(own / perHost)].address;
    const placed = address === host && coords.host === Math.floor(own / perHost) && coords.local === own % perHost;
    return [
      ...wrong.map((text) => `rank ${own}: ${text}`),
      ...(placed ? [] : [`rank ${own} is on ${address} at ${JSON.stringify(coords)}, and ${host} is its host`]),
    ];
  });
  if (status !== 0 || found.length !== numHosts * perHost) {
    faults.push(`mpirun ended with ${status}, and ${found.length} ranks reported: ${stderr.slice(-1500)}`);
  }
  process.stdout.write(`${JSON.stringify({ hosts: numHosts, ranks: found, faults }, null, 1)}\n`);
  process.exitCode = faults.length > 0 ? 1 : 0;
} finally {
  remove();
  rmSync(folder, { recursive: true, force: true });
}
