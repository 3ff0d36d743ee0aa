/**
 * Fits the constants of the planner's model of time to published measurements, and writes
 * src/planner/cost/fitted-constants.ts; with `--check` it says instead how well constants fitted without a point meet it.
 *
 *   npm run build && node bench/planner-fit.mjs POINTS            fit on all points, write the constants
 *   npm run build && node bench/planner-fit.mjs POINTS --check [--splits 20] [--seed 1] [--json FILE]
 *   npm run build && node bench/planner-fit.mjs POINTS --errors FILE   write estimate-errors.ts from such a FILE
 *
 * POINTS is a folder with points.json. Constants belong to an engine and a generation of hardware, never to a point: see
 * planner-priors.mjs. The fit is Gauss-Newton on the logarithms of estimate to published, with Huber's weights, each
 * constant held to its prior by a normal distribution of its logarithm, so that one which few points speak of stays near.
 * `--check` fits again on random halves, scored on the other half, and without each source, scored on that source.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { resolveHardware } from "../dist/machine/hardware/index.js";
import { FITTED } from "../dist/planner/cost/fitted-constants.js";
import { loadModel, planModel } from "../dist/planner/index.js";
import {
  categoryOf,
  estimate,
  heldOutRanges,
  isTimed,
  kindOf,
  pinned,
  readPoints,
  summary,
  unmeasuredRange,
} from "./planner-points.mjs";
import { PRIORS, USUAL_SPREAD } from "./planner-priors.mjs";

const { values, positionals } = flagsOf(
  import.meta.url,
  {
    allowPositionals: true,
    options: {
      check: { type: "boolean" },
      splits: { type: "string", default: "20" },
      seed: { type: "string", default: "1" },
      json: { type: "string" },
      errors: { type: "string" },
      iterations: { type: "string", default: "8" },
    },
  },
  (given) => given,
);

/** How far points scatter around a right model: the standard deviation of the logarithm of estimate to published. */
const POINT_SPREAD = 0.12;
/** Beyond this many of it a point's pull no longer grows. */
const HUBER = 2;
const STEP = 0.03;

const NAMES = Object.keys(PRIORS);
const priorOf = (name) => (typeof PRIORS[name] === "number" ? [PRIORS[name], USUAL_SPREAD] : PRIORS[name]);
const PRIOR = NAMES.map((name) => Math.log(priorOf(name)[0]));
const SPREAD = NAMES.map((name) => priorOf(name)[1]);
/** Fractions of a peak stay below it. */
const isFraction = (name) => /Bandwidth$|matmul|attention$|rouped$|train(?!Coll|Routed|Bias)/i.test(name);
const LARGEST = NAMES.map((name) => (isFraction(name) ? Math.log(0.97) : Number.POSITIVE_INFINITY));
// What is no longer fitted must not stand in the way of what is.
for (const name of Object.keys(FITTED)) if (!(name in PRIORS)) delete FITTED[name];

const constantsOf = (theta) => Object.fromEntries(NAMES.map((name, at) => [name, Math.exp(theta[at])]));

function residual(item, constants) {
  const { value } = estimate(planModel, item, constants);
  return typeof value === "number" && value > 0 ? Math.log(value / item.point.published) : 0;
}

/** Indexes of the constants that an estimate looks at. */
function touched(item, constants) {
  const seen = new Set();
  const watched = new Proxy(constants, {
    get(target, name) {
      if (name in target) seen.add(name);
      return target[name];
    },
  });
  residual(item, watched);
  return NAMES.flatMap((name, at) => (seen.has(name) ? [at] : []));
}

function jacobian(items, theta, base) {
  return items.map((item, row) => {
    const slopes = new Map();
    for (const at of item.touched) {
      const moved = [...theta];
      moved[at] += STEP;
      const slope = (residual(item, constantsOf(moved)) - base[row]) / STEP;
      if (slope !== 0) slopes.set(at, slope);
    }
    return slopes;
  });
}

/** Solves the symmetric positive definite system a x = b by Cholesky's decomposition. */
function solve(a, b) {
  const n = b.length;
  const l = a.map((row) => [...row]);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = l[i][j];
      for (let k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
      l[i][j] = i === j ? Math.sqrt(sum) : sum / l[j][j];
    }
  }
  const y = [];
  for (let i = 0; i < n; i++) y[i] = (b[i] - l[i].slice(0, i).reduce((sum, own, k) => sum + own * y[k], 0)) / l[i][i];
  const x = [];
  for (let i = n - 1; i >= 0; i--) {
    let sum = y[i];
    for (let k = i + 1; k < n; k++) sum -= l[k][i] * x[k];
    x[i] = sum / l[i][i];
  }
  return x;
}

