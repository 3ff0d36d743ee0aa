/**
 * The link of a rank that is a process: the socket pair that its launcher made (rank-frames.ts). A process must not outlive
 * its launcher: it ends when the socket ends, and, where the C library can be called, by a signal of the kernel
 * (PR_SET_PDEATHSIG), which also reaches a rank that never looks at its socket.
 */
import { Socket } from "node:net";
import { endWithParent } from "../../foreign/native/index.ts";
import { FramedLink, writeFrame } from "./framed-link.ts";
import type { FromRank } from "./messages.ts";
import { LAUNCHER_PID_VARIABLE, type RankLink } from "./rank-link-contract.ts";

const CHANNEL_FD = 3;

export class ProcessLink extends FramedLink implements RankLink {
  readonly kind = "process";
  readonly relaysOutput = false;

  constructor() {
    super(new Socket({ fd: CHANNEL_FD, readable: true, writable: false }));
    endWithParent(Number(process.env[LAUNCHER_PID_VARIABLE]));
    delete process.env[LAUNCHER_PID_VARIABLE];
    this.socket.on("close", endNow);
    this.socket.on("error", endNow);
  }

  post(message: FromRank): void {
    if (!writeFrame(CHANNEL_FD, message)) endNow();
  }
}

/**
 * The launcher is gone: nobody waits for this rank's words, and its handlers must not keep it. What the rank started ends
 * with it: the rank leads their process group (rank-process.ts).
 */
function endNow(): void {
  try {
    process.kill(-process.pid, "SIGKILL");
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}
