/**
 * What to say when nothing fits: how much memory is missing, and which changes make the model fit on this hardware. Every
 * change that is named has been planned.
 */
import { UnsupportedError } from "../core/index.ts";
import { type Device, findPart, type Inventory } from "../machine/topology/index.ts";
import { exportProblem, SERVERS } from "./engine-limits.ts";
import { runsEngine } from "./export/device-support.ts";
import { EXPORT_TARGETS, type ExportTarget } from "./export/engines.ts";
import { servesFormat } from "./export/format-support.ts";
import { effectiveBits, weightFormat } from "./memory/formats.ts";
import { kvBytesByLayer } from "./memory/kv-cache.ts";
import { leastGradientBytes, trainingMemory } from "./memory/training.ts";
import { modelBytes } from "./memory/weights.ts";
import { availableMemory } from "./placement/blocks.ts";
import type { ShardingPlan } from "./plan.ts";
import { type PlanRequest, planModel } from "./plan-model.ts";
import { resolveWorkload } from "./search/workload.ts";
import { addDevices } from "./what-if.ts";

/** What the model takes at least, and what the accelerators have (their hosts too, where something is offloaded), in bytes of all. */
export interface MemoryShortfall {
  readonly neededBytes: number;
  readonly availableBytes: number;
}

/** A change after which a plan exists. */
export interface NearestChange {
  /** In words of the command line: `--quant fp8`. */
  readonly change: string;
  readonly plan: ShardingPlan;
}

const accelerators = (inventory: Inventory) =>
  inventory.devices.filter((device) => device.visible && device.family !== "cpu");

/** Weights with KV cache, or with training states; activations and reserves come on top. */
export function memoryShortfall(request: PlanRequest): MemoryShortfall {
  const { model, inventory, useTotalMemory = false, gpuMemoryUtilization = 1 } = request;
  const workload = resolveWorkload(model, request, request.objective ?? "latency");
  const { method, format, kv, contextTokens } = workload;
  const cache = kvBytesByLayer(model, { contextTokens, sequences: workload.batch ?? 1, tp: 1, cp: 1, format: kv });
  const neededBytes =
    method === undefined
      ? modelBytes(model, format) + cache.reduce((sum, bytes) => sum + bytes, 0)
      : trainingMemory(model, method, workload.optimizer, leastGradientBytes(workload)).totalBytes;
  const onHosts = inventory.devices
    .filter((device) => device.family === "cpu" && workload.offload !== "none")
    .reduce((sum, device) => sum + availableMemory(device, useTotalMemory), 0);
  const availableBytes = accelerators(inventory).reduce(
    (sum, device) => sum + availableMemory(device, useTotalMemory) * gpuMemoryUtilization,
    onHosts,
  );
  return { neededBytes: Math.ceil(neededBytes), availableBytes: Math.floor(availableBytes) };
}

interface Attempt {
  readonly change: string;
  readonly request: PlanRequest;
}

/** Halves of a number, largest first, down to 1. */
function halves(value: number, least = 1): number[] {
  const sizes: number[] = [];
  for (let size = Math.floor(value / 2); size >= least && sizes.length < 24; size = Math.floor(size / 2))
    sizes.push(size);
  return sizes;
}

/** Formats to try, most exact first: of several, since no engine serves them all. llama.cpp has no 8-bit floats. */
const SMALL_CACHES = ["fp8", "q8_0"] as const;
const LIGHT_FORMATS = ["fp8", "int8", "q8_0", "awq-4-g128", "gptq-4-g128", "q4_k_m", "q3_k_m", "q2_k"] as const;

/** Attempts of each kind, in the order of what they give up: the first of a kind that fits is named. */
function attempts(request: PlanRequest, engine: string | undefined): readonly (readonly Attempt[])[] {
  const { model, inventory, train } = request;
  const workload = resolveWorkload(model, request, request.objective ?? "latency");
  const change = (text: string, more: Partial<PlanRequest>): Attempt => ({
    change: text,
    request: { ...request, ...more },
  });
  const batches = halves(workload.batch ?? 1).map((batch) => change(`--batch ${batch}`, { batch }));
  const shorter = halves(workload.contextTokens, 256).filter((size) => size > (request.rolloutTokens ?? 0));
  const contexts = shorter.map((contextTokens) =>
    change(`--context ${contextTokens}`, {
      contextTokens,
      ...(request.outputTokens === undefined
        ? {}
        : { outputTokens: Math.min(request.outputTokens, contextTokens - 1) }),
    }),
  );
  if (train !== undefined) {
    return [
      [change("--checkpointing full", { checkpointing: "full" })],
      [change("--micro-batch 1 --checkpointing full", { microBatch: 1, checkpointing: "full" })],
      [change("--optimizer adamw-8bit", { optimizer: "adamw-8bit" })],
      [change("--offload optimizer", { offload: "optimizer" }), change("--offload all", { offload: "all" })],
      contexts,
      // Adapters stand in for training the weights, not for PPO and its like.
      /^(full|lora)/.test(train)
        ? [change("--train lora", { train: "lora" }), change("--train qlora", { train: "qlora" })]
        : [],
      ...more(request, inventory),
    ];
  }
  const isWide = workload.kv.bytes >= 2;
  const lighter = LIGHT_FORMATS.filter(
    (name) =>
      effectiveBits(weightFormat(name)) < effectiveBits(workload.format) &&
      accelerators(inventory).some((device) => isServed(device, name, engine)),
  );
  return [
    isWide ? SMALL_CACHES.map((kv) => change(`--kv ${kv}`, { kv })) : [],
    lighter.map((quant) => change(`--quant ${quant}`, { quant })),
    lighter.flatMap((quant) => SMALL_CACHES.map((kv) => change(`--quant ${quant} --kv ${kv}`, { quant, kv }))),
    batches,
    contexts,
    ...more(request, inventory),
  ];
}

