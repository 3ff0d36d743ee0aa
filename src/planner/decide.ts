/**
 * Decisions on top of plans: which hardware, how many users, what it costs. Each answer is a comparison of plans, so that
 * what is recommended is what `planModel` gives.
 */
import { InvalidArgumentError, UnsupportedError } from "../core/index.ts";
import type { Inventory } from "../machine/topology/index.ts";
import { DEFAULT_PRICES, instancesFor, type PriceCatalogue, pricedAs, withPrice } from "./cost/prices.ts";
import type { Rejected, ShardingPlan } from "./plan.ts";
import { type PlanRequest, planModel } from "./plan-model.ts";

/** One row of a comparison. */
export interface ComparedHardware {
  readonly name: string;
  /** Undefined where nothing fits its accelerators. */
  readonly plan: ShardingPlan | undefined;
  /** Accelerators that the plan leaves idle. */
  readonly idleDevices: number;
  /** Accelerators of the hosts that are rented at this price and that the machine does not have. */
  readonly rentedIdle: number;
  /** Why nothing fits. */
  readonly reason: string | undefined;
}

const numAccelerators = (inventory: Inventory) =>
  inventory.devices.filter((device) => device.visible && device.family !== "cpu").length;

/** Tokens a second that a plan serves or trains: generated ones with their prompts' prefill, as prices count them. */
function served({ estimates, workload }: ShardingPlan): number {
  if (estimates.kind === "training") return estimates.tokensPerSecond;
  const counted = workload.outputTokens > 0 ? workload.outputTokens : workload.contextTokens;
  return estimates.requestMs > 0 ? (workload.batch * counted * 1e3) / estimates.requestMs : 0;
}

/** Of the layouts that lack memory, the one that lacks least. */
export function nearestMiss(rejected: readonly Rejected[]): Rejected | undefined {
  const needed = ({ neededBytes = Number.POSITIVE_INFINITY }: Rejected) => neededBytes;
  return rejected.filter(({ kind }) => kind === "memory").sort((a, b) => needed(a) - needed(b))[0];
}

/** The best plan, or why there is none: too little memory, or an engine or a format that the devices do not have. */
function firstPlan(request: PlanRequest): { first: ShardingPlan | undefined; reason: string | undefined } {
  try {
    const { plans, rejected, notes } = planModel(request);
    const reason = nearestMiss(rejected)?.reason ?? rejected[0]?.reason ?? notes.at(-1) ?? "no layout fits";
    return { first: plans[0], reason: plans.length > 0 ? undefined : reason };
  } catch (error) {
    if (error instanceof UnsupportedError) return { first: undefined, reason: error.message };
    throw error;
  }
}

/**
 * Plans the same request on several machines, with prices where the catalogue has them.
 * @returns one row each: those that fit first, the cheapest a million tokens of them first, then the fastest
 */
export function compareHardware(
  request: Omit<PlanRequest, "inventory">,
  machines: readonly { readonly name: string; readonly inventory: Inventory }[],
  prices: PriceCatalogue = DEFAULT_PRICES,
): readonly ComparedHardware[] {
  const rows = machines.map(({ name, inventory }): ComparedHardware => {
    const { first, reason } = firstPlan({ ...request, inventory, top: 1, explainNothing: false });
    if (first === undefined) {
      return { name, plan: undefined, idleDevices: numAccelerators(inventory), rentedIdle: 0, reason };
    }
    const [rental] = instancesFor(first, inventory, prices);
    const plan = rental === undefined ? first : pricedAs(first, rental);
    const used = new Set(plan.ranks.map((rank) => rank.deviceId)).size;
    const idleDevices = Math.max(0, numAccelerators(inventory) - used);
    const rentedIdle = Math.max(0, (rental?.idleDevices ?? 0) - idleDevices);
    return { name, plan, idleDevices, rentedIdle, reason: undefined };
  });
  const cost = ({ plan }: ComparedHardware) => plan?.estimates.costPerMillionTokens ?? Number.POSITIVE_INFINITY;
  const speed = ({ plan }: ComparedHardware) => (plan === undefined ? -1 : served(plan));
  return rows.sort(
    (a, b) =>
      Number(a.plan === undefined) - Number(b.plan === undefined) ||
      (cost(a) === cost(b) ? 0 : cost(a) - cost(b)) ||
      speed(b) - speed(a),
  );
}

/**
 * The plan of the least cost a million tokens: the best for throughput on every number of devices, priced.
 * @throws InvalidArgumentError when the catalogue has no price for these devices
 */
