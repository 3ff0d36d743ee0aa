/**
 * Compares the planner's estimates with published measurements and prints a Markdown report: by category before and after,
 * what fits, which layouts are chosen, and how held-out points are met.
 *
 *   npm run build && node bench/planner-accuracy.mjs POINTS [--check FILE] > bench/results/planner-accuracy.md
 *
 * POINTS is a folder with points.json: each point with its source, its `chorale plan` command, the published figure and
 * what the planner of 2026-11-22 estimated. FILE is what `node bench/planner-fit.mjs POINTS --check --json FILE` wrote.
 */
import { readFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { resolveHardware } from "../dist/machine/hardware/index.js";
import { axesText, loadModel, planModel } from "../dist/planner/index.js";
import { categoryOf, estimate, heldOutRanges, readPoints, summary, unmeasuredRange } from "./planner-points.mjs";

const { values, positionals } = flagsOf(
  import.meta.url,
  { allowPositionals: true, options: { check: { type: "string" } } },
  (given) => given,
);

const points = await readPoints(positionals[0] ?? "../shared/conformance/planner", { loadModel, resolveHardware });
const lines = [];
const percent = (value) => `${(value * 100).toFixed(0)} %`;
const cell = ({ n, mean, median }) => (n === 0 ? "- | -" : `${mean.toFixed(2)} | ${percent(median)}`);

function byCategory() {
  const groups = new Map();
  for (const item of points) {
    const { point } = item;
    if (point.category === "layout") continue;
    const { value } = estimate(planModel, item);
    const name = categoryOf(point);
    if (!groups.has(name)) groups.set(name, { before: [], after: [], total: 0, right: 0, rightBefore: 0 });
    const group = groups.get(name);
    group.total++;
    if (point.metric === "fits") {
      group.right += Number((value === true) === point.published);
      group.rightBefore += Number(point.estimated === point.published);
      continue;
    }
    if (typeof point.ratio === "number") group.before.push(point.ratio);
    else if (typeof point.estimated === "number") group.before.push(point.estimated / point.published);
    if (typeof value === "number") group.after.push(value / point.published);
  }
  return groups;
}

/** The axes that a source names; what it leaves open is 1, replicas take the rest. */
function publishedAxes(text, world) {
  const named = Object.fromEntries(
    [...text.matchAll(/(tp|pp|dp|ep|cp)=(\d+)/g)].map(([, axis, n]) => [axis, Number(n)]),
  );
  const rest = ["tp", "pp", "ep", "cp"].reduce((product, axis) => product * (named[axis] ?? 1), 1);
  return { tp: 1, pp: 1, ep: 1, cp: 1, dp: Math.max(1, Math.floor(world / rest)), ...named };
}

function layouts() {
  return points
    .filter(({ point }) => point.category === "layout")
    .map(({ point, request, model, inventory }) => {
      const devices = inventory.devices.filter((device) => device.family !== "cpu");
      const { microBatch: _, ...asked } = request;
      const given = { ...asked, model, inventory: { ...inventory, devices } };
      const [chosen] = planModel(given).plans;
      const constrain = publishedAxes(point.published, request.ranks ?? devices.length);
      // "or pp": any pipeline is as good as what was measured.
      const isPipeline = / or pp$/.test(point.published) && chosen?.mesh.axes.pp > 1;
      const published = isPipeline ? chosen : planModel({ ...given, constrain }).plans[0];
      return { id: point.id, text: point.published, before: point.ratio, chosen, published };
    });
}

lines.push(
  "# The planner against published measurements",
  "",
  "Estimate / published: geometric mean and median error, of the planner of 2026-11-22 and of this one. Made by",
  "`node bench/planner-accuracy.mjs`; each point is planned as its source ran it: engine, micro-batch, checkpointing and precision",
  "are named, layouts are fixed, free batches are free. Constants are fitted by `bench/planner-fit.mjs` on these points, by engine and",
  "generation of hardware, each held to a prior (`bench/planner-priors.mjs`), never by point; see below for held-out points.",
  "",
  "| category | points | planned | mean before | error before | mean | error |",
  "|---|---|---|---|---|---|---|",
);
const groups = byCategory();
for (const [name, group] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
  if (name === "fits") continue;
  lines.push(
    `| ${name} | ${group.total} | ${group.after.length} | ${cell(summary(group.before))} | ${cell(summary(group.after))} |`,
  );
}
const fits = groups.get("fits");
if (fits !== undefined)
  lines.push("", `Fits or not: ${fits.right} of ${fits.total} right (before: ${fits.rightBefore}).`);

const compared = layouts();
const ratioOf = ({ chosen, published }) => (published === undefined ? Number.NaN : published.score / chosen.score);
lines.push(
  "",
  "## Layouts",
  "",
  "The estimated score of the published layout to that of the chosen one, lower scores being better: at most 1.10 is asked for.",
  "",
  "| point | published | chosen | before | ratio |",
  "|---|---|---|---|---|",
  ...compared.map((row) => {
    const { zeroStage } = row.chosen.workload;
    const chosen = `${axesText(row.chosen.mesh.axes)}${zeroStage === undefined ? "" : `, ZeRO ${zeroStage}`}`;
    return `| ${row.id} | ${row.text} | ${chosen} | ${row.before.toFixed(2)} | ${ratioOf(row).toFixed(2)} |`;
  }),
  "",
  `Within 10 %: ${compared.filter((row) => ratioOf(row) <= 1.1).length} of ${compared.length} (before: ${compared.filter(({ before }) => before <= 1.1).length}).`,
);

if (values.check !== undefined) {
  const { rows, left, table, sources } = JSON.parse(readFileSync(values.check, "utf8"));
  const unmeasured = unmeasuredRange(left);
  const span = ([low, high], show) => `${show(low)} to ${show(high)}`;
  lines.push(
    "",
    "## Random halves",
    "",
    `Fitted on a random half of the points and scored on the other, ${new Set(rows.map(({ split }) => split)).size} times (\`node bench/planner-fit.mjs POINTS --check\`):`,
    "all held-out estimates of a category together, and beside them the 10th and 90th percentile over the splits.",
    "",
    "| category | points | mean | of the splits | error | of the splits |",
    "|---|---|---|---|---|---|",
    ...table.map(
      (row) =>
        `| ${row.category} | ${row.points} | ${row.mean.toFixed(2)} | ${span(row.means, (value) => value.toFixed(2))} | ${percent(row.median)} | ${span(row.medians, percent)} |`,
    ),
    "",
    "## Left out one source at a time",
    "",
    "A source that alone speaks of a generation or a format leaves its constants at their priors, so this is harsher than unseen points",
    "of known sources.",
    "",
    "| without | category | points | mean | error |",
    "|---|---|---|---|---|",
    ...sources.map(
      (row) => `| ${row.source} | ${row.category} | ${row.n} | ${row.mean.toFixed(2)} | ${percent(row.median)} |`,
    ),
    "",
    "## Printed ranges",
    "",
    "From the held-out estimates above (`node bench/planner-fit.mjs --errors FILE`): 0.9 says that the estimate was a tenth too slow. The",
    "share is that of held-out estimates inside the range made without their own point; 80 to 90 % is aimed at. Kinds of fewer than 8",
    "points take at least the range of all.",
    "",
    "| kind | points | low | high | inside | generations of hardware |",
    "|---|---|---|---|---|---|",
    ...heldOutRanges(rows).map(
      ({ kind, points: n, low, high, share, generations }) =>
        `| ${kind} | ${n} | ${low} | ${high} | ${percent(share)} | ${generations.join(", ")} |`,
    ),
    "",
    `On other hardware the ends are multiplied by those of the ${unmeasured.points} estimates above that were made without the only source of their`,
    `hardware: ${unmeasured.low} and ${unmeasured.high}.`,
  );
}
process.stdout.write(`${lines.join("\n")}\n`);
