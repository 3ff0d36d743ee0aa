/**
 * The planner's front door: a model and an inventory in, the best layouts out, with the reason why each other lost; or,
 * when nothing fits, why not and what would.
 */
import { deepFreeze, InvalidArgumentError, printableLine, UnsupportedError } from "../core/index.ts";
import {
  cloudInstance,
  type Device,
  type Family,
  type Inventory,
  PRESET_NAMES,
  presetInventory,
  usableDevices,
} from "../machine/topology/index.ts";
import { askedOf, cacheOf, hardwareOf } from "./asked.ts";
import { axisLimits, devicesFor, engineNotes, workloadOn } from "./engine-limits.ts";
import { lacksBf16 } from "./export/format-support.ts";
import { leastGradientBytes, trainingMemory } from "./memory/training.ts";
import { modelBytes } from "./memory/weights.ts";
import type { ModelSpec } from "./model/spec.ts";
import { availableMemory, deviceKinds } from "./placement/blocks.ts";
import { Fabric } from "./placement/fabric.ts";
import { OBJECTIVES, type Objective, PLAN_AXES, type Rejected, type ShardingPlan } from "./plan.ts";
import { rolloutWorkload, withRollout } from "./rollout.ts";
import { buildPlan, modelSummary } from "./search/build-plan.ts";
import type { Constraints } from "./search/enumerate.ts";
import type { NearLayout } from "./search/near-layouts.ts";
import { search } from "./search/search.ts";
import { TableCache } from "./search/stage-tables.ts";
import { resolveWorkload, type Workload, type WorkloadRequest } from "./search/workload.ts";

export interface PlanRequest extends WorkloadRequest {
  readonly model: ModelSpec;
  readonly inventory: Inventory;
  /** Default: latency. */
  readonly objective?: Objective;
  /** Fixes axes: `{ tp: 2, pp: 2 }`. */
  readonly constrain?: Constraints;
  /** Fixes the world size. CPUs then host several ranks each where there are fewer devices. */
  readonly ranks?: number;
  /** How many plans to give, best first. Default 1. */
  readonly top?: number;
  /** Plans with the devices' total memory in place of what is free now. */
  readonly useTotalMemory?: boolean;
  /** Share of each accelerator's memory that the engine may take (vLLM's gpu_memory_utilization). Default 1. */
  readonly gpuMemoryUtilization?: number;
  /** Plans on the CPU where no accelerator can serve. Default: only where there is no accelerator at all; `false`: never. */
  readonly allowCpu?: boolean;
  /** When nothing fits, look for the smallest preset that would do. Default true. */
  readonly explainNothing?: boolean;
  /** Called now and then with how far a long search is. */
  readonly onProgress?: (done: number, total: number) => void;
}

export interface PlanOutcome {
  readonly model: ShardingPlan["model"];
  /** Best first; empty when nothing fits. */
  readonly plans: readonly ShardingPlan[];
  /** Other layouts whose score is within 10 % of the best plan's. */
  readonly near: readonly NearLayout[];
  /** Why other layouts lost, or why none fits. */
  readonly rejected: readonly Rejected[];
  /** When nothing fits, or only the CPU does: the smallest preset that would do. */
  readonly suggestion: string | undefined;
  readonly notes: readonly string[];
  readonly numCandidates: number;
  readonly numJudged: number;
}

function checkConstraints(constrain: Constraints): void {
  for (const [axis, size] of Object.entries(constrain)) {
    if (!(PLAN_AXES as readonly string[]).includes(axis)) {
      throw new InvalidArgumentError("constrain", axis, `axes ${PLAN_AXES.join(", ")}`);
    }
    if (!Number.isInteger(size) || size < 1 || size > 2 ** 20) {
      throw new InvalidArgumentError(`constrain ${axis}`, size, "a size of 1 or more");
    }
  }
}

