/**
 * Writes plans of two ranks with what the CPU executor makes of them, for run.mjs on a host with two GPUs: random plans that
 * the verifier passes, and MSCCL++'s own programs (a file of its conformance data). Node 24 runs it as it stands:
 *   node bench/device-programs/prepare.ts FILE.json.gz [--random 500] [--seed 1] [--programs programs.jsonl.gz]
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { gunzipSync, gzipSync } from "node:zlib";
import { readMscclpp } from "../../src/authoring/interchange/read-mscclpp-json.ts";
import { type ExecutionPlan, placeOf, shapeOf } from "../../src/authoring/plan/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { isShapeless } from "../../test/oracle/judge.ts";
import { Random } from "../../test/oracle/random.ts";
import { randomPlan } from "../../test/oracle/random-plans.ts";
import { LocalRanks } from "../../test/support/local-ranks.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    random: { type: "string", default: "500" },
    seed: { type: "string", default: "1" },
    programs: { type: "string" },
  },
});
const [file = "device-programs.json.gz"] = positionals;
const DTYPES = ["u32", "f32"] as const;

/** A rank's memory: one region, or two where input and output lie apart. Places in elements. */
interface Layout {
  readonly sizes: readonly number[];
  readonly input: readonly [region: number, at: number, count: number];
  readonly output: readonly [region: number, at: number, count: number];
  /** In place: which buffer the one region is. */
  readonly shared?: "input" | "output";
}

function layoutOf(plan: ExecutionPlan, rank: number, count: number): Layout {
  const own = plan.ranks[rank]!;
  const { exact } = shapeOf(plan);
  const elements = (b: { chunks: number; segments: number }) =>
    b.chunks === 0 ? 0 : count * (exact ? b.chunks : b.segments);
  const [ins, outs] = [elements(own.input), elements(own.output)];
  const at = (buffer: "input" | "output") =>
    plan.collective.inPlace && own[buffer].chunks > 0 ? placeOf(plan, rank, buffer, 0) : undefined;
  const [inAt, outAt] = [at("input"), at("output")];
  const perChunk = (b: { chunks: number; segments: number }) => (exact ? count : (count * b.segments) / b.chunks);
  if (inAt?.buffer === "output") {
    return {
      sizes: [outs],
      input: [0, Math.round(inAt.index * perChunk(own.output)), ins],
      output: [0, 0, outs],
      shared: "output",
    };
  }
  if (outAt?.buffer === "input") {
    return {
      sizes: [ins],
      input: [0, 0, ins],
      output: [0, Math.round(outAt.index * perChunk(own.input)), outs],
      shared: "input",
    };
  }
  return { sizes: [ins, outs], input: [0, 0, ins], output: [1, 0, outs] };
}

interface Case {
  readonly dtype: string;
  readonly count: number;
  readonly layouts: readonly Layout[];
  /** By rank, then region. */
  readonly before: readonly (readonly number[][])[];
  readonly after: readonly (readonly number[][])[];
}

/** Runs the plan on the CPU executor. @returns undefined where it does not end */
function onCpu(plan: ExecutionPlan, dtype: (typeof DTYPES)[number], count: number, seed: number): Case | undefined {
  const local = new LocalRanks(plan, { dtype, seed });
  const random = new Random(seed);
  const layouts = plan.ranks.map(({ rank }) => layoutOf(plan, rank, count));
  const before = layouts.map(({ sizes }) =>
    // Floats are small whole numbers: sums of them are exact, in whatever order.
    sizes.map((size) =>
      Array.from({ length: size }, () => (dtype === "f32" ? random.below(9) - 4 : random.below(997))),
    ),
  );
  const places = layouts.map(({ sizes }) => sizes.map((size) => local.memory.allocate(4 * size)));
  layouts.forEach(({ sizes }, rank) => {
    sizes.forEach((size, region) => {
      (local.view(dtype, places[rank]![region]!, 4 * size) as Uint32Array).set(before[rank]![region]!);
    });
  });
  const buffers = layouts.map(({ input, output }, rank) => ({
    input: places[rank]![input[0]]! + 4 * input[1],
    inputBytes: 4 * input[2],
    output: places[rank]![output[0]]! + 4 * output[1],
    outputBytes: 4 * output[2],
  }));
  if (local.launch(4 * count, buffers) !== undefined) return undefined;
  const after = layouts.map(({ sizes }, rank) =>
    sizes.map((size, region) => Array.from(local.view(dtype, places[rank]![region]!, 4 * size) as Uint32Array)),
  );
  return { dtype, count, layouts, before, after };
}

const jobs: { name: string; plan: ExecutionPlan; cases: Case[] }[] = [];
const left: Record<string, number> = {};
const leaveOut = (why: string) => {
  left[why] = (left[why] ?? 0) + 1;
};

let seed = Number(values.seed) * 1_000_000;
for (let made = 0; made < Number(values.random); seed++) {
  const plan = randomPlan(seed);
  if (plan.ranks.length !== 2) continue;
  const verdict = verifyPlan(plan, { lint: false });
  if (!verdict.ok || isShapeless(verdict)) continue;
  const cases = DTYPES.flatMap((dtype) => [37, 5].flatMap((count) => onCpu(plan, dtype, count, seed) ?? []));
  if (cases.length < 4) throw new Error(`seed ${seed} does not end on the CPU`);
  jobs.push({ name: `random ${seed}`, plan, cases });
  made++;
}
if (values.programs !== undefined) {
  for (const line of gunzipSync(readFileSync(values.programs)).toString().trim().split("\n")) {
    const { id, plan_text: text } = JSON.parse(line) as { id: string; plan_text: string };
    const plan = readMscclpp(text, id);
    if (plan.ranks.length !== 2) {
      leaveOut(`of ${plan.ranks.length} ranks`);
      continue;
    }
    if (plan.ranks.some(({ channels }) => channels.switch.length > 0)) {
      leaveOut("needs a switch that multicasts");
      continue;
    }
    const verdict = verifyPlan(plan, { lint: false });
    if (!verdict.ok || isShapeless(verdict)) {
      leaveOut("does not pass the verifier");
      continue;
    }
    const { minMessageSizeBytes: least, maxMessageSizeBytes: most } = plan.options;
    const isFitting = (count: number) =>
      plan.ranks.every(({ rank }) => {
        const bytes = 4 * Math.max(...layoutOf(plan, rank, count).sizes);
        return bytes >= least && bytes <= most;
      });
    const counts = [96, 384, 3072, 16, 4, 1, 65_536, 1 << 18, 1 << 20, 1 << 22].filter(isFitting).slice(0, 1);
    const cases = DTYPES.flatMap((dtype) => counts.flatMap((count) => onCpu(plan, dtype, count, 7) ?? []));
    if (cases.length === 0) leaveOut("has no size that is tried");
    else jobs.push({ name: id, plan, cases });
  }
}
// Whole numbers beyond 2^53 as texts that end in n.
const bigints = (_: string, value: unknown) => (typeof value === "bigint" ? `${value}n` : value);
writeFileSync(file, gzipSync(JSON.stringify(jobs, bigints)));
console.log(`${jobs.length} plans in ${file}`, left);
