/** Whether another host is there, apart from the launcher that should speak: tells a stopped process from a network that is cut. */
import { connect } from "node:net";
import { afterRunning } from "../comm/index.ts";

/** How long a host may take to answer, ms. */
const ANSWER_MS = 600;

/**
 * Tries a port of the host. Its kernel answers whether or not anybody listens there; where nothing comes back, the host is
 * down, or the way to it is cut. A firewall that drops what it does not know looks like the latter.
 */
export function answers(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const settle = (isThere: boolean) => {
      timer.cancel();
      socket.destroy();
      resolve(isThere);
    };
    const timer = afterRunning(ANSWER_MS, () => settle(false));
    socket.once("connect", () => settle(true));
    socket.once("error", ({ code }: NodeJS.ErrnoException) => settle(code === "ECONNREFUSED" || code === "ECONNRESET"));
    socket.unref();
  });
}