/** What a world size must be for the fixed axes to multiply to it with the free ones; undefined when it is. */
export function ranksProblem(ranks: number, constrain: Constraints): string | undefined {
  const fixed = PLAN_AXES.flatMap((axis) => (constrain[axis] === undefined ? [] : [`${axis}=${constrain[axis]}`]));
  const product = PLAN_AXES.reduce((total, axis) => total * (constrain[axis] ?? 1), 1);
  const allFixed = fixed.length === PLAN_AXES.length;
  if (allFixed ? product === ranks : ranks % product === 0) return undefined;
  return `${allFixed ? product : `a multiple of ${product}`}, as ${fixed.join(" x ")} asks`;
}

const MAX_RANKS = 2 ** 20;

/** A contradiction between the two is wrong usage, not a lack of hardware. */
function checkRanks(ranks: number | undefined, constrain: Constraints): void {
  if (ranks === undefined) return;
  const inRange = Number.isInteger(ranks) && ranks >= 1 && ranks <= MAX_RANKS;
  const problem = inRange ? ranksProblem(ranks, constrain) : `an integer from 1 to ${MAX_RANKS}`;
  if (problem !== undefined) throw new InvalidArgumentError("ranks", ranks, problem);
}

/** Most warnings of an inventory that a plan repeats. */
const MAX_WARNINGS = 8;

interface Pool {
  readonly family: Family;
  readonly devices: readonly Device[];
}

/**
 * Devices that one plan may use together: of one family, since ranks of different vendors have no common engine. CPUs
 * come last: they are the answer only where no accelerator can be.
 */
function poolsOf(inventory: Inventory, useTotal: boolean): { pools: readonly Pool[]; notes: readonly string[] } {
  const notes: string[] = [];
  const byFamily = new Map<Family, Device[]>();
  for (const device of usableDevices(inventory)) {
    if (!device.visible) continue;
    if (availableMemory(device, useTotal) === 0) {
      notes.push(`${device.id} (${device.name}) is left out: its memory is unknown or full`);
      continue;
    }
    const list = byFamily.get(device.family) ?? [];
    list.push(device);
    byFamily.set(device.family, list);
  }
  const pools = [...byFamily].map(([family, devices]) => ({ family, devices }));
  const isCpu = (pool: Pool) => (pool.family === "cpu" ? 1 : 0);
  // An accelerator's unified memory is the CPU's own: it is planned for once.
  return { pools: pools.sort((a, b) => isCpu(a) - isCpu(b)), notes };
}

/** What detection could not read: a GPU that is on the bus and not here would change the plan. */
function warningsOf(inventory: Inventory): readonly string[] {
  return inventory.warnings.slice(0, MAX_WARNINGS).map(({ message }) => printableLine(message));
}

/** How many ranks each device of a pool hosts: more than one only on CPUs, and only when asked for. */
function ranksPerDevice(pool: Pool, constrain: Constraints, ranks: number | undefined): number {
  if (pool.family !== "cpu") return 1;
  const wanted = ranks ?? PLAN_AXES.reduce((product, axis) => product * (constrain[axis] ?? 1), 1);
  return Math.max(1, Math.ceil(wanted / pool.devices.length));
}

function better(a: ShardingPlan, b: ShardingPlan): number {
  return a.score - b.score || a.mesh.worldSize - b.mesh.worldSize;
}

/**
 * Plans a model onto an inventory: searches tensor, pipeline, data, expert and context parallelism, splits layers
 * unevenly where devices differ, places the chattiest axes on the fastest links, and estimates speed and memory.
 * @returns frozen plans, best first, and why others lost; no plan when nothing fits
 * @throws InvalidArgumentError for an argument out of range or a constraint that no axis has
 * @throws UnsupportedError when the inventory has no device at all, or none on which the engine or the format can be had
 * @example
 * import { modelPreset, planModel } from "chorale/planner";
 * import { parseSystem } from "chorale/topology";
 * const inventory = parseSystem("hgx-h100-8");
 * if (inventory === undefined) throw new Error("no such preset");
 * const { plans } = planModel({ model: modelPreset("llama-3.1-70b"), inventory });
 * plans[0]?.mesh.axes; // { dp: 1, pp: 1, ep: 1, cp: 1, tp: 8 }
 */
