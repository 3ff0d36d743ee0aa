/**
 * How a process ends that still holds communicators, in its threads or as a rank itself, after an uncaught error or
 * process.exit(). Node would stop the rank threads wherever they are and run the destructors of the C++ libraries, while
 * threads that NCCL started are still in their code: a crash that hides the error. Such a process exits without
 * destructors, and the driver frees what it held. A process whose worlds have ended exits as usual.
 */
import { writeSync } from "node:fs";
import { inspect } from "node:util";
import { isMainThread } from "node:worker_threads";
import { exitNow } from "../../../foreign/native/index.ts";

/** Each says whether it still holds communicators: worlds of threads of this process, and ranks that are its main thread. */
const standing = new Set<() => boolean>();
let uncaught: { readonly error: unknown } | undefined;

/**
 * Guards the exit of this process for as long as `holds` says that it holds communicators. For the main thread only:
 * others cannot end the process.
 * @returns ends the watch; idempotent
 */
export function guardExit(holds: () => boolean): () => void {
  if (!isMainThread) return () => {};
  if (standing.size === 0) {
    process.on("exit", leave);
    process.on("uncaughtExceptionMonitor", note);
  }
  standing.add(holds);
  return () => {
    if (!standing.delete(holds) || standing.size > 0) return;
    process.off("exit", leave);
    process.off("uncaughtExceptionMonitor", note);
  };
}

function note(error: unknown): void {
  if (process.listenerCount("uncaughtException") === 0) uncaught = { error };
}

function leave(code: number): void {
  if (![...standing].some((holds) => holds())) return;
  // Node prints an uncaught error after this event, which it no longer reaches.
  if (uncaught !== undefined) {
    writeSync(2, `Uncaught:\n${inspect(uncaught.error)}\n\nNode.js ${process.version}\n`);
  }
  const all = process.listeners("exit");
  exitNow(Number(process.exitCode ?? code), all.slice(all.indexOf(leave) + 1));
}
