/** Worlds of several hosts: what `launch()` is told of them, and what their launchers must agree on. */
import { InvalidArgumentError } from "../../core/index.ts";
import { type BackendKind, type Isolation, runningTime } from "../comm/index.ts";
import { type Introduction, parseAddress, rendezvousSecret } from "../rendezvous/index.ts";
import { version } from "./location.ts";
import { DEFAULT_HOST_TIMEOUT_MS } from "./node-link.ts";
import { checkMs } from "./restart-policy.ts";

/** A world of several hosts, on each of which one program calls `launch()`. */
export interface NodesOptions {
  /** Number of hosts. */
  readonly count: number;
  /** Number of this host, from 0. Ranks are numbered in this order; the first host supervises them all. */
  readonly rank: number;
  /** `HOST:PORT` of the first host, which listens there. With port 0 there, the system's choice is said on stderr. */
  readonly rendezvous: string;
  /** How long the hosts wait for each other at the start, ms; 60 s by default. */
  readonly joinTimeoutMs?: number;
  /** How long a host may be silent before it is taken for lost, ms; 10 s by default. */
  readonly hostTimeoutMs?: number;
  /** On the first host: hears the port at which it listens, once it does. Whoever starts the other launchers needs it. */
  readonly onListening?: (port: number) => void;
}

/** More launchers than this are taken for a typing error. */
export const MAX_NODES = 256;
export const DEFAULT_JOIN_MS = 60_000;
/** After this long a launcher says whom it waits for, ms. */
const PATIENCE_MS = 5_000;

/** Checked options. */
export interface NodePlan {
  readonly count: number;
  readonly rank: number;
  readonly address: { readonly host: string; readonly port: number };
  readonly joinTimeoutMs: number;
  readonly hostTimeoutMs: number;
  readonly secret: string;
  readonly across: NonNullable<BackendKind["acrossHosts"]>;
  readonly onListening: ((port: number) => void) | undefined;
}

/**
 * Checks what is asked for.
 * @throws InvalidArgumentError, UnavailableError without a secret
 */
export function planNodes(options: NodesOptions, kind: BackendKind, isolation: Isolation): NodePlan {
  if (typeof options !== "object" || options === null) {
    throw new InvalidArgumentError("nodes", options, "an object: { count, rank, rendezvous }");
  }
  const { count, rank, rendezvous, joinTimeoutMs = DEFAULT_JOIN_MS, hostTimeoutMs = DEFAULT_HOST_TIMEOUT_MS } = options;
  if (!Number.isInteger(count) || count < 1 || count > MAX_NODES) {
    throw new InvalidArgumentError("nodes.count", count, `an integer from 1 to ${MAX_NODES}`);
  }
  if (!Number.isInteger(rank) || rank < 0 || rank >= count) {
    throw new InvalidArgumentError("nodes.rank", rank, `an integer from 0 to ${count - 1}, of ${count} hosts`);
  }
  checkMs("nodes.joinTimeoutMs", joinTimeoutMs, 1);
  // Less than a few heartbeats would take a busy host for a lost one.
  checkMs("nodes.hostTimeoutMs", hostTimeoutMs, 2_000);
  const { acrossHosts: across } = kind;
  if (across === undefined) {
    throw new InvalidArgumentError("backend", kind.name, "tcp for a world of several hosts");
  }
  if (isolation !== "process") throw new InvalidArgumentError("isolation", isolation, '"process" on several hosts');
  if (typeof rendezvous !== "string") throw new InvalidArgumentError("nodes.rendezvous", rendezvous, "HOST:PORT");
  const address = parseAddress(rendezvous, "the rendezvous", rank === 0 ? 0 : 1);
  const { onListening } = options;
  if (onListening !== undefined && typeof onListening !== "function") {
    throw new InvalidArgumentError("nodes.onListening", onListening, "a function");
  }
  const secret = rendezvousSecret(process.env);
  return { count, rank, address, joinTimeoutMs, hostTimeoutMs, secret, across, onListening };
}

/** What a host says of itself when it knocks. */
export function introductionOf({ rank, count }: NodePlan): Introduction {
  return { from: rank, to: 0, index: 0, worldSize: count, generation: 0, version: `chorale ${version()}` };
}

/** Says on stderr, once, what is waited for when it takes long. */
export function sayWhenLong(words: () => string): NodeJS.Timeout {
  const beganMs = runningTime();
  return setTimeout(() => {
    const seconds = Math.round((runningTime() - beganMs) / 1000);
    process.stderr.write(`chorale: after ${seconds} s still ${words()}\n`);
  }, PATIENCE_MS).unref();
}
