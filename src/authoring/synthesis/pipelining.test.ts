import { describe, expect, it } from "vitest";
import { publishedNetwork, publishedTopologies } from "../../../test/support/published-topologies.ts";
import { spread } from "../../../test/support/spread.ts";
import { presetInventory } from "../../machine/topology/index.ts";
import { compile } from "../language/index.ts";
import { parametersFor, simulate } from "../simulator/index.ts";
import { inventoryOf } from "./inventory-of.ts";
import { networkOf } from "./network-of.ts";
import { piecesFor, pipelinedTime, waveTimeUs } from "./pipelining.ts";
import { programOf } from "./program-of.ts";
import { numHops } from "./schedule-hops.ts";
import { STRAND_LAYOUTS } from "./schedule-layout.ts";
import { fastestStrands } from "./strand-choice.ts";
import { synthesize } from "./synthesize.ts";

describe("pieces", () => {
  it("are as many as make the pipelined time least", () => {
    const best = piecesFor(7, 2, 1000, 256);
    const time = (pieces: number) => pipelinedTime(7, 2, 1000, pieces);
    expect(best).toBe(55);
    expect(time(best)).toBeLessThan(Math.min(time(best - 3), time(best + 3)));
    expect([piecesFor(1, 2, 1000), piecesFor(7, 0, 1000)]).toEqual([1, 1]);
  });

  it("of a line of three go one after another, and the wave's busiest link counts", async () => {
    const edge = (from: string, to: string, capacity: string) => ({ from, to, capacity });
    const result = await synthesize(
      {
        nodes: ["a", "b", "c"].map((id) => ({ id, kind: "rank" })),
        edges: [edge("a", "b", "10"), edge("b", "a", "10"), edge("b", "c", "5"), edge("c", "b", "5")],
      },
      "broadcast",
    );
    // 1 MB: 100 us to b, 200 us to c. Four pieces: 25 us, then 50 us four times; the step to b hides behind the step to c.
    expect(waveTimeUs(result, 1e6, 4, 2)).toBeCloseTo(25 + 4 * 50 + 5 * 2, 9);
    expect(waveTimeUs(result, 1e6, 1, 2)).toBeCloseTo(100 + 200 + 2 * 2, 9);
    expect(waveTimeUs(result, 1e6, 4, 2)).toBeLessThan(pipelinedTime(2, 2, 200, 4));
  });

  // On links alone. Only trees of the greatest height take what the formula says: all others end before.
  const machines = [
    ["hgx-h100-8", "all_reduce"],
    ["mi300x-8", "all_reduce"],
    ["mi250x-8", "all_gather"],
  ] as const;
  it.each(spread(machines, 3))(
    "keep %s, %s of 1 GB, below the formula, many of them within a twentieth of the fluid time",
    async (preset, collective) => {
      const inventory = presetInventory(preset);
      const result = await synthesize(networkOf(inventory), collective);
      const parameters = parametersFor("ideal");
      const timeIn = (pieces: number) =>
        simulate(compile(programOf(result, { pieces }), { verify: false }), { inventory, parameters, sizeBytes: 1e9 })
          .timeUs;
      const fluidUs = result.time.toNumber() * 1e6;
      const [few, many] = [timeIn(8), timeIn(64)];
      for (const [timeUs, pieces] of [
        [few, 8],
        [many, 64],
      ] as const) {
        expect(timeUs).toBeLessThanOrEqual(1.05 * pipelinedTime(result.height, 0.5, fluidUs, pieces));
        expect(timeUs).toBeGreaterThanOrEqual(fluidUs * (1 - 1e-9));
      }
      expect(many).toBeLessThan(1.05 * fluidUs);
      expect(Math.abs(many / waveTimeUs(result, 1e9, 64, 0.5) - 1)).toBeLessThan(0.05);
    },
  );
});

it("follows the certified ways over GPUs outside the group", async () => {
  const published = publishedTopologies.find(({ name }) => name === "dgx1_v100_group4");
  const network = publishedNetwork(published as (typeof publishedTopologies)[number]);
  for (const collective of ["all_gather", "all_reduce", "all_to_all"] as const) {
    const result = await synthesize(network, collective);
    const plan = compile(programOf(result, { pieces: 16 }), { verify: false });
    const machine = { inventory: inventoryOf(network), parameters: parametersFor("ideal"), sizeBytes: 1e9 };
    // By the simulator's own choice of ways it was up to three times as long.
    expect(simulate(plan, machine).timeUs).toBeLessThan(1.05 * result.time.toNumber() * 1e6);
  }
});

