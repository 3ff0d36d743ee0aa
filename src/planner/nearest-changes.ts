/**
 * What to say when nothing fits: how much memory is missing, and which changes make the model fit on this hardware. Every
 * change that is named has been planned.
 */
import { findPart, type Inventory } from "../machine/topology/index.ts";
import { kvBytesByLayer } from "./memory/kv-cache.ts";
import { estimateTrainingMemory } from "./memory/training.ts";
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
      : estimateTrainingMemory(model, method).totalBytes;
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

/** Attempts of each kind, in the order of what they give up: the first of a kind that fits is named. */
function attempts(request: PlanRequest): readonly (readonly Attempt[])[] {
  const { model, inventory, train } = request;
  const workload = resolveWorkload(model, request, request.objective ?? "latency");
  const change = (text: string, more: Partial<PlanRequest>): Attempt => ({
    change: text,
    request: { ...request, ...more },
  });
  const batches = halves(workload.batch ?? 1).map((batch) => change(`--batch ${batch}`, { batch }));
  const contexts = halves(workload.contextTokens, 256).map((contextTokens) =>
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
      [change("--train lora", { train: "lora" }), change("--train qlora", { train: "qlora" })],
      ...more(request, inventory),
    ];
  }
  const isWide = workload.kv.bytes >= 2;
  const lighter = ["fp8", "int8", "awq-4-g128", "q3_k_m", "q2_k"].filter(
    (name) => name !== workload.format.name && workload.format.bits > (name === "fp8" || name === "int8" ? 8 : 4),
  );
  return [
    isWide ? [change("--kv fp8", { kv: "fp8" })] : [],
    lighter.map((quant) => change(`--quant ${quant}`, { quant })),
    lighter.map((quant) => change(`--quant ${quant} --kv fp8`, { quant, kv: "fp8" })),
    batches,
    contexts,
    ...more(request, inventory),
  ];
}

/** One to seven devices more of the kind that is there; for hosts of a cluster see the smallest preset. */
function more(request: PlanRequest, inventory: Inventory): readonly (readonly Attempt[])[] {
  const key = partKey(inventory);
  if (key === undefined) return [];
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
 * Changes that make a request fit on its own hardware, nearest first: each has been planned. Empty where none helps.
 * @example
 * import { modelPreset, nearestChanges } from "chorale/planner";
 * import { presetInventory } from "chorale/topology";
 * nearestChanges({ model: modelPreset("llama-3.1-70b"), inventory: presetInventory("hgx-h100-1") })[0]?.change // "--quant awq-4-g128"
 */
export function nearestChanges(request: PlanRequest, most = 5): readonly NearestChange[] {
  const found: NearestChange[] = [];
  for (const kind of attempts(request)) {
    if (found.length >= most) break;
    for (const attempt of kind) {
      const { plans } = planModel({ ...attempt.request, top: 1, allowCpu: false, explainNothing: false });
      const [plan] = plans;
      if (plan === undefined || isOnCpu(plan, attempt.request.inventory)) continue;
      found.push({ change: attempt.change, plan });
      break;
    }
  }
  return found;
}

function isOnCpu(plan: ShardingPlan, inventory: Inventory): boolean {
  const id = plan.ranks[0]?.deviceId;
  return inventory.devices.some((device) => device.id === id && device.family === "cpu");
}