export function cheapestPlan(request: PlanRequest, prices: PriceCatalogue = DEFAULT_PRICES): ShardingPlan | undefined {
  const most = numAccelerators(request.inventory);
  const counts = request.ranks === undefined ? deviceCounts(most) : [request.ranks];
  const plans = counts.flatMap((ranks) => {
    try {
      const found = planModel({ ...request, ranks, objective: "throughput", top: 1, explainNothing: false }).plans[0];
      return found === undefined ? [] : [withPrice(found, request.inventory, prices)];
    } catch (error) {
      // A fixed axis that this number of devices contradicts: another number may do.
      if (error instanceof InvalidArgumentError && error.argument === "ranks") return [];
      throw error;
    }
  });
  const priced = plans.filter((plan) => plan.estimates.costPerMillionTokens !== undefined);
  if (plans.length > 0 && priced.length === 0) {
    const name = request.inventory.devices.find((device) => device.family !== "cpu")?.name ?? "these devices";
    throw new InvalidArgumentError("objective", "cost", `a price for ${name}: give a catalogue with --prices`);
  }
  const cost = (plan: ShardingPlan) => plan.estimates.costPerMillionTokens ?? Number.POSITIVE_INFINITY;
  return priced.sort((a, b) => cost(a) - cost(b) || a.mesh.worldSize - b.mesh.worldSize)[0];
}

/** 1, 2, 3, 4, 6, 8, then powers of two and the whole. */
function deviceCounts(most: number): number[] {
  const counts = new Set([1, 2, 3, 4, 6, 8].filter((count) => count <= most));
  for (let count = 16; count < most; count *= 2) counts.add(count);
  if (most > 0) counts.add(most);
  return [...counts];
}

/** What users are promised, in seconds. */
export interface ServiceLevel {
  /** From the request to its first token, beside others that are being served. */
  readonly ttft?: number | undefined;
  /** Between two tokens, the prefill of others included. */
  readonly tpot?: number | undefined;
}

/** @throws InvalidArgumentError for a promise that is not above 0 */
export function checkServiceLevel(level: ServiceLevel): void {
  for (const [name, value] of Object.entries(level)) {
    if (value !== undefined && !(value > 0)) throw new InvalidArgumentError(name, value, "seconds above 0");
  }
}

/** A load that a machine takes. */
export interface Load {
  /** Sequences in flight. */
  readonly users: number;
  readonly plan: ShardingPlan;
  readonly ttftSeconds: number;
  readonly tpotSeconds: number;
}

/** Most users that are tried. */
const MAX_USERS = 1 << 16;

/** The load of so many users; `alone` is the plan of one, whose prefill a request waits for. Undefined where they do not fit. */
export function loadOf(request: PlanRequest, users: number, alone: ShardingPlan | undefined): Load | undefined {
  const { plans } = planModel({ ...request, batch: users, objective: "throughput", top: 1, explainNothing: false });
  const [plan] = plans;
  if (plan === undefined || plan.estimates.kind !== "inference") return undefined;
  const { estimates, workload } = plan;
  const prefillMs = alone?.estimates.kind === "inference" ? alone.estimates.prefillMs : estimates.prefillMs;
  return {
    users,
    plan,
    // A request that arrives waits for the step that runs, and then for its own prompt.
    ttftSeconds: (prefillMs + estimates.decodeStepMs) / 1e3,
    tpotSeconds: workload.outputTokens > 0 ? estimates.requestMs / workload.outputTokens / 1e3 : 0,
  };
}

/** Whether a load keeps a service level. */
export function keepsLevel(load: Load, level: ServiceLevel): boolean {
  return (
    (level.ttft === undefined || load.ttftSeconds <= level.ttft) &&
    (level.tpot === undefined || load.tpotSeconds <= level.tpot)
  );
}

/**
 * The largest number of users at once that fits the memory and keeps a service level: doubled, then bisected. With
 * `users`, that load alone.
 * @returns undefined when not even one user fits (or `users` do not)
 */
export function largestLoad(request: PlanRequest, level: ServiceLevel, users?: number): Load | undefined {
  checkServiceLevel(level);
  const [alone] = planModel({ ...request, batch: 1, top: 1, explainNothing: false }).plans;
  const keeps = (load: Load | undefined): load is Load => load !== undefined && keepsLevel(load, level);
  if (users !== undefined) {
    const load = loadOf(request, users, alone);
    return keeps(load) ? load : undefined;
  }
  let best: Load | undefined;
  let beyond = 1;
  while (beyond <= MAX_USERS) {
    const load = loadOf(request, beyond, alone);
    if (!keeps(load)) break;
    best = load;
    beyond *= 2;
  }
  let least = best?.users ?? 0;
  while (best !== undefined && beyond - least > Math.max(1, least / 64)) {
    const middle = Math.floor((least + beyond) / 2);
    const load = loadOf(request, middle, alone);
    if (keeps(load)) {
      best = load;
      least = middle;
    } else beyond = middle;
  }
  return best;
}
