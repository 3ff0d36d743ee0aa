/** Leaving a process of which a thread is stuck. */
import { writeSync } from "node:fs";
import { inspect } from "node:util";
import { koffi } from "./koffi.ts";

/**
 * Ends the process at once. `process.exit` waits for the pool's threads and for workers, and so forever when one of them is
 * stuck in a foreign library or a system call; the C library's `_exit` does not. Without FFI the process kills itself,
 * and the code is lost. Output must have been written before.
 * @param told what hears of the end, as process.exit() has its listeners hear of it; where one throws, code 0 becomes 1
 */
export function exitNow(code: number, told: readonly NodeJS.ExitListener[] = process.listeners("exit")): never {
  const numThrown = told.filter((listener) => !isHeard(listener, code)).length;
  const left = code === 0 && numThrown > 0 ? 1 : code;
  if (process.platform !== "win32") {
    try {
      koffi().load(null).func("_exit", "void", ["int"])(left);
    } catch {
      process.kill(process.pid, "SIGKILL");
    }
  }
  process.exit(left);
}

/** Tells a listener of the end. One that throws must not keep the process: what it threw is printed. @returns false where it threw */
function isHeard(listener: NodeJS.ExitListener, code: number): boolean {
  try {
    listener.call(process, code);
    return true;
  } catch (error) {
    writeSync(2, `Uncaught:\n${inspect(error)}\n`);
    return false;
  }
}

/** prctl(2): the signal that the kernel sends when the thread of the parent that started this process ends. */
const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

/**
 * Asks the kernel to kill this process when its parent ends, even if this process is stuck. Linux only, and only where
 * FFI is there; elsewhere it does nothing.
 * @param parentPid the parent's number: a parent that ended before the call cannot be waited for
 */
export function endWithParent(parentPid: number): void {
  if (process.platform !== "linux") return;
  try {
    koffi().load(null).func("int prctl(int option, unsigned long value)")(PR_SET_PDEATHSIG, SIGKILL);
  } catch {
    return;
  }
  if (process.ppid !== parentPid) process.kill(process.pid, "SIGKILL");
}
