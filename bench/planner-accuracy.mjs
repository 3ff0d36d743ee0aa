/**
 * Compares the planner's estimates with published measurements and prints a Markdown table by category, before and after.
 * `--errors` writes src/planner/cost/estimate-errors.ts, from which plans print their range.
 *
 *   npm run build && node bench/planner-accuracy.mjs POINTS [--errors] > bench/results/planner-accuracy.md
 *
 * POINTS is a folder with points.json: each point with its source, its `chorale plan` command, the published figure and
 * what the planner of 2026-11-22 estimated.
 */
import { writeFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { resolveHardware } from "../dist/machine/hardware/index.js";
import { loadModel, planModel } from "../dist/planner/index.js";
import { categoryOf, estimate, readPoints, summary } from "./planner-points.mjs";

const { values, positionals } = flagsOf(
  import.meta.url,
  { allowPositionals: true, options: { errors: { type: "boolean" } } },
  (given) => given,
);

const points = await readPoints(positionals[0] ?? "../shared/conformance/planner", { loadModel, resolveHardware });
const groups = new Map();
const kinds = new Map();
for (const item of points) {
  const { point } = item;
  if (point.category === "layout") continue;
  const result = estimate(planModel, item);
  const name = categoryOf(point);
  if (!groups.has(name)) groups.set(name, { before: [], after: [], total: 0, right: 0, rightBefore: 0 });
  const group = groups.get(name);
  group.total++;
  if (point.metric === "fits") {
    group.right += Number((result.value === true) === point.published);
    group.rightBefore += Number(point.estimated === point.published);
    continue;
  }
  if (typeof point.ratio === "number") group.before.push(point.ratio);
  else if (typeof point.estimated === "number") group.before.push(point.estimated / point.published);
  if (typeof result.value !== "number") continue;
  const ratio = result.value / point.published;
  group.after.push(ratio);
  // Times are the inverse of speeds.
  const speed = /ttft|latency/.test(point.metric) ? 1 / ratio : ratio;
  const { workload, estimates } = result.plan;
  const timed =
    !/^(mem|weights|kv|states|avail|total parameters)/.test(point.metric) &&
    !/outlier|inexpressible$/.test(point.group);
  if (!timed) continue;
  const kind =
    estimates.kind === "training"
      ? "training"
      : `${workload.engine} ${workload.outputTokens <= 1 ? "prefill" : workload.batch >= 8 ? "serving" : "decode"}`;
  if (!kinds.has(kind)) kinds.set(kind, []);
  kinds.get(kind).push(speed);
}
const cell = ({ n, mean, median }) => (n === 0 ? "- | -" : `${mean.toFixed(2)} | ${(median * 100).toFixed(0)} %`);
const lines = [
  "# The planner against published measurements",
  "",
  "Estimate / published: geometric mean and median error, of the planner of 2026-11-22 and of this one. Made by",
  "`node bench/planner-accuracy.mjs`; each point is planned as its source ran it: engine, micro-batch, checkpointing and precision",
  "are named, layouts are fixed, free batches are free. Constants are fitted by `bench/planner-fit.mjs` on these points, by engine and",
  "generation of hardware, never by point; see the second table for what that hides.",
  "",
  "| category | points | planned | mean before | error before | mean | error |",
  "|---|---|---|---|---|---|---|",
];
for (const [name, group] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
  if (name === "fits") continue;
  lines.push(
    `| ${name} | ${group.total} | ${group.after.length} | ${cell(summary(group.before))} | ${cell(summary(group.after))} |`,
  );
}
const fits = groups.get("fits");
if (fits !== undefined)
  lines.push("", `Fits or not: ${fits.right} of ${fits.total} right (before: ${fits.rightBefore}).`);
process.stdout.write(`${lines.join("\n")}\n`);
if (values.errors === true) {
  const rows = [...kinds].map(([kind, ratios]) => {
    const sorted = ratios.sort((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.round(share * (sorted.length - 1)))].toPrecision(3);
    return `  ${JSON.stringify(kind)}: [${Number(at(0.1))}, ${Number(at(0.9))}, ${sorted.length}],`;
  });
  writeFileSync(
    new URL("../src/planner/cost/estimate-errors.ts", import.meta.url),
    `/** Written by bench/planner-accuracy.mjs; do not edit. Ratios of estimate to published by engine and what is estimated: 10th and 90th percentile, and their number. */\nexport const ESTIMATE_ERRORS: Readonly<Record<string, readonly [low: number, high: number, count: number]>> = {\n${rows.sort().join("\n")}\n};\n`,
  );
}
