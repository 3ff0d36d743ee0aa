/**
 * The conformance suite on NCCL over hosts that this machine only pretends to have: each is a launcher of its own with some of
 * the GPUs, and NCCL takes it for another host (NCCL_HOSTID) that it reaches by sockets alone, over loopback; with --namespaces
 * each has a network of its own (host-namespaces.mjs; needs root on Linux). World sizes are those of which the last host has
 * `--ranks` ranks, at most `--hosts` times as many. Needs `npm run build`, and a GPU a rank:
 *   node test/campaigns/pretended-hosts.mjs [--hosts 2] [--ranks 2] [--seed 1] [--full] [--only data|behaviour] [--filter TEXT]
 *                                           [--namespaces]
 * Exits 1 when a case failed or none ran.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { freePort } from "../support/free-port.mjs";
import { makeHosts } from "./host-namespaces.mjs";

const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    seed: { type: "string", default: "1" },
    full: { type: "boolean", default: false },
    only: { type: "string" },
    filter: { type: "string" },
    namespaces: { type: "boolean", default: false },
    dist: { type: "string", default: join(dirname(fileURLToPath(import.meta.url)), "../../dist") },
  },
});
const [count, ranks] = [Number(values.hosts), Number(values.ranks)];
const visible =
  process.env.CUDA_VISIBLE_DEVICES?.split(",") ?? Array.from({ length: count * ranks }, (_, i) => String(i));
const made = values.namespaces ? makeHosts(count) : undefined;
const rendezvous = made === undefined ? `127.0.0.1:${await freePort()}` : `${made.hosts[0].address}:29520`;
const secret = randomBytes(32).toString("hex");
const envOf = (node) => ({
  NCCL_P2P_DISABLE: "1",
  NCCL_SHM_DISABLE: "1",
  NCCL_SOCKET_IFNAME: made === undefined ? "lo" : "eth0",
  NCCL_IB_DISABLE: "1",
  ...process.env,
  CHORALE_SECRET: secret,
  NCCL_HOSTID: `pretended-${node}`,
  CUDA_VISIBLE_DEVICES: visible.slice(node * ranks, (node + 1) * ranks).join(","),
});
const nodes = { count, rendezvous, joinTimeoutMs: 120_000 };
const { full, only, filter } = values;
const asked = { backend: "nccl", isolation: "process", ranks: [count * ranks], seed: Number(values.seed), full };
const options = {
  ...asked,
  ...(only === undefined ? {} : { only }),
  ...(filter === undefined ? {} : { filter }),
  maxRanks: count * ranks,
  nodes: { ...nodes, rank: 0, ranksElsewhere: (count - 1) * ranks },
};
const first = `
  import { runConformance } from ${JSON.stringify(join(values.dist, "apps/conformance/index.js"))};
  const result = await runConformance({
    ...${JSON.stringify(options)},
    onFailure: (name, problem) => console.error(name + ": " + problem),
  });
  console.log(JSON.stringify({ ...result, slowest: undefined }));
  process.exitCode = result.failed.length > 0 || result.numPassed === 0 ? 1 : 0;`;
// Every batch of cases is a world of its own: this host serves one after the other until it is ended.
const other = (rank) => `
  import { launch, loadableUrl } from ${JSON.stringify(join(values.dist, "runtime/world/index.js"))};
  // As it exits it removes what it has made.
  process.once("SIGTERM", () => process.exit());
  for (;;) {
    const nodes = ${JSON.stringify({ ...nodes, rank })};
    const module = loadableUrl("apps/conformance/conformance-rank");
    await launch({ ranks: ${ranks}, backend: "nccl", module, nodes }).catch((error) => console.error(String(error)));
  }`;
const children = Array.from({ length: count }, (_, node) => {
  const program = [process.execPath, "--input-type=module", "-e", node === 0 ? first : other(node)];
  const [command, ...words] = made === undefined ? program : ["ip", "netns", "exec", made.hosts[node].ns, ...program];
  return spawn(command, words, { env: envOf(node), stdio: ["ignore", "inherit", "inherit"] });
});
process.exitCode = await new Promise((done) => children[0].on("close", (code) => done(code ?? 1)));
await Promise.all(
  children.slice(1).map((child) => {
    const ended = new Promise((done) => child.once("close", done));
    child.kill();
    return ended;
  }),
);
made?.remove();
