/** The plans that mutants are made of: the library at several sizes, and MSCCL++'s own programs where they are at hand. */
import { ALGORITHMS } from "../../src/authoring/algorithms/index.ts";
import { readMscclpp } from "../../src/authoring/interchange/read-mscclpp-json.ts";
import { compile } from "../../src/authoring/language/index.ts";
import { countOps, type ExecutionPlan } from "../../src/authoring/plan/execution-plan.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { sendersOf } from "./judge.ts";

export interface Base {
  readonly name: string;
  readonly plan: ExecutionPlan;
  /** Launches may follow each other. */
  readonly relaunches: boolean;
  readonly sendTo?: readonly (number | null)[] | undefined;
}

const relaunches = (plan: ExecutionPlan) => verifyPlan(plan, { lint: false, promises: { relaunch: true } }).ok;

/**
 * Every algorithm at 2 to 5 ranks, in and out of place, with one and two instances, over memory and port channels.
 * @param every only each n-th of them
 */
export function libraryBases(maxOps: number, every = 1): Base[] {
  const bases: Base[] = [];
  let count = 0;
  for (const algorithm of ALGORITHMS) {
    for (const numRanks of [2, 3, 4, 5]) {
      if (!algorithm.legal(numRanks)) continue;
      for (const inPlace of algorithm.inPlace ? [false, true] : [false]) {
        for (const instances of numRanks <= 3 ? [1, 2] : [1]) {
          for (const channel of ["memory", "port"] as const) {
            if (channel === "port" && (numRanks > 3 || algorithm.needsSwitch)) continue;
            if (count++ % every !== 0) continue;
            let plan: ExecutionPlan;
            try {
              plan = compile(algorithm.make({ numRanks, inPlace, instances, channel }));
            } catch {
              continue;
            }
            if (countOps(plan) > maxOps) continue;
            const name = `${algorithm.name} n=${numRanks}${inPlace ? " in place" : ""} x${instances} ${channel}`;
            bases.push({ name, plan, relaunches: relaunches(plan) });
          }
        }
      }
    }
  }
  return bases;
}

/**
 * Those of MSCCL++'s programs that are right.
 * @param lines of programs.jsonl: objects with `id` and `plan_text`
 * @param variants whether programs that differ in sizes or threads only all count
 */
export function mscclppBases(lines: readonly string[], maxOps: number, variants: "one" | "all" = "one"): Base[] {
  const bases: Base[] = [];
  const seen = new Set<string>();
  for (const line of lines) {
    const { id, plan_text: text } = JSON.parse(line) as { id: string; plan_text: string };
    const plan = readMscclpp(text, id);
    if (countOps(plan) > maxOps || !verifyPlan(plan, { lint: false }).ok) continue;
    const key = variants === "all" ? id : JSON.stringify([plan.collective, plan.ranks]);
    if (seen.has(key)) continue;
    seen.add(key);
    const isOpen = plan.collective.operation === "send_recv";
    bases.push({ name: id, plan, relaunches: relaunches(plan), sendTo: isOpen ? sendersOf(plan) : undefined });
  }
  return bases;
}
