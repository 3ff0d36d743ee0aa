/**
 * Failures as data: the first rank of a group that fails writes one of these where all can read it, and each rank
 * makes its own error of it, so that the cause is the same everywhere.
 */
import {
  AbortedError,
  type CallTrace,
  type ChoraleError,
  callSiteOf,
  foldersBeside,
  MismatchError,
  type MismatchSide,
  type RankActivity,
  RankFailedError,
  show,
  TimeoutError,
  traceOfCall,
} from "../../core/index.ts";

export type Failure =
  | { readonly code: "ABORTED"; readonly reason: string }
  | { readonly code: "RANK_FAILED"; readonly rank: number; readonly generation: number; readonly cause: string }
  | { readonly code: "MISMATCH"; readonly problem: string; readonly sides: readonly MismatchSide[] }
  | {
      readonly code: "TIMEOUT";
      readonly op: string;
      readonly timeoutMs: number;
      readonly ranks: readonly RankActivity[];
      readonly callSite?: string | undefined;
    };

/** Describes `error` so that another rank can make the same of it. */
export function failureOf(error: unknown): Failure {
  if (error instanceof RankFailedError) {
    const cause = error.cause instanceof Error ? error.cause.message : show(error.cause);
    return { code: "RANK_FAILED", rank: error.rank, generation: error.generation, cause };
  }
  if (error instanceof MismatchError) {
    return { code: "MISMATCH", problem: error.problem, sides: error.sides };
  }
  if (error instanceof TimeoutError) {
    return { code: "TIMEOUT", op: error.op, timeoutMs: error.timeoutMs, ranks: error.ranks, callSite: error.callSite };
  }
  if (error instanceof AbortedError) return { code: "ABORTED", reason: error.reason };
  return { code: "ABORTED", reason: error instanceof Error ? error.message : show(error) };
}

/** Makes the error that `failure` describes. */
export function errorOf(failure: Failure): ChoraleError {
  switch (failure.code) {
    case "ABORTED":
      return new AbortedError(failure.reason);
    case "RANK_FAILED":
      return new RankFailedError(failure.rank, failure.generation, new Error(failure.cause));
    case "MISMATCH":
      return new MismatchError(failure.problem, failure.sides);
    case "TIMEOUT":
      return new TimeoutError(failure.op, failure.timeoutMs, failure.ranks, { callSite: failure.callSite });
  }
}

/** Writes a failure as JSON of at most `maxBytes`, shortening its lists and texts when it is longer. */
export function encodeFailure(failure: Failure, maxBytes: number): Uint8Array {
  const encoder = new TextEncoder();
  let bytes = encoder.encode(JSON.stringify(failure));
  if (bytes.length <= maxBytes) return bytes;
  const cut = (text: string) => `${text.slice(0, 200)}...`;
  const short: Failure =
    failure.code === "TIMEOUT"
      ? { ...failure, ranks: failure.ranks.slice(0, 16) }
      : failure.code === "MISMATCH"
        ? { ...failure, sides: failure.sides.slice(0, 6).map((s) => ({ rank: s.rank, call: cut(s.call) })) }
        : failure.code === "RANK_FAILED"
          ? { ...failure, cause: cut(failure.cause) }
          : { ...failure, reason: cut(failure.reason) };
  bytes = encoder.encode(JSON.stringify(short));
  return bytes.length <= maxBytes ? bytes : encoder.encode(JSON.stringify({ code: "ABORTED", reason: failure.code }));
}

/** Reads what `encodeFailure` wrote. Unreadable text becomes an abort that says so. */
export function decodeFailure(bytes: Uint8Array): Failure {
  try {
    return JSON.parse(new TextDecoder().decode(bytes.slice())) as Failure;
  } catch {
    return { code: "ABORTED", reason: "a rank failed and its cause could not be read" };
  }
}

/** What a rank says that waits for one that has closed the group, as it does when its program returns. */
export function departed(rank: number, generation: number, group: string, call: string): RankFailedError {
  const cause = `it has left group ${group} (its program returned, or closed the group) and will not make ${call}`;
  return new RankFailedError(rank, generation, new Error(cause));
}

const OWN = foldersBeside(import.meta.url, "../");

/** The caller's place in the source: the first frame outside chorale's runtime, or undefined. */
export function callSite(trace: CallTrace = traceOfCall(callSite)): string | undefined {
  const site = callSiteOf(trace, OWN);
  if (site === undefined) return undefined;
  const place = `${site.file}:${site.line}:${site.column}`;
  return site.caller === undefined ? place : `${site.caller} (${place})`;
}
