/** Attacks by hand: what they aim at, what the verifier says, and, for wrong plans, a run of the oracle that shows it. */
import { describe, expect, it } from "vitest";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { searchForBreak } from "./adversary.ts";
import { type Attack, ATTACKS as FIRST } from "./attacks.ts";
import { MEANING_ATTACKS } from "./attacks-of-meanings.ts";
import { SHORTCUT_ATTACKS } from "./attacks-of-shortcuts.ts";
import { SIZE_ATTACKS } from "./attacks-of-sizes.ts";
import { UNKNOWN_ATTACKS } from "./attacks-of-unknowns.ts";

const ATTACKS = [...FIRST, ...SIZE_ATTACKS, ...UNKNOWN_ATTACKS, ...SHORTCUT_ATTACKS, ...MEANING_ATTACKS];

/** Whether some schedule breaks a plan, at some size. */
function breaks({ plan, relaunch, at }: Attack): boolean {
  const loops = plan.ranks.some(({ strands }) => strands.some(({ ops }) => ops.some((op) => op.kind === "pipeline")));
  const launches = relaunch === true ? 3 : 1;
  return (at ?? (loops ? [1, 2, 0.5, 3, 1.5] : [1])).some((unitsPerChunk) =>
    [1, 2, 3, 4].some(
      (seed) => searchForBreak(plan, { seed, unitsPerChunk, launches, tries: 60, starts: 5 }) !== undefined,
    ),
  );
}

describe("attacks by hand", () => {
  it("are sixty at least, each with an aim of its own", () => {
    expect(ATTACKS.length).toBeGreaterThanOrEqual(60);
    expect(new Set(ATTACKS.map(({ aim }) => aim)).size).toBe(ATTACKS.length);
  });

  it.each(ATTACKS.map((attack) => [attack.is, attack.aim, attack] as const))("%s: %s", (is, _, attack) => {
    const { plan, target, relaunch, unseen } = attack;
    const { ok, findings } = verifyPlan(plan, {
      lint: false,
      promises: { relaunch: relaunch === true },
      ...(target === undefined ? {} : { target }),
    });
    expect(ok, findings.map(({ code, message }) => `${code}: ${message}`).join("; ")).toBe(is === "right");
    if (unseen !== true) expect(breaks(attack), "some run breaks it").toBe(is === "wrong");
  });
});
