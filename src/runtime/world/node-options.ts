/** Worlds of several hosts: what `launch()` is told of them, and what their launchers must agree on. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { BackendKind, Isolation } from "../comm/index.ts";
import { type Introduction, parseAddress, rendezvousSecret, type TlsIdentity } from "../rendezvous/index.ts";
import { DEFAULT_HOST_TIMEOUT_MS } from "./node-link.ts";
import { version } from "./package-location.ts";
import { checkMs } from "./restart-policy.ts";

/** The fewest and the most hosts of a world. */
export interface HostRange {
  readonly min: number;
  readonly max: number;
}

/** A world of several hosts, on each of which one program calls `launch()`. */
export interface NodesOptions {
  /**
   * Number of hosts, or the fewest and the most of them: then the world begins with those that have come, goes on without those
   * that are lost, and takes in those that come later.
   */
  readonly count: number | HostRange;
  /** Number of this host, from 0. Ranks are numbered in this order; the first host supervises them all. */
  readonly rank: number;
  /** `HOST:PORT` of the first host, which listens there. With port 0 there, the system's choice is said on stderr. */
  readonly rendezvous: string;
  /** How long the hosts wait for each other at the start, ms; 60 s by default. */
  readonly joinTimeoutMs?: number;
  /** How long a host may be silent before it is taken for lost, ms; 10 s by default. */
  readonly hostTimeoutMs?: number;
  /** How long further hosts are awaited once the fewest have come, ms; 10 s by default. */
  readonly lastCallMs?: number;
  /** On the first host: hears the port at which it listens, once it does. Whoever starts the other launchers needs it. */
  readonly onListening?: (port: number) => void;
}

/** More launchers than this are taken for a typing error. */
const MAX_NODES = 256;
const DEFAULT_JOIN_MS = 60_000;
const DEFAULT_LAST_CALL_MS = 10_000;
/** After this long a launcher says whom it waits for, ms. */
const PATIENCE_MS = 5_000;

/** What the first host says to a host whose number another one has: it may be one that is lost, which is not known yet. */
export const IS_TAKEN = "has come already";

/** Checked options. */
export interface NodePlan {
  /** The most hosts; their numbers go up to it. */
  readonly count: number;
  /** The fewest, of a world whose number of hosts may change. */
  readonly minCount: number | undefined;
  readonly lastCallMs: number;
  readonly rank: number;
  readonly address: { readonly host: string; readonly port: number };
  readonly joinTimeoutMs: number;
  readonly hostTimeoutMs: number;
  readonly secret: string;
  /** Name of the backend: the same on all hosts. */
  readonly backend: string;
  readonly across: NonNullable<BackendKind["acrossHosts"]>;
  readonly onListening: ((port: number) => void) | undefined;
  readonly tls: TlsIdentity | undefined;
}

/**
 * Checks what is asked for.
 * @throws InvalidArgumentError, UnavailableError without a secret
 */
export function planNodes(
  options: NodesOptions,
  kind: BackendKind,
  isolation: Isolation,
  tls: TlsIdentity | undefined,
  secretOf: () => string = () => rendezvousSecret(process.env),
): NodePlan {
  if (typeof options !== "object" || options === null) {
    throw new InvalidArgumentError("nodes", options, "an object: { count, rank, rendezvous }");
  }
  const { rank, rendezvous, joinTimeoutMs = DEFAULT_JOIN_MS, hostTimeoutMs = DEFAULT_HOST_TIMEOUT_MS } = options;
  const { lastCallMs = DEFAULT_LAST_CALL_MS } = options;
  const { min: minCount, max: count } = rangeOf(options.count);
  if (!Number.isInteger(rank) || rank < 0 || rank >= count) {
    throw new InvalidArgumentError("nodes.rank", rank, `an integer from 0 to ${count - 1}, of ${count} hosts`);
  }
  checkMs("nodes.joinTimeoutMs", joinTimeoutMs, 1);
  // Less than a few heartbeats would take a busy host for a lost one.
  checkMs("nodes.hostTimeoutMs", hostTimeoutMs, 2_000);
  checkMs("nodes.lastCallMs", lastCallMs, 0);
  if (options.lastCallMs !== undefined && minCount === undefined) {
    throw new InvalidArgumentError("nodes.lastCallMs", lastCallMs, "nothing with one number of hosts: all are awaited");
  }
  const { acrossHosts: across } = kind;
  if (across === undefined) {
    throw new InvalidArgumentError("backend", kind.name, "a backend for several hosts, such as tcp or nccl");
  }
  if (isolation !== "process") throw new InvalidArgumentError("isolation", isolation, '"process" on several hosts');
  if (typeof rendezvous !== "string") throw new InvalidArgumentError("nodes.rendezvous", rendezvous, "HOST:PORT");
  const address = parseAddress(rendezvous, "the rendezvous", rank === 0 ? 0 : 1);
  // Hosts that come later must reach the ranks of this one at the address that those were told at the start.
  if (minCount !== undefined && rank === 0 && (address.host === "0.0.0.0" || address.host === "::")) {
    throw new InvalidArgumentError(
      "the rendezvous",
      rendezvous,
      "an address of this host where the number of hosts may change",
    );
  }
  const { onListening } = options;
  if (onListening !== undefined && typeof onListening !== "function") {
    throw new InvalidArgumentError("nodes.onListening", onListening, "a function");
  }
  const secret = secretOf();
  const times = { lastCallMs, joinTimeoutMs, hostTimeoutMs };
  return { count, minCount, rank, address, secret, backend: kind.name, across, onListening, tls, ...times };
}

/** @throws InvalidArgumentError */
function rangeOf(count: NodesOptions["count"]): { readonly min: number | undefined; readonly max: number } {
  const isCount = (value: unknown, most: number): value is number =>
    Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most;
  if (typeof count === "object" && count !== null) {
    const { min, max } = count;
    if (!isCount(max, MAX_NODES))
      throw new InvalidArgumentError("nodes.count.max", max, `an integer from 1 to ${MAX_NODES}`);
    if (isCount(min, max)) return { min, max };
    throw new InvalidArgumentError("nodes.count.min", min, `an integer from 1 to ${max}, the most hosts`);
  }
  if (isCount(count, MAX_NODES)) return { min: undefined, max: count };
  throw new InvalidArgumentError("nodes.count", count, `an integer from 1 to ${MAX_NODES}, or { min, max }`);
}

/** The refusal of TLS where the ranks of several hosts would not use it. */
export function sendsInTheClear({ name }: BackendKind): InvalidArgumentError {
  return new InvalidArgumentError(
    "backend",
    name,
    "tcp with TLS: what other backends send between hosts is not encrypted",
  );
}

/** What a host says of itself when it knocks. */
export function introductionOf({ rank, count, backend }: NodePlan): Introduction {
  const words = `chorale ${version()}, --backend ${backend}`;
  return { from: rank, to: 0, index: 0, worldSize: count, generation: 0, version: words };
}

/** Says on stderr, once, what is waited for when it takes long. */
export function sayWhenLong(words: () => string): NodeJS.Timeout {
  const beganMs = performance.now();
  return setTimeout(() => {
    const seconds = Math.round((performance.now() - beganMs) / 1000);
    process.stderr.write(`chorale: after ${seconds} s still ${words()}\n`);
  }, PATIENCE_MS).unref();
}
