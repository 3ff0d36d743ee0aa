/**
 * How close the simulator comes to collectives that others measured: runs every published curve through `chorale sim` and
 * prints simulated over measured time by class of machine and of size, the median error, the share within 1.5x, and how
 * often the printed uncertainty holds the measured value.
 *   npm run build && node bench/simulator-accuracy.mjs --curves curves.json [--as-given] [--bin bin/chorale.mjs] [--points] [--only PART]
 * `--only` takes the curves whose id holds PART. The last lines count the points, and name those that got no time.
 * `--as-given` runs the command that a curve brings with it; without it the curve's description (system, network, number of
 * processes, NVLS) is put into flags by the rules below, which look at descriptions and never at times.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { commandOf, givenCommands } from "./simulator-accuracy/describe.mjs";
import { scoreTable, summarise } from "./simulator-accuracy/score.mjs";

const options = {
  curves: { type: "string" },
  bin: { type: "string" },
  "as-given": { type: "boolean" },
  points: { type: "boolean" },
  only: { type: "string" },
};
const flags = flagsOf(import.meta.url, { options }, ({ values }) => values);
if (flags.curves === undefined)
  throw new Error("--curves FILE is needed: a JSON document {curves: [{id, class, op, rows}]}");
const { curves } = JSON.parse(readFileSync(flags.curves, "utf8"));
const bin = flags.bin ?? new URL("../bin/chorale.mjs", import.meta.url).pathname;

function run(args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [bin, "sim", ...args, "--json"], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
  });
  if (status !== 0) return { refusal: stderr.trim().split("\n").at(-1) };
  const document = JSON.parse(stdout);
  return { document };
}

const chosen = curves.filter(({ id }) => flags.only === undefined || id.includes(flags.only));
if (chosen.length === 0) throw new Error(`no curve's id holds ${flags.only}: ${curves.map(({ id }) => id).join(", ")}`);
const points = [];
const refusals = [];
const missing = [];
for (const curve of chosen) {
  const commands = flags["as-given"] ? givenCommands(curve) : commandOf(curve);
  const best = new Map();
  for (const { args, model } of commands) {
    const { document, refusal } = run(args);
    if (refusal !== undefined) {
      refusals.push(`${curve.id}: ${refusal}`);
      continue;
    }
    const rows = model === "nccl" ? document.nccl : document.rows;
    for (const row of rows ?? []) {
      const known = best.get(row.sizeBytes);
      if (known !== undefined && known.timeUs <= row.timeUs) continue;
      best.set(row.sizeBytes, { timeUs: row.timeUs, uncertainty: row.uncertainty ?? document.uncertainty });
    }
  }
  for (const { bytes, us } of curve.rows) {
    const simulated = best.get(bytes);
    if (simulated === undefined) missing.push(`${curve.id} ${bytes}`);
    else points.push({ id: curve.id, class: curve.class, bytes, us, source: curve.source, ...simulated });
  }
}
if (flags.points)
  for (const { id, bytes, us, timeUs, uncertainty } of points)
    console.log(`${id} ${bytes} ${us} ${timeUs.toFixed(1)} ${(timeUs / us).toFixed(2)} ${uncertainty}`);
console.log(scoreTable(points));
console.log(summarise(points));
for (const refusal of refusals) console.log(`refused: ${refusal}`);
console.log(`${points.length} of the ${points.length + missing.length} points of ${chosen.length} curves`);
if (missing.length > 0) console.log(`without a time: ${missing.join(", ")}`);
