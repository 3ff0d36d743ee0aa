/**
 * Keeps ranks from answering SIGUSR1. Node opens its inspector on 127.0.0.1:9229 at that signal, and every user of the
 * machine who can reach the port can run code in the process. MPICH's launcher sends it to all survivors when a rank
 * ends, and Slurm sends it as a warning to jobs that ask for one (--signal=USR1).
 */
const ignore = (): void => {};

/**
 * Replaces Node's answer to the signal in this process by none; the program's own listeners are called as before. It lasts for
 * as long as the process does: without a listener the signal would end it. Threads cannot listen, so there it does nothing.
 */
export function ignoreDebugSignal(): void {
  if (!process.listeners("SIGUSR1").includes(ignore)) process.on("SIGUSR1", ignore);
}
