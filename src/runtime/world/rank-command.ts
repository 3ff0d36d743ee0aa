/** How a rank that is a process of its own is started: this process's Node with this process's flags. */
import { fileURLToPath } from "node:url";
import { loadableUrl } from "./package-location.ts";

/** Flags of this process that say what program to run: a rank must not inherit them. */
export const PROGRAM_FLAGS = /^(-e|-p|-pe|-c|--(eval|print|check|test|input-type|entry-url|watch|inspect-brk))\b/;
/** A process inherits this one's debugger port, and cannot have it. */
const DEBUGGER_FLAGS = /^--inspect/;
/** Does from the start what debug-signal.ts does once it runs; Node 20 does not have it. */
const NO_DEBUG_SIGNAL = "--disable-sigusr1";

/** @returns the program and its arguments @throws UnavailableError when the package was not built */
export function rankCommand(): readonly [string, ...string[]] {
  const own = process.execArgv.some((flag) => PROGRAM_FLAGS.test(flag)) ? [] : process.execArgv;
  const flags = own.filter((flag) => !DEBUGGER_FLAGS.test(flag));
  if (process.allowedNodeEnvironmentFlags.has(NO_DEBUG_SIGNAL)) flags.push(NO_DEBUG_SIGNAL);
  return [process.execPath, ...flags, fileURLToPath(loadableUrl("runtime/world/rank-entry"))];
}
