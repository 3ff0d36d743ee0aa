import { describe, expect, it } from "vitest";
import { presetInventory } from "../../machine/topology/index.ts";
import { compile } from "../language/index.ts";
import { parametersFor, simulate } from "../simulator/index.ts";
import { networkOf } from "./network-of.ts";
import { piecesFor, pipelinedTime } from "./pipelining.ts";
import { programOf } from "./program-of.ts";
import { synthesize } from "./synthesize.ts";

describe("pieces", () => {
  it("are as many as make the pipelined time least", () => {
    const best = piecesFor(7, 2, 1000, 256);
    const time = (pieces: number) => pipelinedTime(7, 2, 1000, pieces);
    expect(best).toBe(55);
    expect(time(best)).toBeLessThan(Math.min(time(best - 3), time(best + 3)));
    expect([piecesFor(1, 2, 1000), piecesFor(7, 0, 1000)]).toEqual([1, 1]);
  });

  // On links alone. Only trees of the greatest height take what the formula says: all others end before.
  it.each([
    ["hgx-h100-8", "all_reduce"],
    ["mi300x-8", "all_reduce"],
    ["mi250x-8", "all_gather"],
  ] as const)(
    "keep %s, %s of 1 GB, below the formula, many of them within a twentieth of the fluid time",
    async (preset, collective) => {
      const inventory = presetInventory(preset);
      const result = await synthesize(networkOf(inventory), collective);
      const parameters = parametersFor("ideal");
      const timeIn = (pieces: number) =>
        simulate(compile(programOf(result, { pieces }), { verify: false }), { inventory, parameters, sizeBytes: 1e9 })
          .timeUs;
      const fluidUs = result.time.toNumber() * 1e6;
      for (const pieces of [8, 64]) {
        expect(timeIn(pieces)).toBeLessThanOrEqual(1.05 * pipelinedTime(result.height, 0.5, fluidUs, pieces));
        expect(timeIn(pieces)).toBeGreaterThanOrEqual(fluidUs * (1 - 1e-9));
      }
      expect(timeIn(64)).toBeLessThan(1.05 * fluidUs);
    },
  );
});
