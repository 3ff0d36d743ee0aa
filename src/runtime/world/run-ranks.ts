/** For tests: worlds by the hundred, on worker threads that are kept between them. */
import { runWorld } from "./launch.ts";
import type { LaunchOptions } from "./launch-options.ts";
import type { RankHost } from "./rank-host.ts";
import { RankWorker } from "./rank-worker.ts";

/** Idle threads that are kept. More than this many ranks at once are started anew each time. */
const MAX_IDLE = 16;
const idle: RankHost[] = [];

/**
 * Runs a function, or a module's default function, on `n` ranks and gives their results by rank. Unlike `launch()` it
 * keeps the threads for the next call, so that a world starts in a millisecond: a module's top level runs once per
 * thread, not once per world. The threads of a world that failed are not kept.
 * @throws what `launch()` throws
 * @example
 * import { closeRankPool, runRanks } from "chorale/world";
 *
 * console.log(await runRanks(2, (world) => world.rank)); // [0, 1]
 * await closeRankPool();
 */
export async function runRanks<R, D = undefined>(
  n: number,
  what: NonNullable<LaunchOptions<R, D>["run"]> | { readonly module: string | URL },
  options: Omit<LaunchOptions<R, D>, "ranks" | "run" | "module"> = {},
): Promise<R[]> {
  const task = typeof what === "function" ? { run: what } : { module: what.module };
  return runWorld<R, D>({ ...options, ...task, ranks: n } as LaunchOptions<R, D>, take, true, give);
}

/** Ends the threads that `runRanks` keeps. They do not keep the process alive; this frees their memory. */
export async function closeRankPool(): Promise<void> {
  const exits = idle.splice(0).map(
    (worker) =>
      new Promise<void>((resolve) => {
        worker.listen({ line() {}, message() {}, crash() {}, exit: () => resolve() });
        worker.setIdle(false);
        worker.terminate();
      }),
  );
  await Promise.all(exits);
}

function take(): RankHost {
  let worker = idle.pop();
  while (worker?.exited) worker = idle.pop();
  worker ??= new RankWorker();
  worker.setIdle(false);
  return worker;
}

function give(worker: RankHost): void {
  worker.listen(undefined);
  if (idle.length >= MAX_IDLE) {
    worker.terminate();
    return;
  }
  worker.setIdle(true);
  idle.push(worker);
}
