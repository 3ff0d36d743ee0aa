/** What the campaigns of launchers share: free ports, and the processes that one of them started, however deep. */
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";

/** A port of 127.0.0.1 that nothing listens on. */
export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

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
