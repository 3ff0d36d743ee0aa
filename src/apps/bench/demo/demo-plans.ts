/** The demo's plans: a free choice for its own model here, one for a 70B on a preset, and the one that is run. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { UnsupportedError } from "../../../core/index.ts";
import { type Inventory, parseSystem } from "../../../machine/topology/index.ts";
import { modelFromConfigText, modelPreset, planModel, type ShardingPlan } from "../../../planner/index.ts";
import { DEMO_MODEL } from "./demo-model.ts";
import type { DemoReport, PlanSummary } from "./demo-report.ts";

const LARGE_MODEL = "llama-3.1-70b";
const LARGE_HARDWARE = "hgx-h100-8";
/** What the demo runs: two stages of two ranks each. */
const DEMO_AXES = { tp: 2, pp: 2 } as const;

export interface DemoPlans {
  readonly summaries: DemoReport["plans"];
  /** The constrained plan, which is run on the CPU. */
  readonly plan: ShardingPlan;
}

export interface DemoPlan {
  readonly plan: ShardingPlan;
  readonly summary: PlanSummary;
}

/** Makes the three plans. @throws UnsupportedError when one of them finds no layout */
export async function planDemo(inventory: Inventory): Promise<DemoPlans> {
  const model = demoModel();
  const large = parseSystem(LARGE_HARDWARE);
  if (large === undefined) throw new UnsupportedError(`the preset ${LARGE_HARDWARE}`, "the demo needs it");
  const here = first(planModel({ model, inventory }).plans, "the demo model here");
  const big = first(
    planModel({ model: modelPreset(LARGE_MODEL), inventory: large }).plans,
    `${LARGE_MODEL} on ${LARGE_HARDWARE}`,
  );
  // It runs on threads, so it is planned onto the CPU. What runs on accelerators has its own plan.
  const cpus = { ...inventory, devices: inventory.devices.filter((device) => device.family === "cpu") };
  const plan = first(
    planModel({ model, inventory: cpus, constrain: { ...DEMO_AXES, dp: 1, ep: 1, cp: 1 } }).plans,
    "the demo model with tp=2, pp=2",
  );
  return {
    plan,
    summaries: {
      here: summarize(here, deviceNames(here, inventory)),
      large: summarize(big, LARGE_HARDWARE),
      constrained: summarize(plan, deviceNames(plan, inventory)),
    },
  };
}

/**
 * Plans what the demo runs on accelerators: two stages of two ranks where there are four devices, one of two where there
 * are fewer.
 */
export function planDevices(inventory: Inventory, devices: Inventory["devices"]): DemoPlan {
  const tp = devices.length < 2 ? 1 : 2;
  const pp = devices.length < 4 ? 1 : 2;
  const used = { ...inventory, devices: devices.slice(0, tp * pp) };
  const plan = first(
    planModel({ model: demoModel(), inventory: used, constrain: { tp, pp, dp: 1, ep: 1, cp: 1 } }).plans,
    `the demo model with tp=${tp}, pp=${pp}`,
  );
  return { plan, summary: summarize(plan, deviceNames(plan, inventory)) };
}

function demoModel(): ReturnType<typeof modelFromConfigText> {
  const path = join(DEMO_MODEL, "config.json");
  return modelFromConfigText(readFileSync(path, "utf8"), path, "shakespeare-llama");
}

function first(plans: readonly ShardingPlan[], what: string): ShardingPlan {
  const plan = plans[0];
  if (plan === undefined) throw new UnsupportedError(`planning ${what}`, "the planner found no layout that fits");
  return plan;
}

/** The devices that a plan uses: `cpu0`, or `4 of gpu0...`. */
function deviceNames(plan: ShardingPlan, inventory: Inventory): string {
  const used = new Set(plan.ranks.map((rank) => rank.deviceId));
  const ids = inventory.devices.map((device) => device.id).filter((id) => used.has(id));
  return ids.length <= 2 ? ids.join(", ") : `${ids[0]}..${ids.at(-1)}`;
}

function summarize(plan: ShardingPlan, hardware: string): PlanSummary {
  const { estimates, mesh, memory, model } = plan;
  return {
    model: model.name,
    hardware,
    numParameters: model.numParameters,
    axes: { dp: mesh.axes.dp, pp: mesh.axes.pp, tp: mesh.axes.tp },
    ranks: mesh.worldSize,
    peakRankBytes: memory.peakRankBytes,
    minHeadroomBytes: memory.minHeadroomBytes,
    decodeTokensPerSecond: estimates.kind === "inference" ? estimates.decodeTokensPerSecond : null,
    bottleneck: estimates.bottleneck,
    notes: plan.notes,
  };
}
