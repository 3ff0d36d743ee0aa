/**
 * Published measurements as requests to the planner: reads points.json, takes each point's command apart, adds what its
 * source says of engine and training (micro-batch, checkpointing, precision), plans it and gives the ratio of estimate to
 * published. For bench/planner-fit.mjs and bench/planner-accuracy.mjs.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Words of a command line, with quotes. */
export function words(command) {
  return [...command.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2]);
}

/** The engine that a point was measured with, as its source says. */
export function engineOf({ source, group, command }) {
  if (/gaudi/.test(command)) return undefined;
  if (/TensorRT-LLM/.test(source)) return "tensorrt-llm";
  if (/QwenLM.*vLLM|vllm/i.test(source)) return "vllm";
  if (/SGLang/.test(source)) return "sglang";
  if (/gpt-fast/.test(source)) return "pytorch";
  if (/llama-bench|llama\.cpp|dgx-spark\.md/.test(source) || /gguf|llamacpp|spark/.test(group)) return "llama.cpp";
  return undefined;
}

/** What a training point's settings and source say beside its command. */
export function trainingOf({ settings, source, note, id, command }) {
  const text = `${settings} ${note}`;
  const more = {};
  const micro = /micro-batch(?: size)? (\d+)/.exec(text)?.[1] ?? /local batch (\d+)/.exec(`${text} ${source}`)?.[1];
  const perDevice = /per-device batch (\d+)/.exec(source)?.[1];
  if (micro !== undefined) more.microBatch = Number(micro);
  else if (perDevice !== undefined) more.microBatch = Number(perDevice);
  else more.microBatch = 1;
  const kept = /(none|full|selective) checkpointing/.exec(settings)?.[1];
  if (kept !== undefined) more.checkpointing = kept;
  else if (/full AC|remat full/.test(source)) more.checkpointing = "full";
  else if (/selective AC|table 1/.test(source)) more.checkpointing = "selective";
  else if (/remat minimal/.test(source)) more.checkpointing = "selective";
  if (/fp8|float8/i.test(`${source} ${group(note)} ${id}`) && !/BF16|bf16, selective|A100/.test(source))
    more.trainPrecision = "fp8";
  if (/interleaved schedule/.test(note)) more.pipelineSchedule = "interleaved";
  if (/\b1F1B\b/.test(source)) more.pipelineSchedule = "1f1b";
  if (/q,v|q and v/.test(`${source} ${note}`)) more.loraTargets = "qv";
  if (/unsloth/.test(source) || /8-bit optimizer/.test(note)) more.optimizer = "adamw-8bit";
  if (/8-bit paged optimizer/.test(source)) {
    // torchtune's recipe steps in the backward pass, which leaves nothing to accumulate.
    more.optimizer = "paged-adamw-8bit";
    more.batch = more.microBatch;
  }
  if (/CPU offload/.test(source)) more.offload = "all";
  if (/DeepSpeed/.test(source)) more.gradients = "f32";
  if (/262144|beyond the model/.test(command + note)) more.forceContext = true;
  return more;
}
const group = (note) => (/fp8 training/.test(note) ? "fp8" : "");

const FLAGS = {
  "--quant": ["quant", String],
  "--dtype": ["quant", String],
  "--kv": ["kv", String],
  "--context": ["contextTokens", Number],
  "--output": ["outputTokens", Number],
  "--batch": ["batch", Number],
  "--objective": ["objective", String],
  "--train": ["train", String],
  "--zero": ["zeroStage", Number],
  "--ranks": ["ranks", Number],
};

/** A point's model, hardware and request. */
export function requestOf(point) {
  const { command } = point;
  let model;
  let hardware;
  let request = {};
  const api = /^API planModel\((\{.*\})\)/.exec(command);
  if (api !== null) {
    const given = JSON.parse(api[1]);
    ({ model, hardware } = given);
    request = { ...given.options };
  } else {
    const [, , first, ...rest] = words(command);
    model = first;
    for (let at = 0; at < rest.length; at++) {
      if (rest[at] === "--hardware") hardware = rest[++at];
      else if (rest[at] === "--constrain") {
        request.constrain = Object.fromEntries(
          rest[++at].split(",").map((part) => [part.split("=")[0], Number(part.split("=")[1])]),
        );
      } else if (rest[at] in FLAGS) {
        const [name, read] = FLAGS[rest[at]];
        request[name] = read(rest[++at]);
      }
    }
  }
  if (request.train !== undefined) request = { ...request, ...trainingOf(point) };
  else {
    const engine = engineOf(point);
    if (engine !== undefined) request.engine = engine;
    // Its tables were made with -ub 2048.
    if (/dgx-spark\.md/.test(point.source)) request.prefillChunkTokens = 2048;
  }
  return { model, hardware, request };
}

