/**
 * Ports of loopback for programs that must be told theirs beforehand, as the launchers of several hosts are. They lie below those
 * that the system gives away by itself: whoever asks it for any port, or connects, takes none of them meanwhile.
 */
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";

const LOWEST = 10_000;
const given = new Set();

/** The first port that the system gives away by itself. */
function firstOfSystem() {
  try {
    return Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10);
  } catch {
    return 32_768; // Linux's; on macOS it is 49,152.
  }
}

/** Finds a port of 127.0.0.1 that nobody listens on. No two calls of one process give the same. */
export async function freePort() {
  const end = firstOfSystem();
  for (let attempt = 0; attempt < 1000; attempt++) {
    // Where a system gives away nearly all ports, any one is as good as another.
    const port = end > LOWEST + 1000 ? randomInt(LOWEST, end) : randomInt(LOWEST, 65_536);
    if (given.has(port)) continue;
    const server = createServer();
    const isFree = await new Promise((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
    });
    if (!isFree) continue;
    given.add(port);
    return port;
  }
  throw new Error("no port of 127.0.0.1 was free in 1000 attempts");
}
