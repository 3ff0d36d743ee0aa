import { describe, expect, it } from "vitest";
import { ALGORITHMS } from "../../src/authoring/algorithms/index.ts";
import { compile } from "../../src/authoring/language/index.ts";
import type { ExecutionPlan } from "../../src/authoring/plan/execution-plan.ts";
import { planPostcondition } from "../../src/authoring/plan/plan-conditions.ts";
import { simulate } from "../../src/authoring/simulator/index.ts";
import { expectationOf } from "../../src/authoring/verifier/expected-output.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { ChoraleError } from "../../src/core/index.ts";
import { presetInventory } from "../../src/machine/topology/index.ts";
import { campaign } from "./campaign.ts";
import { Random } from "./random.ts";

describe("the verifier against the oracle", () => {
  it("passes no mutant that a run breaks and flags no equivalent change (75 mutants; npm run mutation for 20,000)", {
    timeout: 120_000,
  }, () => {
    const seed = 77;
    const result = campaign({ mutants: 75, seed, runs: 12, maxOps: 60, every: 7 });
    expect(result.missed, `seed ${seed}`).toEqual([]);
    expect(result.falseAlarms, `seed ${seed}`).toEqual([]);
    expect(result.flagged).toBeGreaterThan(15);
    expect(result.confirmed / result.flagged).toBeGreaterThan(0.95);
  });

  it("expects of every chunk what the collective does", () => {
    for (const algorithm of ALGORITHMS) {
      const plan = compile(algorithm.make({ numRanks: 4 }), { verify: false });
      const expected = expectationOf(plan);
      planPostcondition(plan)?.forEach((chunks, rank) => {
        chunks.forEach((value, chunk) => {
          const own = expected(rank, chunk);
          const refs =
            own === undefined
              ? null
              : own.kind === "copy"
                ? [{ rank: own.rank, chunk: own.chunk }]
                : own.kind === "reduce"
                  ? own.from
                  : plan.ranks.map((r) => ({ rank: r.rank, chunk: own.chunk }));
          expect(refs, `${algorithm.name} rank ${rank} chunk ${chunk}`).toEqual(
            value === null ? null : value.kind === "copy" ? [value.from] : value.from,
          );
        });
      });
    }
  });
});

/** Changes one number, word or list of a plan to something it should not be. */
function spoil(plan: ExecutionPlan, random: Random): ExecutionPlan {
  const copy = structuredClone(plan);
  const slots: { holder: Record<string, unknown>; key: string }[] = [];
  const walk = (value: unknown, depth: number) => {
    if (typeof value !== "object" || value === null || depth > 12) return;
    for (const key of Object.keys(value)) {
      slots.push({ holder: value as Record<string, unknown>, key });
      walk((value as Record<string, unknown>)[key], depth + 1);
    }
  };
  walk({ ranks: copy.ranks, collective: copy.collective }, 0);
  for (let i = 0; i <= random.below(3); i++) {
    const { holder, key } = random.pick(slots);
    const old = holder[key];
    if (typeof old === "number") holder[key] = random.pick([-1, old + 1, old - 1, 1e9, 0.5, Number.NaN, 2 ** 31, 0]);
    else if (typeof old === "boolean") holder[key] = !old;
    else if (typeof old === "string")
      holder[key] = random.pick(["input", "output", "scratch", "memory", "port", "pack", "nothing", ""]);
    else if (Array.isArray(old)) holder[key] = random.chance(0.5) ? [] : [...old, ...old.slice(0, 1)];
  }
  return copy;
}

describe("malformed plans", () => {
  it("are findings or typed errors, never crashes or hangs (250 here; FUZZ=5000 for more)", {
    timeout: 120_000,
  }, () => {
    const total = Number(process.env["FUZZ"] ?? 250);
    const inventory = presetInventory("hgx-h100-8");
    const bases = ALGORITHMS.map((algorithm) =>
      compile(algorithm.make({ numRanks: algorithm.legal(3) ? 3 : 4 }), { verify: false }),
    );
    let bad = 0;
    for (let seed = 0; seed < total; seed++) {
      const random = new Random(seed);
      const plan = spoil(bases[seed % bases.length]!, random);
      const started = performance.now();
      const verdict = verifyPlan(plan, { promises: { outputAtRankEnd: true } });
      if (!verdict.ok) bad++;
      // The simulator takes what the verifier holds to be well formed; anything else is not its business.
      if (!verdict.findings.some((f) => f.code === "malformed" || f.code === "wrong-peer" || f.code === "undecided")) {
        try {
          simulate(plan, { inventory, sizeBytes: 4096 });
        } catch (error) {
          expect(error, `seed ${seed}`).toBeInstanceOf(ChoraleError);
        }
      }
      expect(performance.now() - started, `seed ${seed}`).toBeLessThan(20_000);
    }
    expect(bad).toBeGreaterThan(total * 0.3);
  });
});
