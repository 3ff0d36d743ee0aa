/** What the campaigns of launchers share: the processes that one of them started, however deep. */
import { readdirSync, readFileSync } from "node:fs";

/** Processes whose environment has CHORALE_CAMPAIGN=`tag`: those that a campaign started, and what they started. */
export function processesOf(tag) {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    if (pid === process.pid) return false;
    try {
      return readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(`CHORALE_CAMPAIGN=${tag}`);
    } catch {
      return false;
    }
  });
}
