/**
 * The conformance suite on tcp over hosts: each host is a network namespace of this machine (host-namespaces.mjs), and each
 * world has `--ranks` ranks on each but the first, which has the rest. Needs root on Linux and `npm run build`:
 *   node test/campaigns/hosts-conformance.mjs [--hosts 2] [--ranks 2] [--seed 1] [--full] [--filter TEXT]
 * Exits 1 when a case failed, 3 where namespaces are not permitted.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeHosts } from "./host-namespaces.mjs";

const dist = join(dirname(fileURLToPath(import.meta.url)), "../../dist");
const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    seed: { type: "string", default: "1" },
    full: { type: "boolean", default: false },
    filter: { type: "string" },
    dist: { type: "string", default: dist },
  },
});
const count = Number(values.hosts);
const { hosts, remove } = makeHosts(count);
const env = { ...process.env, CHORALE_SECRET: randomBytes(32).toString("hex") };
const rendezvous = `${hosts[0].address}:29518`;

const first = `
  import { runConformance } from ${JSON.stringify(join(values.dist, "apps/conformance/index.js"))};
  const result = await runConformance({
    backend: "tcp", ranks: [${count * Number(values.ranks)}], seed: ${Number(values.seed)}, full: ${values.full},
    ${values.filter === undefined ? "" : `filter: ${JSON.stringify(values.filter)},`}
    nodes: { count: ${count}, rank: 0, rendezvous: ${JSON.stringify(rendezvous)}, ranksElsewhere: ${(count - 1) * Number(values.ranks)} },
    onFailure: (name, problem) => console.error(name + ": " + problem),
  });
  console.log(JSON.stringify({ ...result, slowest: undefined }));
  process.exitCode = result.failed.length > 0 || result.numPassed === 0 ? 1 : 0;`;
// Every batch of cases is a world of its own: this host serves one after the other until it is ended.
const other = (rank) => `
  import { launch, loadableUrl } from ${JSON.stringify(join(values.dist, "runtime/world/index.js"))};
  for (;;) {
    const nodes = { count: ${count}, rank: ${rank}, rendezvous: ${JSON.stringify(rendezvous)}, joinTimeoutMs: 600_000 };
    await launch({ ranks: ${Number(values.ranks)}, backend: "tcp", module: loadableUrl("apps/conformance/conformance-rank"), nodes }).catch(
      (error) => console.error(String(error)),
    );
  }`;

const children = hosts.map(({ ns }, node) => {
  const words = ["netns", "exec", ns, process.execPath, "--input-type=module", "-e", node === 0 ? first : other(node)];
  return spawn("ip", words, { env, stdio: ["ignore", "inherit", "inherit"] });
});
process.exitCode = await new Promise((done) => children[0].on("close", done));
for (const child of children.slice(1)) child.kill("SIGKILL");
remove();
