/**
 * The verifier's campaigns at full length; CI runs the same at short settings:
 *   node test/campaigns/verifier.mjs [--exhaustive N] [--stride K] [--plans N] [--adversary N] [--seed S]
 * `--exhaustive`: all plans of up to N operations against every interleaving (5: 7.7 million plans, minutes), or each K-th.
 * `--plans`: N meaningless plans, those that are passed against random runs. `--adversary`: N of them, those that are passed
 * against a search for a schedule that breaks them. (Mutants of the library: `npm run mutation`.)
 * Prints counts and exits 1 when a plan was passed that some run breaks.
 */
import { mkdirSync, rmSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { build } from "esbuild";

const option = { type: "string" };
const { values } = parseArgs({
  options: { exhaustive: option, stride: option, plans: option, adversary: option, seed: option },
});
for (const [name, value] of Object.entries(values)) {
  if (!/^[1-9]\d*$/.test(value)) {
    console.error(`--${name} is ${JSON.stringify(value)}; expected a whole number, 1 or more`);
    process.exit(2);
  }
}
if (values.exhaustive === undefined && values.plans === undefined && values.adversary === undefined) {
  console.error("nothing to do: name --exhaustive, --plans or --adversary");
  process.exit(2);
}
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = `${root}.cache/campaign-${process.pid}`;
mkdirSync(folder, { recursive: true });
await build({
  entryPoints: [`${root}test/oracle/index.ts`],
  outfile: `${folder}/oracle.mjs`,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  packages: "external",
  logLevel: "error",
});
const { compareAll, describeSmallPlan, meaninglessPlans, SHAPES } = await import(
  pathToFileURL(`${folder}/oracle.mjs`).href
);
// Loaded: the file is not needed any more.
rmSync(folder, { recursive: true });
let wrong = 0;
const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(0)} s`;
if (values.exhaustive !== undefined) {
  const stride = Number(values.stride ?? 1);
  for (const shape of SHAPES) {
    const began = performance.now();
    const { wrongPasses, falseAlarms, ...counts } = compareAll(shape, {
      mostOps: Number(values.exhaustive),
      strideOf: (numOps) => (numOps < 3 ? 1 : stride),
      first: seed,
    });
    for (const ref of wrongPasses.slice(0, 20)) console.log(`PASSED WRONGLY ${describeSmallPlan(shape, ref)}`);
    for (const ref of falseAlarms.slice(0, 3)) console.log(`refused though right: ${describeSmallPlan(shape, ref)}`);
    console.log(
      shape,
      JSON.stringify({ ...counts, wrongPasses: wrongPasses.length, falseAlarms: falseAlarms.length }),
      seconds(began),
    );
    wrong += wrongPasses.length;
  }
}
for (const [name, search] of [
  ["plans", false],
  ["adversary", true],
]) {
  if (values[name] === undefined) continue;
  const began = performance.now();
  const result = meaninglessPlans({
    plans: Number(values[name]),
    seed,
    search,
    onProgress: (counts) => console.log(`seed ${seed} ${name}`, JSON.stringify(counts), seconds(began)),
  });
  for (const line of result.broken) console.log(`PASSED WRONGLY ${line}`);
  console.log(`seed ${seed} ${name}`, JSON.stringify({ ...result, broken: result.broken.length }), seconds(began));
  wrong += result.broken.length;
}
process.exitCode = wrong > 0 ? 1 : 0;
