import { describe, expect, it } from "vitest";
import { runAndLook } from "../../../../test/oracle/interpreter.ts";
import { isShapeless } from "../../../../test/oracle/judge.ts";
import { randomPlan } from "../../../../test/oracle/random-plans.ts";
import { contentsAfter } from "../../../../test/support/contents-after.ts";
import { LocalRanks } from "../../../../test/support/local-ranks.ts";
import { verifyPlan } from "../../../authoring/verifier/index.ts";

describe("random plans on the CPU", () => {
  it("end as the oracle's runs do, bit for bit (150 verified ones here; EXECUTOR_PLANS=2000 for more)", {
    timeout: 3_600_000,
  }, () => {
    const wanted = Number(process.env["EXECUTOR_PLANS"] ?? 150);
    const first = Number(process.env["CHORALE_SEED"] ?? 1) * 1_000_000;
    const wrong: string[] = [];
    let verified = 0;
    for (let seed = first; verified < wanted; seed++) {
      const plan = randomPlan(seed);
      const verdict = verifyPlan(plan, { lint: false });
      if (!verdict.ok || isShapeless(verdict)) continue;
      verified++;
      const oracle = runAndLook(plan, { seed, contents: 7 });
      for (const perChunk of [1, 37]) {
        const ours = contentsAfter(new LocalRanks(plan, { dtype: "u32", seed }), 7, perChunk);
        if (oracle.contents !== ours)
          wrong.push(`seed ${seed}, ${perChunk} per chunk: ${ours}, oracle: ${oracle.contents}`);
      }
    }
    expect(wrong).toEqual([]);
  });
});