const FULL_HOST = 8;
/** A cloud's instance is what it is. */
const isInstance = ({ environment }: Inventory) => typeof environment?.["instance"] === "string";

/** One to seven devices more of the kind that is there; for hosts of a cluster see the smallest preset. */
function more(request: PlanRequest, inventory: Inventory): readonly (readonly Attempt[])[] {
  const key = partKey(inventory);
  // A board of eight is full; several hosts are what --hardware says.
  if (key === undefined || accelerators(inventory).length >= FULL_HOST || isInstance(inventory)) return [];
  const tries = [1, 2, 3, 4, 6, 7].map((count) => ({
    change: `--add ${count}x${key}`,
    request: { ...request, inventory: addDevices(inventory, `${count}x${key}`) },
  }));
  return [tries];
}

function partKey(inventory: Inventory): string | undefined {
  const [first] = accelerators(inventory);
  return first === undefined ? undefined : findPart(first.family, first.name)?.key;
}

/**
 * Changes that make a request fit on its own hardware, nearest first: each has been planned, and the export to `target` (by
 * default to any engine that serves) would take it. Empty where none helps. `judge` gives the plan of a change that is good
 * enough: by default any plan is.
 * @example
 * import { modelPreset, nearestChanges } from "chorale/planner";
 * import { presetInventory } from "chorale/topology";
 * nearestChanges({ model: modelPreset("llama-3.1-70b"), inventory: presetInventory("hgx-h100-1") })[0]?.change // "--quant awq-4-g128"
 */
export function nearestChanges(
  request: PlanRequest,
  most = 5,
  target?: string,
  judge: (changed: PlanRequest) => ShardingPlan | undefined = planOf,
): readonly NearestChange[] {
  const found: NearestChange[] = [];
  const engine = target ?? request.engine;
  for (const kind of attempts(request, engine)) {
    if (found.length >= most) break;
    for (const attempt of kind) {
      const plan = judge(attempt.request);
      if (plan === undefined || isOnCpu(plan, attempt.request.inventory)) continue;
      if (!isExportable(plan, attempt.request.inventory, engine)) continue;
      // The same plan as of a smaller change.
      if (found.some((other) => other.plan.score === plan.score && sameMemory(other.plan, plan))) continue;
      found.push({ change: attempt.change, plan });
      break;
    }
  }
  return found;
}

/** The plan of an attempt; undefined where nothing fits, or the engine or the hardware lacks what it asks for. */
function planOf(request: PlanRequest): ShardingPlan | undefined {
  try {
    return planModel({ ...request, top: 1, allowCpu: false, explainNothing: false }).plans[0];
  } catch (error) {
    if (error instanceof UnsupportedError) return undefined;
    throw error;
  }
}

/** The engines that a plan may go to: the one that is named, else any that serves. */
const enginesOf = (named: string | undefined): readonly ExportTarget[] =>
  named === undefined ? SERVERS : EXPORT_TARGETS.filter((name) => name === named);

/** Says whether a format of weights is to be had on a device. */
function isServed(device: Device, format: string, named: string | undefined): boolean {
  const engines = enginesOf(named);
  return (
    engines.length === 0 ||
    engines.some((engine) => runsEngine(engine, device) && servesFormat(engine, "weights", format, device))
  );
}

/** What every engine refuses is no advice. A training script of one's own refuses nothing. */
function isExportable(plan: ShardingPlan, inventory: Inventory, named: string | undefined): boolean {
  if (named === undefined && plan.workload.mode === "training") return true;
  const engines = enginesOf(named);
  return engines.length === 0 || engines.some((engine) => exportProblem(plan, engine, inventory) === undefined);
}

const sameMemory = (a: ShardingPlan, b: ShardingPlan) => a.memory.peakRankBytes === b.memory.peakRankBytes;

function isOnCpu(plan: ShardingPlan, inventory: Inventory): boolean {
  const id = plan.ranks[0]?.deviceId;
  return inventory.devices.some((device) => device.id === id && device.family === "cpu");
}
