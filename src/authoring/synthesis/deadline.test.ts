import { afterEach, describe, expect, it, vi } from "vitest";
import { TimeoutError } from "../../core/index.ts";
import { presetInventory } from "../../machine/topology/index.ts";
import { checkCertificate } from "../certificate/index.ts";
import { compile } from "../language/index.ts";
import { certify, lowerBound, networkOf, programOf, type Synthesis, synthesize } from "./index.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

const network = networkOf(presetInventory("mi250x-8"));

/** Each look at the clock takes a millisecond: what is found in a time does not depend on the machine. */
async function within(looks: number, collective: Parameters<typeof synthesize>[1], options = {}): Promise<Synthesis> {
  let now = 0;
  vi.spyOn(performance, "now").mockImplementation(() => now++);
  try {
    return await synthesize(network, collective, { ...options, timeLimitSeconds: looks / 1000 });
  } finally {
    vi.restoreAllMocks();
  }
}

describe("a time limit", () => {
  it.each(["all_gather", "all_reduce", "all_to_all"] as const)(
    "ends a search of %s with the best schedule so far, and before there is one with an error",
    async (collective) => {
      await expect(within(2, collective)).rejects.toThrow(
        `the search for a schedule of ${collective} did not complete within 2 ms`,
      );
      const found: Synthesis[] = [];
      for (const looks of [64, 128, 256, 512, 1e6]) {
        const result = await within(looks, collective).catch((error: unknown) => error);
        if (!(result instanceof TimeoutError)) found.push(result as Synthesis);
      }
      expect(found[0]).toMatchObject({ status: "timeLimit", isOptimal: false });
      expect(found.at(-1)).toMatchObject({ status: "complete", isOptimal: true });
      for (const [i, { time, bound }] of found.entries()) {
        expect(time.compare(bound)).toBeGreaterThanOrEqual(0);
        expect(time.compare(found[i - 1]?.time ?? time)).toBeLessThanOrEqual(0);
      }
      const [first] = found as [Synthesis, ...Synthesis[]];
      expect(compile(programOf(first)).ranks).toHaveLength(8);
      expect(checkCertificate(certify(found.at(-1)!)).ok).toBe(true);
    },
  );

  it("has nothing to fall back on where the form of the schedule is given", async () => {
    await expect(within(40, "all_gather", { treesPerRoot: 1 })).rejects.toThrow(TimeoutError);
  });

  it("is refused when it is no time, and holds for bounds alone", async () => {
    for (const timeLimitSeconds of [0, -1, Number.NaN, "5" as unknown as number])
      await expect(synthesize(network, "all_gather", { timeLimitSeconds })).rejects.toThrow(
        /timeLimitSeconds is .*; expected a number of seconds above 0/,
      );
    await expect(lowerBound(network, "all_gather", { timeLimitSeconds: 1e-9 })).rejects.toThrow(
      "the search for the bound of all_gather did not complete within",
    );
    expect((await synthesize(network, "all_gather")).status).toBe("complete");
  });
});
