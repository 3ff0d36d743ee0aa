/**
 * Runs the mutation campaign of the verifier: `node scripts/mutation-test.mjs [--mutants 20000] [--seed 1] [--runs 24]
 * [--data DIR] [--base NAME] [--kind NAME]`. DIR holds MSCCL++'s programs.jsonl.gz, whose plans are mutated too; without
 * it, ../shared/conformance/mscclpp beside the repository where that is there.
 * Ends with a line of totals and exits 1 when the verifier passed a mutant that a run breaks, or flagged an equivalent.
 */
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";
import { importTests } from "./bundle-tests.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values } = parseArgs({
  options: {
    mutants: { type: "string", default: "20000" },
    seed: { type: "string", default: "1" },
    runs: { type: "string", default: "24" },
    "max-ops": { type: "string", default: "220" },
    data: { type: "string" },
    base: { type: "string" },
    kind: { type: "string" },
  },
});
const { campaign, mscclppBases } = await importTests("test/oracle/index.ts");
const file = join(resolve(values.data ?? join(root, "../shared/conformance/mscclpp")), "programs.jsonl.gz");
if (!existsSync(file)) console.log(`SKIPPED: MSCCL++'s programs, no ${file} (name its folder with --data DIR)`);
const maxOps = Number(values["max-ops"]);
const more = existsSync(file) ? mscclppBases(gunzipSync(readFileSync(file)).toString().trim().split("\n"), maxOps) : [];
const started = performance.now();
const result = campaign({
  mutants: Number(values.mutants),
  seed: Number(values.seed),
  runs: Number(values.runs),
  maxOps,
  more,
  only: { base: values.base, kind: values.kind },
  onProgress: (line) => console.error(line),
});
for (const [key, { count, example }] of [...result.unconfirmed].sort((a, b) => b[1].count - a[1].count)) {
  console.log(`--- flagged without a failing run, ${count}x: ${key}\n${example}\n`);
}
for (const line of result.missed) console.log(`MISSED ${line}`);
for (const line of result.falseAlarms) console.log(`FALSE ALARM ${line}`);
const share = ((100 * result.confirmed) / Math.max(1, result.flagged)).toFixed(2);
console.log([...result.perKind].map(([kind, count]) => `${kind} ${count}`).join(", "));
console.log(
  `${result.bases} plans (${more.length} of MSCCL++), ${result.mutants} mutants (${result.relaunched} launched three times; ${result.shapeless} do not hold together), ${result.passed} passed, ` +
    `${result.flagged} flagged of which ${result.confirmed} (${share} %) have a failing run, ${result.missed.length} missed, ` +
    `${result.equivalents} equivalent changes with ${result.falseAlarms.length} false alarms, ${result.runs} runs, ` +
    `${((performance.now() - started) / 1000).toFixed(0)} s`,
);
process.exitCode = result.missed.length + result.falseAlarms.length > 0 ? 1 : 0;