export function planModel(request: PlanRequest): PlanOutcome {
  const { model, inventory, objective = "latency", constrain = {}, ranks, top = 1, useTotalMemory = false } = request;
  if (typeof model?.architecture !== "string") {
    throw new InvalidArgumentError("model", model, "a ModelSpec, such as modelPreset(name) or loadModel(path) returns");
  }
  if (inventory?.devices?.length === undefined) {
    throw new InvalidArgumentError("inventory", inventory, "an Inventory, such as presetInventory(name) returns");
  }
  if (!OBJECTIVES.includes(objective)) {
    throw new InvalidArgumentError("objective", objective, `one of ${OBJECTIVES.join(", ")}`);
  }
  if (!Number.isInteger(top) || top < 1 || top > 1000) throw new InvalidArgumentError("top", top, "1 to 1000");
  checkConstraints(constrain);
  checkRanks(ranks, constrain);
  const { gpuMemoryUtilization: memoryShare = 1 } = request;
  if (!(memoryShare > 0 && memoryShare <= 1)) {
    throw new InvalidArgumentError("gpu memory utilization", memoryShare, "a share above 0, at most 1");
  }
  const workload = resolveWorkload(model, request, objective);
  const { pools, notes: leftOut } = poolsOf(inventory, useTotalMemory);
  const isBare = request.allowCpu === false && pools.every(({ family }) => family === "cpu");
  const notes = [
    ...leftOut,
    ...warningsOf(inventory),
    ...(isBare ? ["no accelerator is left; --allow-cpu plans on the CPU"] : []),
  ];
  if (pools.length === 0) {
    throw new UnsupportedError(
      "planning on an inventory without usable devices",
      "give --hardware a preset or a file with visible devices of known memory",
    );
  }
  const fabric = new Fabric(inventory, useTotalMemory);
  const plans: ShardingPlan[] = [];
  const rejected: Rejected[] = [];
  const near: NearLayout[] = [];
  let numCandidates = 0;
  let numJudged = 0;
  const unsupported: UnsupportedError[] = [];
  const fixed = { ...axisLimits(request.train === undefined ? workload.engine : undefined), ...constrain };
  for (const pool of pools) {
    // CPUs are planned for where there is no accelerator, or where they are asked for and no accelerator can serve.
    const hasOthers = pools.some((other) => other.family !== "cpu");
    const isAside = (hasOthers || request.allowCpu === false) && request.allowCpu !== true;
    if (pool.family === "cpu" && (plans.length > 0 || isAside)) continue;
    const usable = devicesFor(pool.devices, workload);
    unsupported.push(...usable.problems);
    if (usable.devices.length === 0) continue;
    const kinds = deviceKinds(usable.devices, fabric, {
      useTotalMemory,
      ranksPerDevice: ranksPerDevice(pool, constrain, ranks),
      memoryShare: pool.family === "cpu" ? 1 : memoryShare,
    });
    const suited = workloadOn(usable.devices, workload);
    const context = { model, workload: suited, objective, fabric, cache: new TableCache(model, suited) };
    const found = search({ ...context, kinds, constraints: fixed, ranks, top, onProgress: request.onProgress });
    numCandidates += found.numCandidates;
    numJudged += found.numJudged;
    // Of the first pool that fits: scores of other families' devices are not compared here.
    if (plans.length === 0) near.push(...found.near);
    for (const item of found.rejected) {
      if (!rejected.some((known) => known.reason === item.reason)) rejected.push(item);
    }
    // A plan on the CPU is explained by what accelerators could not do, too.
    const why = pool.family === "cpu" ? [...rejected] : found.rejected;
    for (const item of found.best) {
      const built = buildPlan(context, item, why, poolNotes(pool, pools, notes));
      const plan = {
        ...built,
        workload: { ...built.workload, ...cacheOf(request, built.workload), ...askedOf(model, request, workload) },
        hardware: hardwareOf(built.ranks, pool.devices),
      };
      const left = usable.problems.map(({ message }) => `left out: ${message}`);
      plans.push({ ...plan, notes: [...plan.notes, ...left, ...engineNotes(plan, inventory)] });
    }
  }
  // Where no device was even tried, what was asked for is impossible here, whatever the memory.
  const [impossible] = unsupported;
  if (impossible !== undefined && plans.length === 0 && numCandidates === 0) throw impossible;
  const rollouts = rolloutWorkload(request, workload);
  const served = { model, inventory, useTotalMemory, gpuMemoryUtilization: memoryShare, explainNothing: false };
  const [rollout] =
    rollouts === undefined || plans.length === 0
      ? []
      : planModel({ ...served, objective: "throughput", ...rollouts }).plans;
  if (rollouts !== undefined && rollout === undefined && plans.length > 0) {
    notes.push("the rollouts do not fit these devices: they are not counted");
  }
  plans.sort(better);
  // More hardware helps where memory is short, not where a rule is broken.
  const onCpu =
    pools.length > 1 &&
    plans.some((plan) =>
      pools.some(({ family, devices }) => family === "cpu" && devices.some(({ id }) => id === plan.ranks[0]?.deviceId)),
    );
  const needsMore =
    request.explainNothing !== false &&
    (plans.length === 0 || onCpu) &&
    rejected.some((item) => item.kind === "memory" || item.kind === "topology");
  return {
    model: modelSummary(model),
    plans: plans.slice(0, top).map((plan) => deepFreeze(withRollout(plan, rollout))),
    near,
    rejected,
    suggestion: needsMore ? smallestPreset(model, workload, request) : undefined,
    notes,
    numCandidates,
    numJudged,
  };
}

