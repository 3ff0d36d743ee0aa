/** Starts a program by Open MPI's mpirun on pretended hosts (host-namespaces.mjs): its daemons by an agent in the place of ssh. */
import { spawnSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Runs `node PROGRAM ARGS…` as so many ranks on each host, by slot, and waits for all of them. Between hosts MPI has TCP alone.
 * @param folder for temporary files; it is the caller's
 * @param btl how MPI moves data: inside a host through shared memory too where it has `vader`
 */
export function mpirunInHosts(
  hosts,
  perHost,
  { folder, program, args = [], env = {}, btl = "tcp,self", timeoutMs = 120_000 },
) {
  const agent = join(folder, "agent");
  const cases = hosts.map(({ ns, port, address }) => `  ${address}) ns=${ns} name=${port} ;;`).join("\n");
  // With names of their own: by them Open MPI calls the files over which a host's ranks share memory.
  const named = (name) => ["unshare", "--uts", "sh", "-c", `hostname ${name}; exec "$@"`, "sh"];
  writeFileSync(
    agent,
    `#!/bin/sh\nhost=$1\nshift\ncase $host in\n${cases}\nesac\nexec ip netns exec "$ns" unshare --uts sh -c "hostname $name; $*"\n`,
  );
  chmodSync(agent, 0o755);
  const mca = {
    plm_rsh_agent: agent,
    btl,
    pml: "ob1",
    btl_tcp_if_include: "eth0",
    oob_tcp_if_include: "eth0",
  };
  const counts = hosts.map((_, i) => (Array.isArray(perHost) ? (perHost[i] ?? 1) : perHost));
  const exported = { CHORALE_BACKEND: "mpi", TMPDIR: folder, ...env };
  const words = [
    ...[
      "netns",
      "exec",
      hosts[0].ns,
      ...named(hosts[0].port),
      "mpirun.openmpi",
      "--allow-run-as-root",
      "--oversubscribe",
    ],
    ...["--bind-to", "none"],
    ...["--map-by", "slot", "--host", hosts.map(({ address }, i) => `${address}:${counts[i]}`).join(",")],
    ...["-n", String(counts.reduce((sum, one) => sum + one, 0))],
    ...Object.entries(mca).flatMap(([name, value]) => ["--mca", name, value]),
    ...Object.entries(exported).flatMap(([name, value]) => ["-x", `${name}=${value}`]),
    ...[process.execPath, program, ...args],
  ];
  const { stdout, stderr, status } = spawnSync("ip", words, {
    encoding: "utf8",
    timeout: timeoutMs,
    env: { ...process.env, TMPDIR: folder, NO_COLOR: "1" },
  });
  const found = stdout
    .split(/\r?\n/)
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));
  return { found, stdout, stderr, status };
}