const GIB = 2 ** 30;
/** The figure that a point's metric asks for, of the first plan. */
export function measureOf(metric, plan) {
  const { estimates: e, workload: w, memory, ranks, mesh } = plan;
  const fullest = ranks[memory.fullestRank];
  const items = fullest.memory.items;
  const noReserve = fullest.memory.totalBytes - (items.frameworkReserve ?? 0);
  switch (metric) {
    case "decode_user":
      return e.decodeTokensPerSecondPerUser;
    case "decode_total":
      return e.decodeTokensPerSecond;
    case "output_tps":
      return (w.batch * w.outputTokens * 1e3) / e.requestMs;
    case "output_tps_gpu":
      return (w.batch * w.outputTokens * 1e3) / e.requestMs / mesh.worldSize;
    case "total_tps":
      return (w.batch * w.contextTokens * 1e3) / e.requestMs;
    case "ttft_ms":
      return e.ttftMs;
    case "prefill_tps":
      return (w.batch * w.promptTokens * 1e3) / e.prefillMs;
    case "latency_s":
      return e.requestMs / 1e3;
    case "train_tps":
      return e.tokensPerSecond;
    case "train_tps_gpu":
      return e.tokensPerSecond / mesh.worldSize;
    case "train_mfu":
      return e.mfu;
    case "mem_noreserve_gib":
      return noReserve / GIB;
    case "mem_noreserve_gb":
      return noReserve / 1e9;
    case "mem_total_noreserve_gib":
      return (memory.totalBytes - ranks.length * (items.frameworkReserve ?? 0)) / GIB;
    case "weights_gib":
      return (items.weights ?? 0) / GIB;
    case "kv_gib":
      return (items.kvCache ?? 0) / GIB;
    case "avail_gib":
      return fullest.memory.availableBytes / GIB;
    case "states_gb":
      return (
        ["weights", "gradients", "optimizerStates", "masterWeights"].reduce(
          (sum, name) => sum + (items[name] ?? 0),
          0,
        ) / GIB
      );
    case "fits":
      return true;
    case "total parameters, billions":
      return plan.model.numParameters / 1e9;
    default:
      return undefined;
  }
}

/** Reads the points and prepares their models and inventories, once. */
export async function readPoints(folder, { loadModel, resolveHardware }) {
  const points = JSON.parse(readFileSync(join(folder, "points.json"), "utf8"));
  const [models, machines] = [new Map(), new Map()];
  const back = process.cwd();
  process.chdir(folder);
  try {
    const prepared = [];
    for (const point of points) {
      const { model, hardware, request } = requestOf(point);
      if (!models.has(model)) models.set(model, await loadModel(model).catch((error) => error));
      if (!machines.has(hardware)) machines.set(hardware, await resolveHardware(hardware).catch((error) => error));
      prepared.push({ point, request, model: models.get(model), inventory: machines.get(hardware) });
    }
    return prepared;
  } finally {
    process.chdir(back);
  }
}

/** Plans one point; gives its figure, or the error's text. */
export function estimate(planModel, { point, request, model, inventory }, constants) {
  if (model instanceof Error || inventory instanceof Error)
    return { error: String(model instanceof Error ? model : inventory) };
  try {
    const accelerators = { ...inventory, devices: inventory.devices.filter((device) => device.family !== "cpu") };
    const { plans, rejected } = planModel({
      ...request,
      model,
      inventory: accelerators,
      ...(constants === undefined ? {} : { constants }),
    });
    const [plan] = plans;
    if (plan === undefined)
      return { value: point.metric === "fits" ? false : undefined, error: rejected[0]?.reason ?? "nothing fits" };
    return { value: measureOf(point.metric, plan), plan };
  } catch (error) {
    return { error: String(error) };
  }
}

/** Whether a point is of a time that the constants can be fitted to. */
export function isTimed({ category, group: name, metric }) {
  if (["fits", "layout", "model-size", "device-memory"].includes(category)) return false;
  return !/^(mem|weights|kv|states|avail|total parameters)/.test(metric) && !/outlier|serving-inexpressible/.test(name);
}

