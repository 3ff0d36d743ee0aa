/** Errors on their way between threads: name, message, stack, code and cause survive, classes do not. */
import { ChoraleError, show } from "../../core/index.ts";

export interface ErrorRecord {
  readonly name: string;
  readonly message: string;
  readonly stack: string;
  readonly code?: string;
  /** Set for a `RankFailedError`: the rank it speaks of. Such a failure is the consequence of another one. */
  readonly failedRank?: number;
  /** Set for the refusal of a rebuild: what it was asked for is the cause. */
  readonly isRefusal?: true;
  readonly cause?: ErrorRecord;
}

/** A rank that failed, and of what. */
export interface RankFailure {
  readonly rank: number;
  readonly error: ErrorRecord;
}

export interface Culprit extends RankFailure {
  /** In one line, as peers are told of it. */
  readonly text: string;
}

/** Who failed by the report of a rank: that rank, or the one of this world whose death it speaks of, with that one's cause. */
export function culpritOf({ rank, error }: RankFailure, worldSize: number): Culprit {
  const { failedRank = -1, cause = error } = error;
  const isHeard = failedRank >= 0 && failedRank < worldSize;
  // What was heard is such a line already.
  if (isHeard) return { rank: failedRank, error: cause, text: cause.message };
  // What happened to a rank has no class of error, unlike what its program threw.
  const isThrown = error.stack !== plainRecord(error.message).stack;
  return { rank, error, text: isThrown ? `${error.name}: ${error.message}` : error.message };
}

/** Whether an error, or one that caused it, speaks of a rank that failed: it follows from that failure. */
export function isConsequence({ failedRank, cause }: ErrorRecord): boolean {
  return failedRank !== undefined || (cause !== undefined && isConsequence(cause));
}

/** A chain of causes longer than this is cut: it may be a circle. */
export const MAX_CAUSES = 8;

/** Turns whatever was thrown into plain data. Never throws. */
export function toErrorRecord(thrown: unknown, depth = 0): ErrorRecord {
  try {
    return recordOf(thrown, depth);
  } catch {
    // A proxy's trap, or a getter of the error, threw in turn.
    return plainRecord("threw something that cannot be looked at");
  }
}

function recordOf(thrown: unknown, depth: number): ErrorRecord {
  if (!(thrown instanceof Error)) {
    return plainRecord(
      typeof thrown === "string" && depth > 0 ? thrown : `threw ${show(thrown)}, which is not an Error`,
    );
  }
  const { code, rank } = thrown as { code?: unknown; rank?: unknown };
  const isChorale = thrown instanceof ChoraleError;
  return {
    name: String(thrown.name),
    message: String(thrown.message),
    stack: String(thrown.stack ?? `${thrown.name}: ${thrown.message}`),
    ...(typeof code === "string" ? { code } : {}),
    ...(isChorale && code === "RANK_FAILED" && typeof rank === "number" ? { failedRank: rank } : {}),
    ...(thrown.cause !== undefined && depth < MAX_CAUSES ? { cause: toErrorRecord(thrown.cause, depth + 1) } : {}),
  };
}

/** Whether a value that came from a rank can be read as a record. */
export function isErrorRecord(value: unknown, depth = 0): value is ErrorRecord {
  if (typeof value !== "object" || value === null || depth > MAX_CAUSES) return false;
  const { name, message, stack, cause } = value as Partial<Record<keyof ErrorRecord, unknown>>;
  const isText = [name, message, stack].every((text) => typeof text === "string");
  return isText && (cause === undefined || isErrorRecord(cause, depth + 1));
}

/** A record of something that happened, which has no stack. */
export function plainRecord(message: string): ErrorRecord {
  return { name: "Error", message, stack: `Error: ${message}` };
}

/** Rebuilds an error from its record; its stack is that of the thread where it was thrown. */
export function fromErrorRecord(record: ErrorRecord): Error {
  const error = new Error(
    record.message,
    record.cause === undefined ? undefined : { cause: fromErrorRecord(record.cause) },
  );
  error.name = record.name;
  error.stack = record.stack;
  return record.code === undefined ? error : Object.assign(error, { code: record.code });
}
