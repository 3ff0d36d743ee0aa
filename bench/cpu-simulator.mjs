/**
 * How well `chorale sim --topology cpu` predicts this machine: plans are measured by the tuner, the constants fitted without
 * some of them, and their simulated times compared with the measured ones. Prints the median relative error of the plans
 * that the fit did not see. Run after `npm run build`:
 * node bench/cpu-simulator.mjs [--ranks 2] [--left-out 10] [--budget 15] [--json]
 *
 *   --times FILE   write what was measured          --from FILE   take it from there instead of measuring
 */
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";

import { sizeRange } from "../dist/apps/bench/index.js";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { candidatesOf } from "../dist/apps/tune/candidates.js";
import { tuneCollective } from "../dist/apps/tune/index.js";
import { simulateCpu } from "../dist/authoring/simulator/cpu-host.js";
import { cpuError, fitCpuCosts } from "../dist/authoring/simulator/index.js";
import { DEFAULT_CPU_COSTS } from "../dist/machine/cost/index.js";

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    "left-out": { type: "string", default: "10" },
    budget: { type: "string", default: "15" },
    json: { type: "boolean", default: false },
    times: { type: "string" },
    from: { type: "string" },
  },
};
const { ranks, leftOut, budget, json, times, from } = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks", 2),
  leftOut: integer(values["left-out"], "--left-out"),
  budget: integer(values.budget, "--budget"),
  json: values.json,
  times: values.times,
  from: values.from,
}));

/** Measures all collectives' candidates in short. */
async function measured() {
  const rows = [];
  for (const op of ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce"]) {
    const sizes = sizeRange(256, 16 * 2 ** 20, 8);
    const { measurements } = await tuneCollective({
      op,
      ranks,
      sizes,
      costs: DEFAULT_CPU_COSTS,
      budgetSeconds: budget,
    });
    rows.push(...measurements.map((one) => ({ ...one, name: `${op} ${one.name}` })));
    process.stderr.write(`${op}: ${measurements.length} times\n`);
  }
  return rows;
}

/** What `--times` wrote; plans are compiled again. */
function read(file) {
  const plans = new Map();
  const planOf = (name) => {
    const [op, label] = name.split(" ");
    if (!plans.has(op)) plans.set(op, new Map(candidatesOf(op, ranks).map((one) => [one.label, one.plan])));
    return plans.get(op).get(label);
  };
  return JSON.parse(readFileSync(file, "utf8")).rows.map((row) => ({ ...row, plan: planOf(row.name) }));
}

const rows = from === undefined ? await measured() : read(from);
if (times !== undefined) {
  const { length: cores, 0: first } = cpus();
  const plain = rows.map(({ name, sizeBytes, timeUs, endsAlone }) => ({ name, sizeBytes, timeUs, endsAlone }));
  writeFileSync(times, `${JSON.stringify({ ranks, cores, model: first?.model, rows: plain }, null, 1)}\n`);
}
// Every k-th plan by name: the choice does not depend on how well it is predicted.
const names = [...new Set(rows.map(({ name }) => name))].sort();
const every = Math.max(1, Math.floor(names.length / leftOut));
const unseen = new Set(names.filter((_, i) => i % every === 0).slice(0, leftOut));
const seenRows = rows.filter(({ name }) => !unseen.has(name));
const unseenRows = rows.filter(({ name }) => unseen.has(name));
const fit = fitCpuCosts(seenRows, DEFAULT_CPU_COSTS);
const error = cpuError(fit.costs, unseenRows);
if (json) {
  const predicted = unseenRows.map(({ name, plan, sizeBytes, timeUs, endsAlone }) => ({
    name,
    sizeBytes,
    measuredUs: timeUs,
    simulatedUs: simulateCpu(plan, { sizeBytes, endsAlone, costs: fit.costs }).timeUs,
  }));
  console.log(
    JSON.stringify(
      { ranks, fitted: seenRows.length, seen: fit.after, unseen: error, costs: fit.costs, predicted },
      null,
      2,
    ),
  );
} else {
  console.log(
    `${ranks} ranks: ${names.length} plans, ${rows.length} times; fitted to ${seenRows.length}, ${(100 * fit.after).toFixed(1)} % off (median)`,
  );
  console.log(
    `${unseen.size} plans that the fit did not see, ${unseenRows.length} times: ${(100 * error).toFixed(1)} % off (median)`,
  );
}
