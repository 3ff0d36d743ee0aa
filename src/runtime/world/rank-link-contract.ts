/** What a rank's side of the way to its launcher is, whether the rank is a thread or a process. */
import type { Isolation } from "../comm/index.ts";
import type { FromRank, ToRank } from "./messages.ts";

/** Tells a process which launcher it belongs to. */
export const LAUNCHER_PID_VARIABLE = "CHORALE_LAUNCHER_PID";

export interface RankLink {
  readonly kind: Isolation;
  /** What the rank prints goes through the link: it has no pipes of its own to its launcher. */
  readonly relaysOutput: boolean;
  /** Sends; the message is out when this returns. @throws DOMException `DataCloneError` */
  post(message: FromRank): void;
  onMessage(listener: (message: ToRank) => void): void;
  /** Keeps the rank alive, as it is at first. */
  ref(): void;
  unref(): void;
}
