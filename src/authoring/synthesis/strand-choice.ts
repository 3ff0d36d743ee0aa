/** Which layout of strands suits a schedule: each is simulated on the schedule's own links, and the fastest is taken. */
import { UnsupportedError } from "../../core/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { compile } from "../language/index.ts";
import { parametersFor, simulate } from "../simulator/index.ts";
import { inventoryOf } from "./inventory-of.ts";
import { type ProgramSettings, programOf } from "./program-of.ts";
import { numHops, passesRelays } from "./schedule-hops.ts";
import { STRAND_LAYOUTS, type StrandLayout } from "./schedule-layout.ts";
import type { Synthesis } from "./synthesize.ts";

/** Plans of more hops than this take too long to simulate four times. */
const MOST_HOPS = 12_000;

/**
 * The layout whose plan takes least time on links that cost nothing but their rate and latency. `ways` where that cannot be
 * told: links that differ by direction, or more than 12,000 hops; and where no data passes a switch or another relay, for
 * then no two ways share a link.
 * @param sizeBytes the larger of a rank's two buffers
 * @throws as `programOf`
 * @example
 * import { fastestStrands, networkOf, programOf, synthesize } from "chorale/synthesis";
 * import { compile } from "chorale/language";
 * import { presetInventory } from "chorale/topology";
 * const result = await synthesize(networkOf(presetInventory("l40s-8")), "all_reduce");
 * const strands = fastestStrands(result, 2 ** 26, { pieces: 8 });
 * console.log(strands, compile(programOf(result, { pieces: 8, strands })).ranks.length);
 */
export function fastestStrands(
  result: Synthesis,
  sizeBytes: number,
  settings: Omit<ProgramSettings, "strands"> = {},
): StrandLayout {
  const { schedule, network } = result;
  if (!passesRelays(schedule, network) || numHops(schedule) * (settings.pieces ?? 1) > MOST_HOPS) return "ways";
  let inventory: Inventory;
  try {
    inventory = inventoryOf(network);
  } catch (error) {
    if (error instanceof UnsupportedError) return "ways";
    throw error;
  }
  const parameters = parametersFor("ideal");
  let fastest: StrandLayout = "ways";
  let untilUs = Number.POSITIVE_INFINITY;
  for (const strands of STRAND_LAYOUTS) {
    const plan = compile(programOf(result, { ...settings, strands }), { verify: false });
    const { completed, timeUs } = simulate(plan, { inventory, parameters, sizeBytes, untilUs });
    if (!completed || timeUs >= untilUs) continue;
    fastest = strands;
    untilUs = timeUs;
  }
  return fastest;
}
