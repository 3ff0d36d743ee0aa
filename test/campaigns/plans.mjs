/**
 * Plans by the thousand on the CPU's executor and on threads, from one process: what the tests run in short.
 *   node test/campaigns/plans.mjs [--random N] [--mutants N] [--library RANKS[,RANKS]] [--programs FILE] [--seed S]
 *
 *   --random N      random plans that the verifier passes: executor and oracle, bit for bit
 *   --mutants N     mutants that the verifier rejects as a deadlock or a race, with `force`
 *   --library N,M   every algorithm at so many ranks (above 8: one of each collective), 96 cases of each
 *   --programs FILE MSCCL++'s programs (programs.jsonl.gz) that are right, of at most 8 ranks
 *   --bundle FILE   for a host without the compiler: this script's module as `bundleTests` made it elsewhere of
 *                   test/support/plan-campaigns.ts. Ranks load the package from the folder .cache/dev two above it
 *
 * One line for each; exit code 1 when something was wrong. Other seeds in other processes share the work.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";

const option = { type: "string" };
const { values } = parseArgs({
  options: { random: option, mutants: option, library: option, programs: option, seed: option, bundle: option },
});
for (const name of ["random", "mutants", "library", "seed"]) {
  if (values[name] === undefined || /^[1-9]\d*(,[1-9]\d*)*$/.test(values[name])) continue;
  console.error(`--${name} is ${JSON.stringify(values[name])}; expected a whole number, 1 or more`);
  process.exit(2);
}
const { random, mutants, library, programs, bundle } = values;
if ([random, mutants, library, programs].every((one) => one === undefined)) {
  console.error("nothing to do: name --random, --mutants, --library or --programs");
  process.exit(2);
}
const seed = Number(values.seed ?? Date.now() % 1_000_000);

/** The module of the repository, made now. */
async function made() {
  const [{ importTests }, { transpileSources }] = await Promise.all([
    import("../../scripts/bundle-tests.mjs"),
    import("../../scripts/transpile.mjs"),
  ]);
  await transpileSources();
  return importTests("test/support/plan-campaigns.ts");
}
const { libraryOnThreads, mutantsOnThreads, oneOfEach, programsOnThreads, randomPlansOnCpu } =
  bundle === undefined ? await made() : await import(pathToFileURL(resolve(bundle)).href);

let numWrong = 0;
async function campaign(what, run) {
  const began = performance.now();
  const { wrong, ...counts } = await run();
  for (const line of wrong.slice(0, 20)) console.log(`WRONG ${line}`);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  console.log(`${what}, seed ${seed}: ${wrong.length} wrong, ${JSON.stringify(counts)}, ${seconds} s`);
  numWrong += wrong.length;
}
if (random !== undefined) await campaign(`${random} random plans`, async () => randomPlansOnCpu(Number(random), seed));
if (mutants !== undefined)
  await campaign(`${mutants} mutants`, () => mutantsOnThreads(Number(mutants), { every: 1, seed }));
for (const numRanks of library?.split(",").map(Number) ?? [])
  await campaign(`the library, ${numRanks} ranks`, () =>
    libraryOnThreads(numRanks, { ...(numRanks > 8 && { entries: oneOfEach() }), most: 96, seed }),
  );
if (programs !== undefined) {
  const lines = gunzipSync(readFileSync(programs)).toString().trim().split("\n");
  await campaign(`MSCCL++'s programs`, () => programsOnThreads(lines, { isFull: true, seed }));
}
// Threads that were kept for another world.
process.exit(numWrong > 0 ? 1 : 0);