const huber = (z) => (Math.abs(z) < HUBER ? z * z : HUBER * (2 * Math.abs(z) - HUBER));
function lossOf(residuals, theta) {
  const points = residuals.reduce((sum, own) => sum + huber(own / POINT_SPREAD), 0);
  return theta.reduce((sum, own, at) => sum + ((own - PRIOR[at]) / SPREAD[at]) ** 2, points);
}

/** Fits on `items` from `start`. `slopes` of an earlier fit save the first Jacobians, which cost most. */
function fit(items, start, { iterations, slopesOf }) {
  let theta = start;
  let residuals = items.map((item) => residual(item, constantsOf(theta)));
  let loss = lossOf(residuals, theta);
  let slopes = slopesOf === undefined ? undefined : items.map(slopesOf);
  for (let round = 0; round < iterations; round++) {
    if (slopes === undefined || (slopesOf !== undefined && round === 3)) slopes = jacobian(items, theta, residuals);
    const a = NAMES.map((_, i) => NAMES.map((__, j) => (i === j ? 1 / SPREAD[i] ** 2 : 0)));
    const b = NAMES.map((_, i) => (PRIOR[i] - theta[i]) / SPREAD[i] ** 2);
    for (const [row, own] of slopes.entries()) {
      const z = Math.abs(residuals[row] / POINT_SPREAD);
      const weight = (z < HUBER ? 1 : HUBER / z) / POINT_SPREAD ** 2;
      for (const [i, x] of own) {
        b[i] -= weight * x * residuals[row];
        for (const [j, y] of own) a[i][j] += weight * x * y;
      }
    }
    const move = solve(a, b);
    let moved = false;
    for (let share = 1; share > 0.1; share /= 2.5) {
      const tried = theta.map((own, at) =>
        Math.min(LARGEST[at], own + Math.max(-0.5, Math.min(0.5, share * move[at]))),
      );
      const next = items.map((item) => residual(item, constantsOf(tried)));
      const nextLoss = lossOf(next, tried);
      if (nextLoss < loss - 1e-3) {
        [theta, residuals, loss, moved] = [tried, next, nextLoss, true];
        break;
      }
    }
    if (!moved && (slopesOf === undefined || round >= 3)) break;
    if (!moved) round = Math.max(round, 2);
    if (slopesOf === undefined) slopes = undefined;
  }
  return { theta, residuals, loss, slopes: slopes ?? jacobian(items, theta, residuals) };
}

/** A random number generator of 32 bits (mulberry32), for splits that can be repeated. */
function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const shortSource = ({ source }) => source.slice(0, 60);
const said = ({ n, mean, median }) =>
  `${n} points, mean ${mean.toFixed(2)}, median error ${(median * 100).toFixed(1)} %`;
const say = (text) => process.stderr.write(`${text}\n`);

function byCategory(rows) {
  const groups = new Map();
  for (const { category, ratio } of rows) groups.set(category, [...(groups.get(category) ?? []), ratio]);
  return [...groups].sort(([x], [y]) => x.localeCompare(y));
}

function writeErrors({ rows, left }) {
  const lines = heldOutRanges(rows).map(({ kind, low, high, points, generations }) => {
    const name = /^\w+$/.test(kind) ? kind : JSON.stringify(kind);
    const list = generations.map((own) => JSON.stringify(own)).join(", ");
    return `  ${name}: {\n    low: ${low},\n    high: ${high},\n    points: ${points},\n    generations: [${list}],\n  },`;
  });
  const unmeasured = unmeasuredRange(left);
  writeFileSync(
    new URL("../src/planner/cost/estimate-errors.ts", import.meta.url),
    `/**
 * Written by bench/planner-fit.mjs; do not edit. Ratios of estimate to published speed by engine and what is estimated, of
 * points that the constants were not fitted to: the ends of the range that holds 86 % of them, how many points, and of which
 * generations of hardware.
 */
export interface EstimateErrors {
  readonly low: number;
  readonly high: number;
  readonly points: number;
  readonly generations: readonly string[];
}

export const ESTIMATE_ERRORS: Readonly<Record<string, EstimateErrors>> = {
${lines.join("\n")}
};

/** The same of ${unmeasured.points} points on hardware that no other source speaks of, estimated without their source. */
export const UNMEASURED_ERRORS = { low: ${unmeasured.low}, high: ${unmeasured.high} } as const;
`,
  );
}

