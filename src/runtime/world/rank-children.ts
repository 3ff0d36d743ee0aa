/**
 * What ranks that are threads have started: their thread's end does not end it, and no process group tells it from the
 * launcher's other children. The rank says what it starts; the launcher ends it, and what that started, when the rank fails.
 */
import type { ChildProcess, SpawnOptions } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";
import { readdirSync, readFileSync } from "node:fs";

/** In a rank's thread: reports each child that is not detached, at once when it starts and when it has ended. */
export function reportChildren(report: (pid: number, isAlive: boolean) => void): void {
  // Of spawn, exec, execFile and fork alike, in ranks that load node:child_process: it takes a thread as long to load as a
  // tenth of its start. The channel tells of a child before there is a process, and a rank that blocks right after `spawn`
  // would never say its number if it waited for the child's event.
  subscribe("child_process", (message) => {
    const child = (message as { process: ChildProcess & { spawn(options: SpawnOptions): unknown } }).process;
    const { spawn } = child;
    child.spawn = (options) => {
      const result = spawn.call(child, options);
      const { pid } = child;
      if (pid !== undefined && options.detached !== true) {
        report(pid, true);
        child.once("exit", () => report(pid, false));
      }
      return result;
    };
  });
}

/** Ends processes and, on Linux, all that they have started. Those that are gone are ignored. */
export function endAll(pids: Iterable<number>): void {
  // All numbers first: the children of a dead process are another's.
  for (const pid of [...pids].flatMap(withDescendants)) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // Gone, or not ours.
    }
  }
}

function withDescendants(pid: number): readonly number[] {
  try {
    const children = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").split(" ").filter(Boolean).map(Number),
    );
    return [pid, ...children.flatMap(withDescendants)];
  } catch {
    return [pid];
  }
}
