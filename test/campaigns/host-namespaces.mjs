/** Pretended hosts: network namespaces of this machine, joined by a bridge. Needs root on Linux. */
import { execFileSync } from "node:child_process";

export const ip = (...words) => execFileSync("ip", words, { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });

/** Processes that are in a namespace. */
export const pidsIn = ({ ns }) => ip("netns", "pids", ns).split(/\s+/).filter(Boolean).map(Number);

/** Makes hosts, or exits with 3 where that is not permitted. `remove` ends what runs in them. */
export function makeHosts(count) {
  const hub = `cho${process.pid}-hub`;
  const hosts = Array.from({ length: count }, (_, i) => ({
    ns: `cho${process.pid}-h${i}`,
    port: `h${i}`,
    address: `10.77.0.${i + 1}`,
  }));
  const endAll = ({ ns }) => {
    for (const pid of pidsIn({ ns })) process.kill(pid, "SIGKILL");
  };
  const remove = () => {
    for (const ns of [...hosts.map((host) => host.ns), hub]) {
      try {
        endAll({ ns });
        ip("netns", "del", ns);
      } catch {
        // It was never made.
      }
    }
  };
  const setLink = (node, how) => ip("-n", hub, "link", "set", hosts[node].port, how);
  try {
    ip("netns", "add", hub);
    ip("-n", hub, "link", "add", "br0", "type", "bridge");
    ip("-n", hub, "link", "set", "br0", "up");
    hosts.forEach(({ ns, port, address }, node) => {
      ip("netns", "add", ns);
      ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns);
      ip("-n", hub, "link", "set", port, "master", "br0");
      setLink(node, "up");
      ip("-n", ns, "addr", "add", `${address}/24`, "dev", "eth0");
      ip("-n", ns, "link", "set", "eth0", "up");
      ip("-n", ns, "link", "set", "lo", "up");
    });
  } catch (error) {
    remove();
    process.stderr.write(`network namespaces are not permitted here: ${error.stderr ?? error.message}\n`);
    process.exit(3);
  }
  process.once("SIGTERM", () => {
    remove();
    process.exit(143);
  });
  return { hosts, setLink, endAll, remove };
}
