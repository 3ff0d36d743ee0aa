/** Random plans that the verifier passes on an executor of the CPU, beside the oracle. */
import type { ExecutionPlan } from "../../src/authoring/plan/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { runAndLook } from "../oracle/interpreter.ts";
import { isShapeless } from "../oracle/judge.ts";
import { randomPlan } from "../oracle/random-plans.ts";
import { contentsAfter } from "./contents-after.ts";
import { LocalRanks, type RanksOfOneMemory } from "./local-ranks.ts";

/**
 * Compares what random plans that the verifier passes leave in their buffers with what the oracle's run of them leaves.
 * @param ranksOf an executor's ranks; those of one thread if not given
 */
export function randomPlansOnCpu(
  wanted: number,
  seed: number,
  ranksOf: (plan: ExecutionPlan, seed: number) => RanksOfOneMemory = (plan, seed) =>
    new LocalRanks(plan, { dtype: "u32", seed }),
): { readonly wrong: readonly string[] } {
  const wrong: string[] = [];
  let verified = 0;
  for (let at = seed * 1_000_000; verified < wanted; at++) {
    const plan = randomPlan(at);
    const verdict = verifyPlan(plan, { lint: false });
    if (!verdict.ok || isShapeless(verdict)) continue;
    verified++;
    const oracle = runAndLook(plan, { seed: at, contents: 7 });
    for (const perChunk of [1, 37]) {
      const ours = contentsAfter(ranksOf(plan, at), 7, perChunk);
      if (oracle.contents !== ours)
        wrong.push(`seed ${at}, ${perChunk} per chunk: ${ours}, oracle: ${oracle.contents}`);
    }
  }
  return { wrong };
}
