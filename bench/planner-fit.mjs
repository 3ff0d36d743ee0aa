/**
 * Fits the constants of the planner's model of time to published measurements, and writes src/planner/cost/fitted-constants.ts.
 *
 *   npm run build && node bench/planner-fit.mjs POINTS [--check] [--only SET]
 *
 * POINTS is a folder with points.json. Constants belong to an engine and a generation of hardware, never to a point: see
 * SETS. Each starts at its prior (a data sheet, a paper, or what was measured here) and is held to it by a penalty, so that
 * a constant which few points speak of stays near it. The loss of a point is Huber's of the logarithm of estimate to
 * published. `--check` fits every set again without each of its sources, and says how well the left-out source is met.
 */
import { writeFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { resolveHardware } from "../dist/machine/hardware/index.js";
import { FITTED } from "../dist/planner/cost/fitted-constants.js";
import { loadModel, planModel } from "../dist/planner/index.js";
import { categoryOf, estimate, readPoints, summary } from "./planner-points.mjs";

const { values, positionals } = flagsOf(
  import.meta.url,
  { allowPositionals: true, options: { check: { type: "boolean" }, only: { type: "string" } } },
  (given) => given,
);

/** For each set: the groups of points that speak of its constants, and the constants with their priors. */
const SETS = {
  "llama.cpp": {
    groups: /gguf|llama\.?cpp|spark/,
    constants: {
      "llama.cpp/hopper-pcie/memoryBandwidth": 0.65,
      "llama.cpp/hopper-pcie/packedBandwidth": 0.8,
      "llama.cpp/ampere/memoryBandwidth": 0.65,
      "llama.cpp/ampere/packedBandwidth": 0.8,
      "llama.cpp/ada/memoryBandwidth": 0.85,
      "llama.cpp/ada/packedBandwidth": 0.9,
      "llama.cpp/ampere-rtx/memoryBandwidth": 0.85,
      "llama.cpp/ampere-rtx/packedBandwidth": 0.9,
      "llama.cpp/apple/memoryBandwidth": 0.8,
      "llama.cpp/apple/packedBandwidth": 0.9,
      "llama.cpp/spark/memoryBandwidth": 0.85,
      "llama.cpp/spark/packedBandwidth": 0.9,
      "llama.cpp/spark/kvBandwidth": 0.6,
      "llama.cpp/spark/matmulPacked": 0.35,
      "llama.cpp/spark/expertOverheadUs": 20,
      "llama.cpp/spark/grouped": 0.4,
      "llama.cpp/layerOverheadUs": 30,
      "llama.cpp/apple/layerOverheadUs": 60,
      "llama.cpp/hopper-pcie/matmul16": 0.25,
      "llama.cpp/ampere/matmul16": 0.4,
      "llama.cpp/ada/matmul16": 0.45,
      "llama.cpp/ampere-rtx/matmul16": 0.6,
      "llama.cpp/hopper-pcie/matmulPacked": 0.2,
      "llama.cpp/ampere/matmulPacked": 0.35,
      "llama.cpp/ada/matmulPacked": 0.35,
      "llama.cpp/ampere-rtx/matmulPacked": 0.5,
      "llama.cpp/apple/matmul16": 0.7,
      "llama.cpp/apple/matmulPacked": 0.6,
    },
  },
  vllm: {
    groups: /^decode-1gpu-vllm|^decode-multi-tp|mi300x/,
    engine: "vllm",
    constants: {
      "vllm/stepOverheadUs": 1500,
      "vllm/ampere/packedBandwidth": 0.85,
      "vllm/ampere/layerOverheadUs": 25,
      "vllm/ampere/memoryBandwidth": 0.82,
      "vllm/cdna3/stepOverheadUs": 500,
      "vllm/cdna3/layerOverheadUs": 40,
      "vllm/cdna3/memoryBandwidth": 0.65,
      "vllm/cdna3/kvBandwidth": 0.4,
      "vllm/cdna3/matmul8": 0.4,
      "vllm/cdna3/sequenceOverheadUs": 20,
      "vllm/cdna3/collectives": 1,
      "vllm/ampere/kvBandwidth": 0.6,
    },
  },
  pytorch: {
    groups: /^decode-1gpu-torch|^decode-multi-tp/,
    engine: "pytorch",
    constants: {
      "pytorch/ampere/layerOverheadUs": 25,
      "pytorch/ampere/memoryBandwidth": 0.8,
      "pytorch/ampere/packedBandwidth": 0.85,
      "pytorch/ampere/collectives": 0.7,
      "pytorch/cdna2/layerOverheadUs": 60,
      "pytorch/cdna2/memoryBandwidth": 0.6,
      "pytorch/ampere/expertOverheadUs": 30,
    },
  },
  "tensorrt-llm": {
    groups: /^serving-trtllm-(?!moe)|^serving-static|^first token, (2048|128)|^first-token/,
    constants: {
      "tensorrt-llm/layerOverheadUs": 20,
      "tensorrt-llm/stepOverheadUs": 1000,
      "tensorrt-llm/sequenceOverheadUs": 4,
      "tensorrt-llm/collectives": 0.8,
      "tensorrt-llm/fillRows": 48,
      "tensorrt-llm/hopper/matmul8": 0.6,
      "tensorrt-llm/hopper/matmul16": 0.65,
      "tensorrt-llm/hopper/attention": 0.45,
      "tensorrt-llm/hopper/kvBandwidth": 0.72,
      "tensorrt-llm/ampere/matmul16": 0.75,
      "tensorrt-llm/ampere/kvBandwidth": 0.6,
      "tensorrt-llm/ampere/attention": 0.5,
      "tensorrt-llm/ada/matmul8": 0.65,
      "tensorrt-llm/ada/attention": 0.5,
      "tensorrt-llm/ada/kvBandwidth": 0.7,
      "tensorrt-llm/ada/collectives": 1.2,
      "tensorrt-llm/blackwell/matmul4": 0.5,
      "tensorrt-llm/blackwell/kvBandwidth": 0.65,
      "tensorrt-llm/blackwell/attention": 0.35,
      "tensorrt-llm/blackwell-rtx/matmul4": 0.5,
      "tensorrt-llm/blackwell-rtx/kvBandwidth": 0.7,
      "tensorrt-llm/blackwell-rtx/attention": 0.4,
    },
  },
  mixtures: {
    groups: /^serving-trtllm-moe/,
    constants: {
      "tensorrt-llm/grouped": 0.5,
      "tensorrt-llm/groupedFillRows": 24,
      "tensorrt-llm/imbalance": 0.4,
      "tensorrt-llm/expertOverheadUs": 60,
      "tensorrt-llm/exchanges": 1.5,
      "tensorrt-llm/hopper/matmulPacked": 0.35,
      "tensorrt-llm/hopper/expertOverheadUs": 60,
    },
  },
  gaudi: {
    groups: /gaudi|Gaudi/,
    constants: {
      "gaudi2/matmul8": 0.75,
      "gaudi3/matmul8": 0.6,
      "gaudi2/kvBandwidth": 0.7,
      "gaudi3/kvBandwidth": 0.6,
      "gaudi2/attention": 0.5,
      "gaudi3/attention": 0.35,
      "gaudi2/collectives": 1,
      "gaudi3/collectives": 1,
      "gaudi2/memoryBandwidth": 0.8,
      "gaudi3/memoryBandwidth": 0.75,
    },
  },
  training: {
    groups: /^train-/,
    constants: {
      "ampere/train16": 0.65,
      "hopper/train16": 0.6,
      "blackwell/train16": 0.6,
      "hopper/train8": 0.42,
      "blackwell/train8": 0.4,
      trainAttention: 0.3,
      "hopper/trainAttention": 0.3,
      trainGrouped: 0.4,
      "hopper/trainGrouped": 0.4,
      "blackwell/trainGrouped": 0.4,
      trainCollectives: 0.4,
      "tpu/train16": 0.8,
      "neuron/train16": 0.5,
    },
  },
};

const HOLD = 0.02;
const huber = (x) => (Math.abs(x) < 0.35 ? x * x : 0.7 * Math.abs(x) - 0.1225);

function lossOf(points, constants, priors) {
  let loss = 0;
  for (const item of points) {
    const { value } = estimate(planModel, item, constants);
    loss += typeof value === "number" && value > 0 ? huber(Math.log(value / item.point.published)) : 0;
  }
  for (const [name, prior] of Object.entries(priors)) loss += HOLD * Math.log(constants[name] / prior) ** 2;
  return loss;
}

/** Fractions of a peak stay below it. */
const isFraction = (name) => /Bandwidth$|matmul|attention$|grouped$|train(?!Coll)/i.test(name);

function fit(points, priors, fixed) {
  let constants = { ...fixed, ...priors };
  const concerned = (name) => {
    const parts = name.split("/");
    return parts.length < 3 ? points : points.filter((item) => item.touched?.has(`${parts[0]}/${parts[1]}`) ?? true);
  };
  for (let step = 1.35; step > 1.02; step = 1 + (step - 1) / 1.6) {
    for (let round = 0; round < 3; round++) {
      let moved = false;
      for (const name of Object.keys(priors)) {
        const own = concerned(name);
        let best = lossOf(own, constants, priors);
        for (const factor of [step, 1 / step]) {
          const value = constants[name] * factor;
          if (isFraction(name) && value > 0.97) continue;
          const tried = { ...constants, [name]: value };
          const loss = lossOf(own, tried, priors);
          if (loss < best - 1e-6) {
            best = loss;
            constants = tried;
            moved = true;
            break;
          }
        }
      }
      if (!moved) break;
    }
  }
  return constants;
}

function write(constants) {
  const lines = Object.entries(constants).map(
    ([name, value]) => `  ${/^\w+$/.test(name) ? name : JSON.stringify(name)}: ${value},`,
  );
  writeFileSync(
    new URL("../src/planner/cost/fitted-constants.ts", import.meta.url),
    `/** Written by bench/planner-fit.mjs; do not edit. Names as profiles.ts explains. */\nexport const FITTED: Readonly<Record<string, number>> = {\n${lines.join("\n")}\n};\n`,
  );
}

const all = await readPoints(positionals[0] ?? "../shared/conformance/planner", { loadModel, resolveHardware });
// What memory lets in does not depend on the constants: the batch and layout of the first plan stand.
const usable = [];
for (const item of all) {
  const { point } = item;
  if (["fits", "layout", "model-size"].includes(point.category) || /^(mem|weights|kv|states|avail)/.test(point.metric))
    continue;
  if (/outlier|serving-inexpressible/.test(point.group)) continue;
  const { value, plan } = estimate(planModel, item);
  if (typeof value !== "number") continue;
  usable.push({ ...item, category: categoryOf(point), request: { ...item.request, batch: plan.workload.batch } });
}

/** Sets that are not fitted now keep their values. */
const fitted = { ...FITTED };
const report = [];
for (const [set, { groups, engine, constants: priors }] of Object.entries(SETS)) {
  const points = usable.filter(
    (item) => groups.test(item.category) && (engine === undefined || item.request.engine === engine),
  );
  if (values.only !== undefined && values.only !== set) continue;
  const others = Object.fromEntries(Object.entries(fitted).filter(([name]) => !(name in priors)));
  const result = fit(points, priors, others);
  Object.assign(
    fitted,
    Object.fromEntries(Object.keys(priors).map((name) => [name, Number(result[name].toPrecision(3))])),
  );
  const ratios = points.map((item) => estimate(planModel, item, fitted).value / item.point.published);
  const { n, mean, median } = summary(ratios);
  write(fitted);
  process.stderr.write(`${set}: ${n} points, mean ${mean.toFixed(2)}, median error ${(median * 100).toFixed(1)} %\n`);
  if (values.check !== true) continue;
  for (const source of new Set(points.map((item) => item.point.source.slice(0, 60)))) {
    const left = points.filter((item) => item.point.source.slice(0, 60) === source);
    const rest = points.filter((item) => item.point.source.slice(0, 60) !== source);
    if (rest.length === 0) continue;
    const without = fit(rest, priors, others);
    const out = summary(left.map((item) => estimate(planModel, item, without).value / item.point.published));
    report.push({ set, source, ...out });
    process.stderr.write(
      `  without ${source}: ${out.n} points, mean ${out.mean.toFixed(2)}, median error ${(out.median * 100).toFixed(1)} %\n`,
    );
  }
}
if (values.check === true) process.stdout.write(`${JSON.stringify(report, null, 1)}\n`);