/** The same point with the layout and batch of a plan fixed, so that planning it again judges one candidate. */
export function pinned(item, { workload, mesh }) {
  const { zeroStage, microBatch, checkpointing, batch } = workload;
  const training = { zeroStage, microBatch, checkpointing };
  return {
    ...item,
    request: {
      ...item.request,
      batch,
      constrain: mesh.axes,
      explainNothing: false,
      ...(workload.mode === "training" ? training : {}),
    },
  };
}

/** The kind of an estimate, as src/planner/cost/ranges.ts names it. */
export function kindOf({ estimates, workload }) {
  if (estimates.kind === "training") return "training";
  return `${workload.engine} ${workload.outputTokens <= 1 ? "prefill" : workload.batch >= 8 ? "serving" : "decode"}`;
}

/** Share of held-out estimates that a printed range is made to contain, and fewest points of a kind that speak for it alone. */
const INSIDE = 0.86;
const FEW_POINTS = 8;

function quantiles(speeds) {
  const sorted = [...speeds].sort((x, y) => x - y);
  const at = (share) => Number(sorted[Math.round(share * (sorted.length - 1))].toPrecision(3));
  return [at((1 - INSIDE) / 2), at((1 + INSIDE) / 2)];
}

/**
 * Ranges by kind of estimate from held-out rows of planner-fit.mjs's check. A kind of few points gets at least the range of
 * all. `share` is how many held-out estimates lie in the range that is made without their own point.
 */
export function heldOutRanges(rows) {
  const rangeOf = (kind, without) => {
    const others = rows.filter(({ id }) => id !== without);
    const own = others.filter((row) => row.kind === kind);
    const [allLow, allHigh] = quantiles(others.map(({ speed }) => speed));
    if (own.length === 0) return [allLow, allHigh];
    const [low, high] = quantiles(own.map(({ speed }) => speed));
    const isFew = new Set(own.map(({ id }) => id)).size < FEW_POINTS;
    return isFew ? [Math.min(low, allLow), Math.max(high, allHigh)] : [low, high];
  };
  return [...new Set(rows.map(({ kind }) => kind))].sort().map((kind) => {
    const generations = [...new Set(rows.flatMap((row) => (row.kind === kind ? [row.generation] : [])))].sort();
    const own = rows.filter((row) => row.kind === kind);
    const ids = [...new Set(own.map(({ id }) => id))];
    const inside = ids.flatMap((id) => {
      const [low, high] = rangeOf(kind, id);
      return own.filter((row) => row.id === id).map(({ speed }) => speed >= low && speed <= high);
    });
    const [low, high] = rangeOf(kind);
    return { kind, low, high, generations, points: ids.length, share: inside.filter(Boolean).length / inside.length };
  });
}

/**
 * The range of estimates on hardware that nobody measured an engine on: from rows that were estimated without their source,
 * those of a generation that no other source speaks of.
 */
export function unmeasuredRange(left) {
  const alone = left.filter(
    ({ kind, generation, source }) =>
      !left.some((other) => other.kind === kind && other.generation === generation && other.source !== source),
  );
  const [low, high] = quantiles(alone.map(({ speed }) => speed));
  return { low, high, points: alone.length };
}

/** The geometric mean, and the median of |ratio - 1|. */
export function summary(ratios) {
  if (ratios.length === 0) return { n: 0, mean: Number.NaN, median: Number.NaN };
  const mean = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
  const errors = ratios.map((ratio) => Math.abs(ratio - 1)).sort((a, b) => a - b);
  const middle = errors.length >> 1;
  const median = errors.length % 2 === 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
  return { n: ratios.length, mean, median };
}

/** The category of a point, as the tables of the results name it: the source's group, split where physics differ. */
export function categoryOf({ group: name, id, category, command }) {
  if (name === "first-token")
    return /in128\b/.test(id) ? "first token, 128" : /gaudi/.test(id) ? "first token, Gaudi" : "first token, 2048";
  if (name === "decode-1gpu-gguf-nvidia" && /a100|h100/i.test(command)) return "decode llama.cpp, A100 and H100";
  if (name === "serving-gaudi") return /gaudi2/.test(id) ? "serving-gaudi2" : "serving-gaudi3";
  if (category === "fits") return "fits";
  return name;
}
