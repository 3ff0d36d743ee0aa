/**
 * What bounds a load: why a machine does not serve so many users within a service level, or not one more than its largest load,
 * with the numbers, and which changes would; and the same question asked of several machines.
 */
import { UnsupportedError } from "../core/index.ts";
import type { Inventory } from "../machine/topology/index.ts";
import { DEFAULT_PRICES, type PriceCatalogue, withPrice } from "./cost/prices.ts";
import {
  checkServiceLevel,
  keepsLevel,
  type Load,
  largestLoad,
  loadOf,
  nearestMiss,
  type ServiceLevel,
} from "./decide.ts";
import { type NearestChange, nearestChanges } from "./nearest-changes.ts";
import type { ShardingPlan } from "./plan.ts";
import { type PlanRequest, planModel } from "./plan-model.ts";
import { axesText } from "./render.ts";

/** What more users would break. */
export interface LoadLimit {
  readonly kind: "memory" | "ttft" | "tpot" | "unsupported";
  /** The number of users that breaks it. */
  readonly users: number;
  /** Seconds that it would take, and that are allowed; absent where memory binds. */
  readonly seconds?: number;
  readonly allowedSeconds?: number;
  /** What does not fit, in words with its numbers, or what the engine or the hardware lacks. */
  readonly reason?: string;
}

/** The first thing that so many users break; undefined where they break nothing. */
function limitAt(request: PlanRequest, level: ServiceLevel, users: number): LoadLimit | undefined {
  const [alone] = planModel({ ...request, batch: 1, top: 1, explainNothing: false }).plans;
  const load = loadOf(request, users, alone);
  if (load === undefined) {
    const more = { batch: users, objective: "throughput", top: 1, explainNothing: false } as const;
    const { rejected, notes } = planModel({ ...request, ...more });
    const why = nearestMiss(rejected);
    const reason = why?.reason ?? rejected[0]?.reason ?? notes[0] ?? "no layout fits";
    const where = why === undefined ? "" : `${axesText(why.axes)}: `;
    return { kind: "memory", users, reason: `${where}${reason}` };
  }
  for (const [kind, seconds] of [
    ["ttft", load.ttftSeconds],
    ["tpot", load.tpotSeconds],
  ] as const) {
    const allowedSeconds = level[kind];
    if (allowedSeconds !== undefined && seconds > allowedSeconds) return { kind, users, seconds, allowedSeconds };
  }
  return undefined;
}

/** Whether a machine serves so many users, or how many it serves at most, and what stands in the way of more. */
export interface LoadAnswer {
  /** The load that was asked for, or the largest; undefined where there is none. */
  readonly load: Load | undefined;
  /** The largest load that keeps the level, where that is another one. */
  readonly largest: Load | undefined;
  readonly limit: LoadLimit | undefined;
  /** What one user alone breaks, where more were asked for and not even one is served. */
  readonly limitOfOne: LoadLimit | undefined;
}

/**
 * The load of `users`, or the largest one, with what bounds it.
 * @throws InvalidArgumentError for a level that is not above 0
 */
export function answerLoad(request: PlanRequest, level: ServiceLevel, users?: number): LoadAnswer {
  checkServiceLevel(level);
  const load = largestLoad(request, level, users);
  if (load === undefined) {
    const limit = limitAt(request, level, users ?? 1);
    if (users === undefined || users === 1) return { load, largest: undefined, limit, limitOfOne: undefined };
    const largest = largestLoad(request, level);
    return { load, largest, limit, limitOfOne: largest === undefined ? limitAt(request, level, 1) : undefined };
  }
  if (users !== undefined) return { load, largest: undefined, limit: undefined, limitOfOne: undefined };
  // The search is exact to a 64th: a little beyond it, the limit shows.
  const beyond = load.users + Math.max(1, Math.ceil(load.users / 32));
  return { load, largest: undefined, limit: limitAt(request, level, beyond), limitOfOne: undefined };
}

/** Changes after which a machine serves so many users within the level, nearest first; each has been planned. */
export function loadChanges(
  request: PlanRequest,
  level: ServiceLevel,
  users: number,
  most = 4,
): readonly NearestChange[] {
  const judge = (changed: PlanRequest): ShardingPlan | undefined => {
    const quick = { ...changed, top: 1, allowCpu: false, explainNothing: false };
    const [alone] = planModel({ ...quick, batch: 1 }).plans;
    const load = alone === undefined ? undefined : loadOf(quick, users, alone);
    return load !== undefined && keepsLevel(load, level) ? load.plan : undefined;
  };
  return nearestChanges(request, most, undefined, orUnsupported(judge));
}

/** What a request gives, and undefined where the engine or the hardware lacks what it asks for. */
const orUnsupported =
  <T>(ask: (request: PlanRequest) => T) =>
  (request: PlanRequest): T | undefined => {
    try {
      return ask(request);
    } catch (error) {
      if (error instanceof UnsupportedError) return undefined;
      throw error;
    }
  };

/** One row of a comparison of loads. */
export interface ComparedLoad extends LoadAnswer {
  readonly name: string;
}

/** The answer of a machine among others: one that cannot do what is asked is a row like those that are too small. */
function supportedAnswer(request: PlanRequest, level: ServiceLevel, users: number | undefined): LoadAnswer {
  try {
    return answerLoad(request, level, users);
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    return {
      load: undefined,
      largest: undefined,
      limit: { kind: "unsupported", users: users ?? 1, reason: error.message },
      limitOfOne: undefined,
    };
  }
}

/** Dollars a million tokens of a load. */
const costOf = ({ load }: LoadAnswer) => load?.plan.estimates.costPerMillionTokens ?? Number.POSITIVE_INFINITY;

/**
 * The same load, or the largest, on several machines, with prices where the catalogue has them.
 * @returns one row each: those that serve first, the cheapest a million tokens first, then those that take more users
 */
export function compareLoads(
  request: Omit<PlanRequest, "inventory">,
  machines: readonly { readonly name: string; readonly inventory: Inventory }[],
  level: ServiceLevel,
  { users, prices = DEFAULT_PRICES }: { readonly users?: number; readonly prices?: PriceCatalogue } = {},
): readonly ComparedLoad[] {
  const rows = machines.map(({ name, inventory }): ComparedLoad => {
    const answer = supportedAnswer({ ...request, inventory }, level, users);
    const { load } = answer;
    return load === undefined
      ? { name, ...answer }
      : { name, ...answer, load: { ...load, plan: withPrice(load.plan, inventory, prices) } };
  });
  return rows.sort(
    (a, b) =>
      Number(a.load === undefined) - Number(b.load === undefined) ||
      (costOf(a) === costOf(b) ? 0 : costOf(a) - costOf(b)) ||
      (b.load?.users ?? b.largest?.users ?? 0) - (a.load?.users ?? a.largest?.users ?? 0),
  );
}
