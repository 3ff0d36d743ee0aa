/** What a process holds, as numbers that must come back to where they were. */
import { readdirSync, readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

export interface HostGauges {
  readonly rssBytes: number;
  /** What this thread's JavaScript holds: tells more than the process's memory, of which V8 keeps what it once had. */
  readonly heapBytes: number;
  /** Open file descriptors; -1 where the system does not tell. */
  readonly fds: number;
  readonly threads: number;
}

let collect: (() => void) | undefined;

/** Collects garbage, twice and with a turn of the event loop between: finalisers of the first round free more. */
export async function collectGarbage(): Promise<void> {
  if (collect === undefined) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
  }
  for (let i = 0; i < 2; i++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Reads the gauges of this process. */
export function hostGauges(): HostGauges {
  let fds = -1;
  let threads = -1;
  try {
    fds = readdirSync("/proc/self/fd").length;
    threads = Number(/^Threads:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? -1);
  } catch {
    // Not Linux: memory alone is told.
  }
  const { rss, heapUsed } = process.memoryUsage();
  return { rssBytes: rss, heapBytes: heapUsed, fds, threads };
}
