/**
 * `launch()` for tests of what ranks do in a world, not of how they start and end: threads that ended well are kept for the next
 * world of the test file. Starting a thread and loading its backend takes 0.1 s of CPU, more than most such tests do.
 */
import { closeRankPool, launch as launchFresh, runRanks } from "chorale/world";
import { afterAll } from "vitest";

export const launch = ((options: Parameters<typeof launchFresh>[0]) => {
  const { ranks, run, isolation, ...more } = options as typeof options & { readonly run?: (world: never) => unknown };
  return run === undefined || isolation === "process" ? launchFresh(options) : runRanks(ranks, run, more as never);
}) as typeof launchFresh;

afterAll(closeRankPool);
