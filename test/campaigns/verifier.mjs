/**
 * The verifier's campaigns at full length; CI runs the same tests at short settings:
 *   node test/campaigns/verifier.mjs [--exhaustive N] [--stride K] [--plans N] [--seed S]
 * `--exhaustive`: all plans of up to N operations (5: 1.3 million, hours) against every interleaving, each K-th of them.
 * `--plans`: meaningless plans against random runs. (Mutants of the library: `npm run mutation`.) Prints what vitest prints,
 * the counts of each campaign included, and exits 1 when a wrong plan was passed.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const options = { type: "string" };
const { values } = parseArgs({
  options: { exhaustive: options, stride: options, plans: options, seed: options },
});
for (const [name, value] of Object.entries(values)) {
  if (!/^[1-9]\d*$/.test(value)) {
    console.error(`--${name} is ${JSON.stringify(value)}; expected a whole number, 1 or more`);
    process.exit(2);
  }
}
const seed = values.seed ?? String(Date.now() % 1_000_000);
console.log(`seed ${seed}`);
const runs = [
  values.exhaustive === undefined
    ? undefined
    : [
        "test/oracle/exhaustive.test.ts",
        { EXHAUSTIVE_OPS: values.exhaustive, EXHAUSTIVE_STRIDE: values.stride ?? "1" },
      ],
  values.plans === undefined
    ? undefined
    : ["test/oracle/random-plans.test.ts", { RANDOM_PLANS: values.plans, RANDOM_PLANS_SEED: seed }],
].filter((run) => run !== undefined);
if (runs.length === 0) {
  console.error("nothing to do: name --exhaustive or --plans");
  process.exit(2);
}
let failed = false;
for (const [file, env] of runs) {
  const { status } = spawnSync("npx", ["vitest", "run", "--maxWorkers=1", file], {
    cwd: fileURLToPath(new URL("../..", import.meta.url)),
    env: { ...process.env, ...env },
    stdio: "inherit",
  });
  failed ||= status !== 0;
}
process.exitCode = failed ? 1 : 0;
