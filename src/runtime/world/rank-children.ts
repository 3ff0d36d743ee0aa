/**
 * What ranks that are threads have started: their thread's end does not end it, and no process group tells it from the
 * launcher's other children. The rank says what it starts; the launcher ends it, and what that started, when the rank fails.
 */
import { ChildProcess, type SpawnOptions } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

/** In a rank's thread: reports each child that is not detached, at once when it starts and when it has ended. */
export function reportChildren(report: (pid: number, isAlive: boolean) => void): void {
  // Of spawn, exec, execFile and fork alike. The channel `child_process` of diagnostics_channel comes before there is a
  // process, and a rank that blocks right afterwards would never say its number.
  const prototype = ChildProcess.prototype as unknown as { spawn(options: SpawnOptions): unknown };
  const { spawn } = prototype;
  prototype.spawn = function (this: ChildProcess, options: SpawnOptions): unknown {
    const result = spawn.call(this, options);
    const { pid } = this;
    if (pid !== undefined && options.detached !== true) {
      report(pid, true);
      this.once("exit", () => report(pid, false));
    }
    return result;
  };
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
