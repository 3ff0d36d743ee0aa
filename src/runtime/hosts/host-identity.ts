/**
 * Which ranks are on one host: those that say the same here. By default the ranks that one launcher started, or, where another
 * launcher started them, those of one network namespace of one machine; CHORALE_HOST_ID says otherwise, within one machine.
 */
import { createHash } from "node:crypto";
import { readlinkSync } from "node:fs";
import { machine } from "../memory/index.ts";

/** Bytes of a host's mark, and what none has. */
export const HOST_MARK_BYTES = 16;

/** What a rank's launcher knows of it. */
export interface LaunchedAt {
  /** Folder that the launcher made for its ranks. */
  readonly folder: string | undefined;
  /** Another launcher started the process: each rank has a folder of its own. */
  readonly joined: boolean;
}

/** The mark of this rank's host; `undefined` where nobody can say which host it is on. */
export function hostMark({ folder, joined }: LaunchedAt, env: NodeJS.ProcessEnv = process.env): Buffer | undefined {
  const given = env["CHORALE_HOST_ID"];
  const identity = given ? `given ${given}` : joined ? network() : folder && `launcher ${folder}`;
  if (!identity) return undefined;
  return createHash("sha256").update(`${machine()} ${identity}`).digest().subarray(0, HOST_MARK_BYTES);
}

function network(): string | undefined {
  try {
    return readlinkSync("/proc/self/ns/net");
  } catch {
    // Not Linux: nothing tells hosts that are pretended apart.
    return process.platform === "darwin" ? "one network" : undefined;
  }
}