it("takes strands that keep every tree at its own rate, where ways share a switch", async () => {
  const published = publishedTopologies.find(({ name }) => name === "pcie_2s_8gpu_x8slot");
  const network = publishedNetwork(published as (typeof publishedTopologies)[number]);
  const result = await synthesize(network, "all_reduce");
  const strands = fastestStrands(result, 1e9, { pieces: 64 });
  const plan = compile(programOf(result, { pieces: 64, strands }), { verify: false });
  const machine = { inventory: inventoryOf(network), parameters: parametersFor("ideal"), sizeBytes: 1e9 };
  // With a strand for each way, one tree runs ahead and another comes late: 1.137 of the fluid time instead of 1.047.
  const formula = pipelinedTime(result.height, 0.5, result.time.toNumber() * 1e6, 64);
  expect(simulate(plan, machine).timeUs).toBeLessThan(1.05 * formula);
});

it("gives every way a strand where no two ways share a link, and where links differ by direction", async () => {
  const edge = (from: string, to: string, capacity: string) => ({ from, to, capacity });
  const ranks = ["a", "b"].map((id) => ({ id, kind: "rank" as const }));
  const direct = { nodes: ranks, edges: [edge("a", "b", "10"), edge("b", "a", "10")] };
  expect(fastestStrands(await synthesize(direct, "all_gather"), 1e6)).toBe("ways");
  const relay = {
    nodes: [...ranks, { id: "s", kind: "relay" as const }],
    edges: [edge("a", "s", "10"), edge("s", "a", "5"), edge("b", "s", "10"), edge("s", "b", "5")],
  };
  expect(fastestStrands(await synthesize(relay, "all_gather"), 1e6)).toBe("ways");
});

/** Minutes, for all of them: `CHORALE_SYNTHESIS=all`, one topology at a time with `-t NAME`. */
describe.runIf(process.env.CHORALE_SYNTHESIS === "all").each(
  publishedTopologies.filter(({ name }) => name !== "teccl_dgx2_x2"), // its links differ by direction: no simulation
)("$name", (published) => {
  const network = publishedNetwork(published);
  it.each(["all_gather", "all_reduce"] as const)(
    "%s of 1 GB: the plan is proved right, and takes at most what the formula says",
    async (collective) => {
      const result = await synthesize(network, collective);
      expect(result.isOptimal).toBe(true);
      // Proved by the verifier, as `compile` does; with the many pieces of the simulation it would take minutes.
      compile(programOf(result, { pieces: 1 }));
      // Until the formula is near the fluid time, as far as the simulation takes seconds.
      const fluidUs = result.time.toNumber() * 1e6;
      const formulaFor = (count: number) => pipelinedTime(result.height, 0.5, fluidUs, count) / fluidUs;
      let pieces = 1;
      while (formulaFor(pieces) > 1.04 && numHops(result.schedule) * pieces * 2 <= 60_000) pieces *= 2;
      const inventory = inventoryOf(network);
      const fastest = { timeUs: Number.POSITIVE_INFINITY, strands: "" };
      for (const strands of STRAND_LAYOUTS) {
        const plan = compile(programOf(result, { pieces, strands }), { verify: false });
        const options = { inventory, parameters: parametersFor("ideal"), sizeBytes: 1e9, untilUs: fastest.timeUs };
        const { timeUs, completed } = simulate(plan, options);
        if (completed && timeUs < fastest.timeUs) Object.assign(fastest, { timeUs, strands });
      }
      const { timeUs, strands } = fastest;
      const formula = formulaFor(pieces);
      const waves = waveTimeUs(result, 1e9, pieces, 0.5) / fluidUs;
      const times = [formula, waves, timeUs / fluidUs / waves, timeUs / fluidUs].map((ratio) => ratio.toFixed(3));
      const row = [published.name, collective, `${result.height} of ${result.heightBound}`, pieces, fluidUs.toFixed(0)];
      console.log(`| ${[...row, ...times, strands].join(" | ")} |`);
      expect(timeUs).toBeGreaterThanOrEqual(fluidUs * (1 - 1e-9));
      expect(waves).toBeLessThanOrEqual(formula * (1 + 1e-9));
      expect(timeUs).toBeLessThanOrEqual(1.05 * formula * fluidUs);
    },
    180_000,
  );
});
