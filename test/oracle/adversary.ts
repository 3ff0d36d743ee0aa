/**
 * Looks for a schedule that breaks a plan, by climbing: a schedule that leaves more to timing (reads that could have got another
 * value, moments when nearly nobody could go on) is changed further. Knows nothing of the verifier.
 */
import type { ExecutionPlan } from "../../src/authoring/plan/execution-plan.ts";
import { type Habits, type Run, runAndLook } from "./interpreter.ts";
import { Random } from "./random.ts";

interface Schedule {
  readonly seed: number;
  readonly habits: Habits;
  /** `rank:strand:op` of operations that are held back as long as anything else can happen. */
  readonly held: readonly string[];
}

export interface SearchOptions {
  readonly seed: number;
  readonly unitsPerChunk: number;
  readonly launches: number;
  /** Schedules that are tried. */
  readonly tries: number;
  /** Schedules that are drawn afresh; each is changed for its share of the tries. */
  readonly starts: number;
}

/** @returns what went wrong in some schedule, or undefined */
export function searchForBreak(plan: ExecutionPlan, options: SearchOptions): string | undefined {
  const random = new Random(options.seed ^ 0x5bd1e995);
  const places = plan.ranks.flatMap(({ rank, strands }) =>
    strands.flatMap(({ id, ops }) => ops.map((_, op) => `${rank}:${id}:${op}`)),
  );
  const agents = plan.ranks.length + plan.ranks.reduce((sum, { strands }) => sum + strands.length, 0);
  let contents: string | undefined;
  const attempt = ({ seed, habits, held }: Schedule): { run: Run; broken: string | undefined } => {
    const { unitsPerChunk, launches } = options;
    const run = runAndLook(plan, { seed, habits, holdBack: held, unitsPerChunk, launches, contents: options.seed });
    contents ??= run.contents;
    const differs = run.outcome === undefined && contents !== run.contents;
    return { run, broken: differs ? "what the buffers hold at the end depends on timing" : run.outcome };
  };
  const fresh = (): Schedule => ({
    seed: random.u32(),
    habits: {
      stale: random.pick([0, 0.3, 0.9]),
      eager: random.pick([1, 0.3, 0.02]),
      hurry: random.pick([0.05, 0.5, 0.98]),
      weights: Array.from({ length: agents }, () => 2 ** -random.below(8)),
    },
    held: places.length === 0 || random.chance(0.4) ? [] : [random.pick(places)],
  });
  const changed = ({ seed, habits, held }: Schedule): Schedule => {
    switch (random.below(5)) {
      case 0:
        return { seed: random.u32(), habits, held };
      case 1: {
        const weights = habits.weights.map((weight, i) =>
          i === random.below(agents) ? 2 ** -random.below(10) : weight,
        );
        return { seed, habits: { ...habits, weights }, held };
      }
      case 2:
        return places.length === 0
          ? { seed, habits, held }
          : { seed, habits, held: [...held, random.pick(places)].slice(-4) };
      case 3:
        return { seed, habits, held: held.slice(1) };
      default:
        return {
          seed,
          habits: { ...habits, stale: random.fraction(), eager: random.fraction() ** 2, hurry: random.fraction() },
          held,
        };
    }
  };
  const each = Math.max(1, Math.floor(options.tries / options.starts));
  for (let start = 0; start < options.starts; start++) {
    let best = fresh();
    let { run, broken } = attempt(best);
    if (broken !== undefined) return broken;
    let score = run.tension;
    for (let i = 1; i < each; i++) {
      const next = changed(best);
      ({ run, broken } = attempt(next));
      if (broken !== undefined) return broken;
      if (run.tension < score) continue;
      score = run.tension;
      best = next;
    }
  }
  return undefined;
}