async function main() {
  if (values.errors !== undefined) {
    writeErrors(JSON.parse(readFileSync(values.errors, "utf8")));
    return;
  }
  const all = await readPoints(positionals[0] ?? "../shared/conformance/planner", { loadModel, resolveHardware });
  const items = [];
  let theta = NAMES.map((name, at) => Math.min(LARGEST[at], Math.log(FITTED[name] ?? Math.exp(PRIOR[at]))));
  for (const item of all) {
    if (!isTimed(item.point)) continue;
    const { value, plan } = estimate(planModel, item);
    if (typeof value !== "number") continue;
    // What memory lets in does not depend on the constants: batch and layout of the first plan stand.
    const own = {
      ...pinned(item, plan),
      category: categoryOf(item.point),
      kind: kindOf(plan),
      generation: plan.workload.generation,
    };
    items.push({ ...own, touched: touched(own, constantsOf(theta)) });
  }
  const iterations = Number(values.iterations);
  const whole = fit(items, theta, { iterations });
  theta = whole.theta;
  say(`all: loss ${whole.loss.toFixed(1)}, ${said(summary(whole.residuals.map(Math.exp)))}`);
  const constants = constantsOf(theta);
  if (values.check !== true) {
    for (const [at, name] of NAMES.entries()) {
      const away = (theta[at] - PRIOR[at]) / SPREAD[at];
      if (Math.abs(away) > 1)
        say(`  ${name} ${constants[name].toPrecision(3)}, ${away.toFixed(1)} spreads from its prior`);
    }
    const lines = NAMES.map(
      (name) => `  ${/^\w+$/.test(name) ? name : JSON.stringify(name)}: ${Number(constants[name].toPrecision(3))},`,
    );
    writeFileSync(
      new URL("../src/planner/cost/fitted-constants.ts", import.meta.url),
      `/** Written by bench/planner-fit.mjs; do not edit. Names as profiles.ts explains. */\nexport const FITTED: Readonly<Record<string, number>> = {\n${lines.join("\n")}\n};\n`,
    );
    for (const [category, ratios] of byCategory(
      items.map(({ category: name }, at) => ({ category: name, ratio: Math.exp(whole.residuals[at]) })),
    ))
      say(`  ${category}: ${said(summary(ratios))}`);
    return;
  }
  const rows = new Map(items.map((item, at) => [item, whole.slopes[at]]));
  const slopesOf = (item) => rows.get(item);
  const heldOut = (left, rest) => {
    const { theta: own } = fit(rest, theta, { iterations: 6, slopesOf });
    const without = constantsOf(own);
    return left.map((item) => {
      const ratio = Math.exp(residual(item, without));
      const isTime = /ttft|latency/.test(item.point.metric);
      const { category, kind, generation, point } = item;
      return {
        id: point.id,
        source: shortSource(point),
        category,
        kind,
        generation,
        ratio,
        speed: isTime ? 1 / ratio : ratio,
      };
    });
  };
  const random = randomOf(Number(values.seed));
  const halves = [];
  for (let split = 0; split < Number(values.splits); split++) {
    const order = items.map((item) => [random(), item]).sort(([x], [y]) => x - y);
    const half = order.length >> 1;
    const [rest, left] = [order.slice(half), order.slice(0, half)].map((part) => part.map(([, item]) => item));
    halves.push(...heldOut(left, rest).map((row) => ({ ...row, split })));
  }
  say(`random halves, ${values.splits} splits`);
  const table = [];
  for (const [category, ratios] of byCategory(halves)) {
    const bySplit = new Map();
    for (const row of halves)
      if (row.category === category) bySplit.set(row.split, [...(bySplit.get(row.split) ?? []), row.ratio]);
    const each = [...bySplit.values()].map(summary);
    const range = (pick) => {
      const sorted = each.map(pick).sort((x, y) => x - y);
      return [sorted[Math.floor(0.1 * (sorted.length - 1))], sorted[Math.ceil(0.9 * (sorted.length - 1))]];
    };
    const own = {
      category,
      ...summary(ratios),
      means: range(({ mean }) => mean),
      medians: range(({ median }) => median),
    };
    own.points = items.filter((item) => item.category === category).length;
    table.push(own);
    const percent = (value) => `${(value * 100).toFixed(0)}`;
    say(
      `  ${category}: ${own.points} points, mean ${own.mean.toFixed(2)} (${own.means.map((value) => value.toFixed(2)).join(" to ")}), median error ${percent(own.median)} % (${own.medians.map(percent).join(" to ")})`,
    );
  }
  const sources = [];
  const alone = [];
  say("without each source");
  for (const source of new Set(items.map(({ point }) => shortSource(point)))) {
    const left = items.filter(({ point }) => shortSource(point) === source);
    const out = heldOut(
      left,
      items.filter(({ point }) => shortSource(point) !== source),
    );
    alone.push(...out);
    for (const [category, ratios] of byCategory(out)) {
      sources.push({ source, category, ...summary(ratios) });
      say(`  ${source} | ${category}: ${said(summary(ratios))}`);
    }
  }
  if (values.json !== undefined)
    writeFileSync(values.json, JSON.stringify({ rows: halves, left: alone, table, sources }));
}

await main();
