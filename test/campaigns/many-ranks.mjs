/**
 * A world of many ranks on pretended hosts: each host is a launcher of its own, at an address of its own on the loopback
 * network. Says how long the world takes to form, runs every collective on it with checked results, and looks that nothing is
 * left when it has ended. Needs `npm run build` and Linux:
 *   node test/campaigns/many-ranks.mjs [--hosts 8] [--ranks 8] [--limit 20] [--main dist/apps/cli/main.js] [--json]
 * Exits 1 when the world took longer than --limit seconds to form, a result was wrong, or something was left.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { loadavg } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { freePort } from "../support/free-port.mjs";
import { processesOf } from "./run-launchers.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "8" },
    ranks: { type: "string", default: "8" },
    limit: { type: "string", default: "20" },
    main: { type: "string", default: join(here, "../../dist/apps/cli/main.js") },
    json: { type: "boolean", default: false },
  },
});
const [numHosts, numRanks, limit] = [values.hosts, values.ranks, values.limit].map(Number);
const size = numHosts * numRanks;
const tag = `many-ranks-${process.pid}-${randomBytes(4).toString("hex")}`;
const env = { ...process.env, CHORALE_SECRET: randomBytes(32).toString("hex"), CHORALE_CAMPAIGN: tag };
const port = await freePort();
const program = `import { main } from ${JSON.stringify(pathToFileURL(resolve(values.main)).href)}; process.exitCode = await main(process.argv.slice(1));`;
const load = loadavg()[0];

const said = [];
let text = "";
const began = Date.now();
const ends = await Promise.all(
  Array.from({ length: numHosts }, (_, node) => {
    const words = ["launch", "-n", String(numRanks), "--backend", "tcp", "--nnodes", String(numHosts)];
    words.push("--node-rank", String(node), "--rdzv", `127.0.0.1:${port}`, "--timeout", "300");
    words.push("--backend-option", `host=127.0.0.${node + 1}`, join(here, "many-ranks-rank.mjs"));
    const child = spawn(process.execPath, ["--input-type=module", "-e", program, "--", ...words], {
      env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let rest = "";
    child.stdout.setEncoding("utf8").on("data", (chunk) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      for (const line of lines) said.push(JSON.parse(line.replace(/^\[-?\d+\] /, "")));
    });
    child.stderr.setEncoding("utf8").on("data", (chunk) => (text += chunk));
    return new Promise((done) => child.on("close", (code, signal) => done({ node, code, signal, at: Date.now() })));
  }),
);
const of = (kind) => said.filter((one) => one.kind === kind);
const last = (kind) => Math.max(...of(kind).map(({ at }) => at));
const formMs = last("joined") - began;
const collectivesMs = last("done") - last("joined");
const endMs = Math.max(...ends.map(({ at }) => at)) - last("done");
const problems = [];
if (of("joined").length !== size) problems.push(`${of("joined").length} of ${size} ranks joined`);
if (of("done").length !== size) problems.push(`${of("done").length} of ${size} ranks ended every collective`);
if (!(formMs <= limit * 1000)) problems.push(`the world took ${formMs} ms to form, and ${limit} s are allowed`);
for (const { node, code, signal } of ends)
  if (code !== 0) problems.push(`the launcher of host ${node} ended with ${signal ?? code}`);
const left = processesOf(tag);
if (left.length > 0) problems.push(`left running: processes ${left.join(", ")}`);
const calls = of("done")[0]?.calls ?? 0;
const report = { hosts: numHosts, ranks: size, load, formMs, calls, collectivesMs, endMs, problems };
if (problems.length > 0) process.stderr.write(text.slice(-4000));
if (values.json) console.log(JSON.stringify(report));
else {
  console.log(`${size} ranks on ${numHosts} hosts, load ${load.toFixed(1)} before`);
  console.log(`formed in ${formMs} ms, ${calls} calls in ${collectivesMs} ms, ended ${endMs} ms later`);
  for (const problem of problems) console.log(`PROBLEM ${problem}`);
}
process.exitCode = problems.length === 0 ? 0 : 1;