/** Said of a plan on CPUs: there are no accelerators, or they were not enough. */
function poolNotes(pool: Pool, pools: readonly Pool[], notes: readonly string[]): readonly string[] {
  if (pool.family !== "cpu") return notes;
  const passedOver = pools.some((other) => other.family !== "cpu");
  return [
    ...notes,
    passedOver ? "runs on the CPU: no accelerator here can serve this" : "runs on the CPU: no accelerator is here",
  ];
}

/** The smallest preset, by memory, on which the same question has an answer: of the accelerators that are here, if any. */
function smallestPreset(model: ModelSpec, workload: Workload, request: PlanRequest): string | undefined {
  const { method } = workload;
  const need =
    method === undefined
      ? modelBytes(model, workload.format)
      : trainingMemory(model, method, workload.optimizer, leastGradientBytes(workload)).totalBytes;
  const families = new Set<Family>(
    request.inventory.devices.map(({ family }) => family).filter((family) => family !== "cpu"),
  );
  // Boards, not the instances that rent them, and nothing that fits a palm.
  const presets = PRESET_NAMES.filter((name) => cloudInstance(name) === undefined && !name.startsWith("jetson"))
    .flatMap((name) => {
      const inventory = presetInventory(name);
      const bytes = inventory.devices.reduce(
        (sum, device) => sum + (device.family === "cpu" ? 0 : (device.memoryBytes ?? 0)),
        0,
      );
      const isForeign = inventory.devices.every(({ family }) => !families.has(family));
      return bytes > need ? [{ name, inventory, bytes, isForeign }] : [];
    })
    .sort((a, b) => Number(a.isForeign) - Number(b.isForeign) || a.bytes - b.bytes);
  for (const { name, inventory } of presets) {
    const accelerators = { ...inventory, devices: inventory.devices.filter((device) => device.family !== "cpu") };
    const { pools } = poolsOf(accelerators, true);
    const { devices } = devicesFor(pools[0]?.devices ?? [], workload);
    if (devices.length === 0 || (workload.activationFormat === "bf16" && devices.some(lacksBf16))) continue;
    const fabric = new Fabric(accelerators);
    const kinds = deviceKinds(devices, fabric, { useTotalMemory: true, ranksPerDevice: 1 });
    const suited = workloadOn(devices, workload);
    const context = {
      model,
      workload: suited,
      objective: request.objective ?? "latency",
      fabric,
      cache: new TableCache(model, suited),
    } as const;
    const found = search({
      ...context,
      kinds,
      constraints: request.constrain ?? {},
      ranks: request.ranks,
      top: 1,
      firstFit: true,
    });
    if (found.best.length > 0) return name;
  }
  return undefined;
}
