/** Worlds of the faulty program (test/e2e/ranks/faulty.ts), in which one rank goes wrong. */

import type { WorldEvent } from "../../src/runtime/world/events.ts";
import { launch } from "../../src/runtime/world/launch.ts";
import type { LaunchOptions } from "../../src/runtime/world/launch-options.ts";
import type { How, Plan, Report } from "../e2e/ranks/faulty.ts";

const module = new URL("../e2e/ranks/faulty.ts", import.meta.url);

type Options = Partial<Omit<LaunchOptions<Report, Plan>, "run" | "module">>;

/** Runs the faulty program with one fault of rank 1, and hears what happened. */
export async function withFault(how: How, options: Options = {}) {
  const events: WorldEvent[] = [];
  const results = await launch<Report, Plan>({
    ranks: 3,
    module,
    onFailure: "respawn",
    rebuildTimeoutMs: 60_000,
    data: { steps: 3, timeoutMs: 20_000, faults: [{ generation: 1, rank: 1, how, step: 1 }] },
    onEvent: (event) => events.push(event),
    onOutput: () => {},
    ...options,
  });
  return { results, events };
}
