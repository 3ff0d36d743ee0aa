/**
 * A rank's side of the way to its launcher: the message port of a worker thread, or the socket pair of a process
 * (process-link.ts, which threads do not load).
 */
import { parentPort } from "node:worker_threads";
import type { RankLink } from "./rank-link-contract.ts";

/** Opens the way to whoever started this thread or process. */
export async function openLink(): Promise<RankLink> {
  const port = parentPort;
  if (port === null) {
    const socket = process.env["CHORALE_RANK_SOCKET"];
    if (socket !== undefined && socket !== "") return (await import("./socket-link.ts")).SocketLink.open(socket);
    return new (await import("./process-link.ts")).ProcessLink();
  }
  return {
    kind: "thread",
    relaysOutput: true,
    post: (message) => port.postMessage(message),
    onMessage: (listener) => void port.on("message", listener),
    ref: () => port.ref(),
    unref: () => port.unref(),
  };
}
