/**
 * Pretended hosts whose network this program is: each is a network namespace with a TUN device, and every packet between two
 * of them passes through here, where it can be delayed, lost or cut off. It stands in for netem and packet filters, which
 * many kernels have not. What is lost is sent again by the kernels' own TCP. Needs root on Linux, and koffi.
 */
import { closeSync, constants, openSync, read, writeSync } from "node:fs";
import koffi from "koffi";
import { ip, pidsIn } from "./host-namespaces.mjs";

const CLONE_NEWNET = 0x40000000;
const TUNSETIFF = 0x400454ca;
/** A device of packets of the internet protocol, without a header before them. */
const IFF_TUN_NO_PI = 0x1001;
const IFREQ_BYTES = 40;
const MTU = 9000;

const libc = koffi.load(null);
const setns = libc.func("int setns(int fd, int nstype)");
const ioctl = libc.func("int ioctl(int fd, unsigned long request, void *argp)");

/** Opens a TUN device within a namespace: the descriptor stays good outside. */
function openTun(ns) {
  const own = openSync("/proc/self/ns/net", "r");
  const other = openSync(`/var/run/netns/${ns}`, "r");
  try {
    if (setns(other, CLONE_NEWNET) !== 0) throw new Error(`cannot enter the namespace ${ns}`);
    const fd = openSync("/dev/net/tun", constants.O_RDWR | constants.O_NONBLOCK);
    const request = Buffer.alloc(IFREQ_BYTES);
    request.write("tun0", 0, "latin1");
    request.writeUInt16LE(IFF_TUN_NO_PI, 16);
    if (ioctl(fd, TUNSETIFF, request) !== 0) throw new Error("cannot make a TUN device");
    return fd;
  } finally {
    setns(own, CLONE_NEWNET);
    closeSync(own);
    closeSync(other);
  }
}

/**
 * Makes hosts, or exits with 3 where that is not permitted. A link is that of one host: what `shape` says of it counts for
 * all packets from and to it.
 */
export function makeTunHosts(count) {
  const hosts = Array.from({ length: count }, (_, i) => ({
    ns: `cho${process.pid}-t${i}`,
    address: `10.78.0.${i + 1}`,
    fd: -1,
    shape: {},
  }));
  const endAll = ({ ns }) => {
    for (const pid of pidsIn({ ns })) process.kill(pid, "SIGKILL");
  };
  let isOver = false;
  const remove = () => {
    isOver = true;
    for (const host of hosts) {
      try {
        endAll(host);
        ip("netns", "del", host.ns);
      } catch {
        // It was never made.
      }
      if (host.fd >= 0) closeSync(host.fd);
      host.fd = -1;
    }
  };
  const counts = { passed: 0, lost: 0 };
  const put = (packet, to) => {
    try {
      if (to.fd >= 0 && to.shape.cut !== true) writeSync(to.fd, packet);
    } catch {
      // Its queue is full: a packet that is lost, as on a wire.
      counts.lost++;
    }
  };
  const forward = (from, packet) => {
    if (packet.length < 20 || packet[0] >> 4 !== 4) return;
    const to = hosts[packet[19] - 1];
    if (to === undefined || from.shape.cut === true || to.shape.cut === true) return;
    const loss = Math.max(from.shape.loss ?? 0, to.shape.loss ?? 0);
    if (loss > 0 && Math.random() < loss) {
      counts.lost++;
      return;
    }
    counts.passed++;
    const delayMs = (from.shape.delayMs ?? 0) + (to.shape.delayMs ?? 0);
    if (delayMs > 0) setTimeout(put, delayMs, Buffer.from(packet), to);
    else put(packet, to);
  };
  /** Reads what has come, and looks again soon: TUN devices cannot be polled from here. */
  const pump = (host) => {
    const buffer = Buffer.alloc(MTU + 64);
    let idle = 0;
    const next = () => {
      if (isOver || host.fd < 0) return;
      read(host.fd, buffer, 0, buffer.length, null, (error, bytes) => {
        if (isOver) return;
        if (error !== null || bytes <= 0) {
          idle++;
          if (idle < 20) setImmediate(next);
          else setTimeout(next, 1);
          return;
        }
        idle = 0;
        forward(host, buffer.subarray(0, bytes));
        next();
      });
    };
    next();
  };
  try {
    for (const host of hosts) {
      ip("netns", "add", host.ns);
      host.fd = openTun(host.ns);
      ip("-n", host.ns, "addr", "add", `${host.address}/24`, "dev", "tun0");
      ip("-n", host.ns, "link", "set", "tun0", "mtu", String(MTU), "up");
      ip("-n", host.ns, "link", "set", "lo", "up");
      pump(host);
    }
  } catch (error) {
    remove();
    process.stderr.write(
      `network namespaces or TUN devices are not permitted here: ${error.stderr ?? error.message}\n`,
    );
    process.exit(3);
  }
  process.once("SIGTERM", () => {
    remove();
    process.exit(143);
  });
  /** @param shape `{ cut, loss, delayMs }`, or nothing for a sound link */
  const setShape = (node, shape = {}) => {
    hosts[node].shape = shape;
  };
  const setLink = (node, how) => setShape(node, how === "down" ? { cut: true } : {});
  return { hosts, setLink, setShape, endAll, remove, counts };
}
