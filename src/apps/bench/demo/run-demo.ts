/**
 * `chorale demo` as library code: what is here, what fits, and the main job end to end: a model planned onto a mesh,
 * run sharded as that very plan, compared with one rank and with the reference; and how fast the collectives are.
 */
import { availableParallelism } from "node:os";
import type { Inventory } from "../../../machine/topology/index.ts";
import { DEFAULT_BACKEND } from "../../../runtime/world/index.ts";
import type { BenchRow } from "../collectives/bench-types.ts";
import { bench } from "../collectives/run-bench.ts";
import { sizeRange } from "../collectives/size-range.ts";
import type { UnusedDevices, UsableDevices } from "./demo-devices.ts";
import { maxDifference, readGolden, runGeneration } from "./demo-model.ts";
import type { DemoPlans } from "./demo-plans.ts";
import type { DemoReport, DeviceRun } from "./demo-report.ts";

/** Told what was found as soon as it was found. */
export interface DemoListener {
  inventory?(inventory: Inventory): void;
  plans?(plans: DemoPlans, devices: UsableDevices | UnusedDevices | undefined): void;
  generationStarts?(prompt: string): void;
  generated?(report: Pick<DemoReport, "comparisons" | "runs" | "prompt" | "cores" | "devices">): void;
  sweepStarts?(ranks: number, backend: string): void;
  sweepRow?(row: BenchRow): void;
}

export interface DemoOptions {
  /** Tokens to generate; 96, as many as the reference has by default. */
  readonly maxNewTokens?: number;
  /** Largest all-reduce that is measured, bytes; 64 MiB by default. */
  readonly maxSweepBytes?: number;
  /** What is here; found out by default. */
  readonly inventory?: Inventory;
  readonly listener?: DemoListener;
}

/** Largest difference of logits that still counts as the same computation in f32. */
export const LOGIT_TOLERANCE = 1e-3;

/** Runs the demo. @throws what the parts throw; a difference between the runs is in the report, not an error */
export async function runDemo(options: DemoOptions = {}): Promise<DemoReport> {
  const began = Date.now();
  const { listener = {}, maxNewTokens = 96, maxSweepBytes = 64 * 2 ** 20 } = options;
  const cores = availableParallelism();
  // Not at the top: the ranks of a benchmark load this room too, and need neither probes nor planner.
  const [{ detect }, { planDemo }, { findDevices, generateOnDevices, sweepDevices }] = await Promise.all([
    import("../../../machine/hardware/index.ts"),
    import("./demo-plans.ts"),
    import("./demo-devices.ts"),
  ]);
  const inventory = options.inventory ?? (await detect());
  listener.inventory?.(inventory);
  const plans = await planDemo(inventory);
  const found = await findDevices(inventory);
  const usable = found === undefined || "unused" in found ? undefined : found;
  listener.plans?.(plans, found);

  const golden = readGolden()[0];
  if (golden === undefined) throw new Error("golden.json of the demo model is empty");
  const prompt = new TextDecoder().decode(Uint8Array.from(golden.prompt));
  listener.generationStarts?.(prompt);
  const sharded = await runGeneration({ golden, maxNewTokens, plan: plans.plan });
  const single = await runGeneration({ golden, maxNewTokens });
  const onDevices: DeviceRun | undefined =
    usable === undefined ? undefined : await generateOnDevices({ devices: usable, golden, maxNewTokens });
  const reference = golden.tokens.slice(0, maxNewTokens);
  const same = (a: readonly number[], b: readonly number[]) => a.length === b.length && a.every((t, i) => t === b[i]);
  const maxLogitDifference = Math.max(
    maxDifference(sharded.lastLogits, golden.lastLogits),
    maxDifference(single.lastLogits, golden.lastLogits),
  );
  const comparisons = {
    shardedEqualsSingle: same(sharded.tokens, single.tokens),
    shardedEqualsReference: same(sharded.tokens, reference),
    singleEqualsReference: same(single.tokens, reference),
    maxLogitDifference,
  };
  const { lastLogits: _sharded, ...shardedRun } = sharded;
  const { lastLogits: _single, ...singleRun } = single;
  const runs = { sharded: shardedRun, single: singleRun };
  listener.generated?.({
    comparisons,
    runs,
    prompt,
    cores,
    ...(onDevices === undefined ? {} : { devices: onDevices }),
  });

  const sizes = sizeRange(1024, maxSweepBytes, 4);
  const reduces = usable !== undefined && usable.count > 1 && onDevices !== undefined && "run" in onDevices;
  if (reduces) listener.sweepStarts?.(usable.count, usable.backend);
  const deviceSweep = reduces ? await sweepDevices(usable, sizes, listener.sweepRow) : undefined;
  const ranks = Math.min(Math.max(cores, 2), 8);
  listener.sweepStarts?.(ranks, DEFAULT_BACKEND);
  const rows = await bench({
    op: "all_reduce",
    ranks,
    sizes,
    check: true,
    inPlace: false,
    ...(listener.sweepRow === undefined ? {} : { onRow: listener.sweepRow }),
  });
  return {
    schemaVersion: 1,
    tokensIdentical:
      comparisons.shardedEqualsSingle &&
      comparisons.shardedEqualsReference &&
      comparisons.singleEqualsReference &&
      (onDevices === undefined || ("run" in onDevices && onDevices.equalsReference)),
    comparisons,
    inventory,
    plans: plans.summaries,
    plan: plans.plan,
    prompt,
    runs,
    sweep: { ranks, rows },
    ...(onDevices === undefined
      ? {}
      : { devices: { ...onDevices, ...(deviceSweep === undefined ? {} : { sweep: deviceSweep }) } }),
    ...(found !== undefined && "unused" in found ? { devicesUnused: found.unused } : {}),
    cores,
    tookMs: Date.now() - began,
  };
}
