/**
 * The conformance suite on mpi over hosts: each host is a network namespace of this machine (host-namespaces.mjs), all ranks are
 * started there by one mpirun, and MPI's data goes between hosts by TCP alone. Cases of as many ranks as there are, in one world;
 * by `--choices exchange` collectives go host by host. Open MPI; root on Linux; after `npm run build`:
 *   node test/campaigns/mpi-hosts-conformance.mjs [--hosts 2] [--ranks 2] [--choices exchange] [--seed 1] [--filter TEXT]
 * Exits 1 when a case failed, 3 where namespaces are not permitted.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { SHARED } from "../../dist/apps/conformance/conformance-rank.js";
import {
  allCases,
  describeCase,
  pairwise,
  runConformanceRank,
  SEMANTIC_CASES,
} from "../../dist/apps/conformance/index.js";
import { makeSharedWords } from "../../dist/apps/conformance/shared-words.js";
import { joinWorld } from "../../dist/index.js";
import { makeHosts } from "./host-namespaces.mjs";
import { mpirunInHosts } from "./mpi-namespaces.mjs";

const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    choices: { type: "string", default: "exchange" },
    seed: { type: "string", default: "1" },
    filter: { type: "string", default: "" },
    /** Of a rank: what it runs. */
    job: { type: "string" },
  },
});

if (values.job === undefined) process.exitCode = runAll();
else await runRank(JSON.parse(values.job));

/** One rank: prints its report as a line of JSON. */
async function runRank(job) {
  const world = await joinWorld({ timeoutMs: 60_000 });
  const report = await runConformanceRank(world, job);
  const { choices } = world.comm.stats();
  process.stdout.write(`${JSON.stringify({ rank: world.rank, choices, ...report })}\n`);
  await world.close().catch((error) => process.stderr.write(`${error}\n`));
}

function runAll() {
  const [numHosts, perHost, seed] = [values.hosts, values.ranks, values.seed].map(Number);
  const ranks = numHosts * perHost;
  const dataCases = pairwise(
    allCases([ranks]).filter((one) => describeCase(one).includes(values.filter)),
    seed,
  );
  const semanticCases = SEMANTIC_CASES.filter((one) => one.ranks === ranks && one.name.includes(values.filter)).map(
    ({ name }) => name,
  );
  const names = [...dataCases.map(describeCase), ...semanticCases];
  const { hosts, remove } = makeHosts(numHosts);
  const folder = mkdtempSync(join(tmpdir(), "chorale-mpi-hosts-"));
  const shared = makeSharedWords(SHARED.micros(names.length, ranks), "process");
  try {
    const common = { seed, full: false, interleavings: 40, programCalls: 48 };
    const job = { ...common, dataCases, semanticCases, shared: shared.handle };
    const { found, stderr, status } = mpirunInHosts(hosts, perHost, {
      folder,
      program: fileURLToPath(import.meta.url),
      args: ["--job", JSON.stringify(job)],
      env: { CHORALE_MPI_CHOICES: values.choices },
      timeoutMs: 600_000,
    });
    const problems = new Map();
    const note = (index, text) => problems.set(names[index], [...(problems.get(names[index]) ?? []), text]);
    for (const { rank, failures } of found)
      for (const { index, problem } of failures) note(index, `rank ${rank}: ${problem}`);
    for (const index of dataCases.keys()) {
      const digests = new Set(
        found.map((one) => one.digests[index]).filter((one) => one !== null && one !== undefined),
      );
      if (digests.size > 1) note(index, `results differ between ranks: ${[...digests].join(", ")}`);
    }
    const numDone = Math.min(...found.map((one) => one.numDone), names.length);
    const numSkipped = found[0]?.skipped.length ?? 0;
    for (const [name, texts] of problems) console.log(`FAILED ${name}\n  ${texts.join("\n  ")}`);
    if (found.length !== ranks) console.log(`${found.length} of ${ranks} ranks have reported: ${stderr.slice(-3000)}`);
    console.log(
      `${numHosts} hosts of ${perHost}, ${values.choices}: ${numDone - problems.size - numSkipped} of ${names.length} passed, ${problems.size} failed, ${numSkipped} skipped`,
    );
    console.log(`served, of rank 0: ${JSON.stringify(found.find(({ rank }) => rank === 0)?.choices)}`);
    return status === 0 && found.length === ranks && problems.size === 0 && numDone === names.length ? 0 : 1;
  } finally {
    shared.close();
    rmSync(folder, { recursive: true, force: true });
    remove();
  }
}
