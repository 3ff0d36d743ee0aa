/**
 * A rank's side of the way to its launcher: the message port of a worker thread, or the socket pair of a process
 * (process-link.ts, which threads do not load).
 */
import { parentPort } from "node:worker_threads";
import type { Isolation } from "../comm/index.ts";
import type { FromRank, ToRank } from "./messages.ts";

/** Tells a process which launcher it belongs to. */
export const LAUNCHER_PID_VARIABLE = "CHORALE_LAUNCHER_PID";

export interface RankLink {
  readonly kind: Isolation;
  /** Sends; the message is out when this returns. @throws DOMException `DataCloneError` */
  post(message: FromRank): void;
  onMessage(listener: (message: ToRank) => void): void;
  /** Keeps the rank alive, as it is at first. */
  ref(): void;
  unref(): void;
}

/** Opens the way to whoever started this thread or process. */
export async function openLink(): Promise<RankLink> {
  const port = parentPort;
  if (port === null) return new (await import("./process-link.ts")).ProcessLink();
  return {
    kind: "thread",
    post: (message) => port.postMessage(message),
    onMessage: (listener) => void port.on("message", listener),
    ref: () => port.ref(),
    unref: () => port.unref(),
  };
}
