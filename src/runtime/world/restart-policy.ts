/**
 * What a world does when a rank fails: end, start the dead ranks again, or go on without them; how often, how fast, and
 * how long survivors may take to come. The limit within a window is that of supervision trees (one for one, so many
 * restarts in so many seconds, as Erlang/OTP's and Akka's supervisors count); the growing delay keeps a rank that dies
 * at its start from being started in a loop.
 */

import { InvalidArgumentError } from "../../core/index.ts";
import { oneOf } from "../../core/internal.ts";
import { DEFAULT_TIMEOUT_MS } from "../comm/index.ts";
import type { Job } from "./messages.ts";

export const FAILURE_POLICIES = ["end", "respawn", "shrink"] as const;
export type FailurePolicy = (typeof FAILURE_POLICIES)[number];

/** Rebuilds of a world that are allowed by default. */
export const DEFAULT_RESTARTS = 3;
/** The delay between a failure and the next generation grows up to this, ms. */
const MAX_RESTART_DELAY_MS = 30_000;
/** Longest time that any limit of a rebuild may be set to, ms: what a timer can hold. */
const MAX_MS = 2 ** 31 - 1;

export interface RestartOptions {
  /**
   * What happens when a rank fails. `end` (the default): the world ends. `respawn`: the next generation has as many
   * ranks; the dead ones run the module from its start. `shrink`: the next generation has the survivors only.
   * `restarts` alone means `respawn`.
   */
  readonly onFailure?: FailurePolicy;
  /** Most rebuilds; 3 by default. With `restartWindowMs`: most rebuilds within any such time. */
  readonly restarts?: number;
  /** Counts only the rebuilds of the last so many ms; all of them by default. */
  readonly restartWindowMs?: number;
  /** Wait before a rebuild, ms; doubles with each of the counted rebuilds, up to 30 s. None by default. */
  readonly restartDelayMs?: number;
  /** How long survivors may take to call `world.rebuild()` before they are ended as well, ms; 60 s by default. */
  readonly rebuildTimeoutMs?: number;
  /** With `shrink`: the world ends when fewer ranks are left; 1 by default. */
  readonly minRanks?: number;
}

export interface RestartPolicy {
  readonly onFailure: FailurePolicy;
  readonly restarts: number;
  readonly restartWindowMs: number;
  readonly restartDelayMs: number;
  readonly rebuildTimeoutMs: number;
  readonly minRanks: number;
}

/** Reads a policy's name. @throws InvalidArgumentError naming the policies */
export function parseFailurePolicy(text: string, argument = "onFailure"): FailurePolicy {
  return oneOf(text, argument, FAILURE_POLICIES);
}

/** Checks the options and fills in what was not given. @throws InvalidArgumentError */
export function restartPolicy(options: RestartOptions, ranks: number): RestartPolicy {
  const { restarts, restartWindowMs, restartDelayMs, rebuildTimeoutMs, minRanks } = options;
  if (restarts !== undefined && (!Number.isInteger(restarts) || restarts < 0)) {
    throw new InvalidArgumentError("restarts", restarts, "an integer, 0 or more");
  }
  const onFailure = parseFailurePolicy(options.onFailure ?? ((restarts ?? 0) > 0 ? "respawn" : "end"));
  if (onFailure === "end" && (restarts ?? 0) > 0) {
    throw new InvalidArgumentError("restarts", restarts, '0, or onFailure "respawn" or "shrink"');
  }
  if (minRanks !== undefined && onFailure !== "shrink") {
    throw new InvalidArgumentError("minRanks", minRanks, 'nothing, or onFailure "shrink"');
  }
  if (minRanks !== undefined && (!Number.isInteger(minRanks) || minRanks < 1 || minRanks > ranks)) {
    throw new InvalidArgumentError("minRanks", minRanks, `an integer from 1 to the number of ranks, ${ranks}`);
  }
  for (const [name, value] of Object.entries({ restartWindowMs, restartDelayMs, rebuildTimeoutMs })) {
    // Who says "end" may keep the rest as it is; who says nothing has forgotten what it is for.
    if (value !== undefined && options.onFailure === undefined && restarts === undefined)
      throw new InvalidArgumentError(name, value, "nothing without onFailure or restarts");
  }
  checkMs("restartWindowMs", restartWindowMs, 1);
  checkMs("restartDelayMs", restartDelayMs, 0);
  checkMs("rebuildTimeoutMs", rebuildTimeoutMs, 1);
  return {
    onFailure,
    restarts: onFailure === "end" ? 0 : (restarts ?? DEFAULT_RESTARTS),
    restartWindowMs: restartWindowMs ?? Number.POSITIVE_INFINITY,
    restartDelayMs: restartDelayMs ?? 0,
    rebuildTimeoutMs: rebuildTimeoutMs ?? DEFAULT_TIMEOUT_MS,
    minRanks: minRanks ?? 1,
  };
}

/** What a rank knows of rebuilds before it asks for one. @param evictionMs the most that ending those who are late takes @param never why the backend rebuilds no world */
export function rebuildTerms(policy: RestartPolicy, evictionMs: number, never?: string): Job["rebuild"] {
  const { onFailure, rebuildTimeoutMs, restartDelayMs } = policy;
  const limitMs = rebuildTimeoutMs + evictionMs + (restartDelayMs > 0 ? MAX_RESTART_DELAY_MS : 0);
  if (never !== undefined) return { limitMs, refusal: never };
  if (onFailure !== "end") return { limitMs };
  const refusal =
    'it was launched to end at the first failure; launch it with onFailure "respawn" or "shrink" (chorale launch --restarts N)';
  return { limitMs, refusal };
}

/** @throws InvalidArgumentError for a value that is not a time, or too long for a timer */
export function checkMs(argument: string, value: number | undefined, atLeast: number): void {
  if (value === undefined || (typeof value === "number" && value >= atLeast && value <= MAX_MS)) return;
  throw new InvalidArgumentError(argument, value, `a number of milliseconds from ${atLeast} to ${MAX_MS}`);
}

/** Counts rebuilds. */
export class RestartBudget {
  readonly #policy: RestartPolicy;
  /** When each counted rebuild began, ms on any clock that only grows. */
  #begun: number[] = [];

  constructor(policy: RestartPolicy) {
    this.#policy = policy;
  }

  /**
   * Takes one rebuild.
   * @returns how long to wait before it, ms; `undefined` when none is left
   */
  take(nowMs: number): { readonly delayMs: number } | undefined {
    const { restarts, restartWindowMs, restartDelayMs } = this.#policy;
    this.#begun = this.#begun.filter((begun) => nowMs - begun < restartWindowMs);
    if (this.#begun.length >= restarts) return undefined;
    const delayMs = Math.min(MAX_RESTART_DELAY_MS, restartDelayMs * 2 ** this.#begun.length);
    this.#begun.push(nowMs);
    return { delayMs };
  }

  /** What is used up, as text for messages. */
  describe(): string {
    const { restarts, restartWindowMs } = this.#policy;
    const within = Number.isFinite(restartWindowMs) ? ` within ${restartWindowMs} ms` : "";
    return restarts === 1 ? `the one rebuild${within} is used up` : `all ${restarts} rebuilds${within} are used up`;
  }
}
