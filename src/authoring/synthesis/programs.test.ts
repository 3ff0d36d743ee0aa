import { describe, expect, it } from "vitest";
import { presetInventory } from "../../machine/topology/index.ts";
import { CERTIFIED_COLLECTIVES, type CertifiedCollective } from "../certificate/index.ts";
import { compile } from "../language/index.ts";
import { networkOf } from "./network-of.ts";
import { programOf } from "./program-of.ts";
import { synthesize } from "./synthesize.ts";

describe.each(["mi250x-8", "hgx-a100-8", "mi300x-8"])("on %s", (name) => {
  const network = networkOf(presetInventory(name));
  it.each(
    CERTIFIED_COLLECTIVES.flatMap((collective) =>
      [1, 3].map((pieces) => [collective, pieces] as [CertifiedCollective, number]),
    ),
  )("the program of %s in %i pieces is proved right", async (collective, pieces) => {
    const result = await synthesize(network, collective, {
      root: /^(scatter|gather|broadcast|reduce)$/.test(collective) ? 3 : 0,
    });
    expect(result.isOptimal).toBe(true);
    const plan = compile(programOf(result, { pieces }));
    expect(plan.ranks).toHaveLength(8);
  });
});
