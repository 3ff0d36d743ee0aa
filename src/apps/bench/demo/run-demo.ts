/**
 * `chorale demo` as library code: what is here, what fits, and the main job end to end: a model planned onto a mesh,
 * run sharded as that very plan, compared with one rank and with the reference; and how fast the collectives are.
 */
import { availableParallelism } from "node:os";
import type { Inventory } from "../../../machine/topology/index.ts";
import type { BenchRow } from "../collectives/bench-types.ts";
import { bench, sizeRange } from "../collectives/run-bench.ts";
import { maxDifference, readGolden, runGeneration } from "./demo-model.ts";
import type { DemoPlans } from "./demo-plans.ts";
import type { DemoReport } from "./demo-report.ts";

/** Told what was found as soon as it was found. */
export interface DemoListener {
  inventory?(inventory: Inventory): void;
  plans?(plans: DemoPlans): void;
  generationStarts?(prompt: string): void;
  generated?(report: Pick<DemoReport, "comparisons" | "runs" | "prompt" | "cores">): void;
  sweepStarts?(ranks: number): void;
  sweepRow?(row: BenchRow): void;
}

export interface DemoOptions {
  /** Tokens to generate; 96, as many as the reference has, unless told. */
  readonly maxNewTokens?: number;
  readonly listener?: DemoListener;
}

/** Largest difference of logits that still counts as the same computation in f32. */
export const LOGIT_TOLERANCE = 1e-3;

/** Runs the demo. @throws what the parts throw; a difference between the runs is in the report, not an error */
export async function runDemo(options: DemoOptions = {}): Promise<DemoReport> {
  const began = Date.now();
  const { listener = {}, maxNewTokens = 96 } = options;
  const cores = availableParallelism();
  // Not at the top: the ranks of a benchmark load this room too, and need neither probes nor planner.
  const [{ detect }, { planDemo }] = await Promise.all([
    import("../../../machine/hardware/index.ts"),
    import("./demo-plans.ts"),
  ]);
  const inventory = await detect();
  listener.inventory?.(inventory);
  const plans = await planDemo(inventory);
  listener.plans?.(plans);

  const golden = readGolden()[0];
  if (golden === undefined) throw new Error("golden.json of the demo model is empty");
  const prompt = new TextDecoder().decode(Uint8Array.from(golden.prompt));
  listener.generationStarts?.(prompt);
  const sharded = await runGeneration({ golden, maxNewTokens, plan: plans.plan });
  const single = await runGeneration({ golden, maxNewTokens });
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
  listener.generated?.({ comparisons, runs, prompt, cores });

  const ranks = Math.min(Math.max(cores, 2), 8);
  listener.sweepStarts?.(ranks);
  const rows = await bench({
    op: "all_reduce",
    ranks,
    sizes: sizeRange(1024, 64 * 2 ** 20, 4),
    check: true,
    inPlace: false,
    ...(listener.sweepRow === undefined ? {} : { onRow: listener.sweepRow }),
  });
  return {
    schemaVersion: 1,
    tokensIdentical:
      comparisons.shardedEqualsSingle && comparisons.shardedEqualsReference && comparisons.singleEqualsReference,
    comparisons,
    inventory,
    plans: plans.summaries,
    plan: plans.plan,
    prompt,
    runs,
    sweep: { ranks, rows },
    cores,
    tookMs: Date.now() - began,
  };
}
