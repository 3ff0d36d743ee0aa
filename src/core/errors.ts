/**
 * Every error class of chorale. The `code` is for programs, the message for people: it says what is wrong, shows the
 * values, and says what is accepted or how to mend it.
 */
import { printable, printableLine } from "./plain-text.ts";

export type ErrorCode =
  | "INVALID_ARGUMENT"
  | "INVALID_FORMAT"
  | "UNSUPPORTED"
  | "UNAVAILABLE"
  | "OUT_OF_MEMORY"
  | "TIMEOUT"
  | "MISMATCH"
  | "RANK_FAILED"
  | "ABORTED"
  | "CLOSED"
  | "INVALID_PLAN"
  | "NATIVE"
  | "INVARIANT";

/** What every error of chorale is. */
export abstract class ChoraleError extends Error {
  abstract readonly code: ErrorCode;
  constructor(message: string, options?: ErrorOptions) {
    // Messages quote what files and programs say, and end on terminals.
    super(printable(message), options);
    this.name = new.target.name;
  }
}

/** What stands in a message in place of a value. */
class Description {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/**
 * Says what a value is where the value itself would say less: `not given`, `7 elements`. An `InvalidArgumentError` tells it
 * after "is", without the quotes that texts of the program have.
 */
export function described(text: string): object {
  return new Description(text);
}

/** Shows a value in an error message: short, on one line, without terminal escapes. */
export function show(value: unknown): string {
  let text: string;
  try {
    text = textOf(value);
  } catch {
    text = Object.prototype.toString.call(value);
  }
  text = printableLine(text);
  return text.length > 200 ? `${text.slice(0, 197)}...` : text;
}

function textOf(value: unknown): string {
  if (value instanceof Description) return value.text;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "function") return `a function${value.name === "" ? "" : ` (${value.name})`}`;
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value !== "object" || value === null) return String(value);
  const text = JSON.stringify(value, (_, v: unknown) => (typeof v === "bigint" ? `${v}n` : v)) ?? String(value);
  // Chunks, ranks and their like describe themselves.
  return text.startsWith('"') && !(value instanceof Date) ? (JSON.parse(text) as string) : text;
}

/** An argument is wrong. Nothing was sent or changed. */
export class InvalidArgumentError extends ChoraleError {
  readonly code = "INVALID_ARGUMENT";
  readonly argument: string;
  readonly value: unknown;
  readonly accepted: string;
  constructor(argument: string, value: unknown, accepted: string, options?: ErrorOptions) {
    super(`${argument} is ${show(value)}; expected ${accepted}`, options);
    this.argument = argument;
    this.value = value instanceof Description ? value.text : value;
    this.accepted = accepted;
  }
}

/** A file or message does not follow its format. `where` is a path, and after it the field. */
export class FormatError extends ChoraleError {
  readonly code = "INVALID_FORMAT";
  readonly where: string;
  readonly field: string | undefined;
  constructor(where: string, problem: string, options?: ErrorOptions & { field?: string }) {
    const place = options?.field === undefined ? where : `${where}: ${options.field}`;
    super(`${printableLine(place)}: ${problem}`, options);
    this.where = where;
    this.field = options?.field;
  }
}

/** This cannot be done here, and never could: a dtype with an op, an operation of a backend. */
export class UnsupportedError extends ChoraleError {
  readonly code = "UNSUPPORTED";
  readonly what: string;
  readonly accepted: string;
  constructor(what: string, accepted: string, options?: ErrorOptions) {
    super(`${what} is not supported; ${accepted}`, options);
    this.what = what;
    this.accepted = accepted;
  }
}

/** What an absent engine or tool is: a value, not a crash. */
export interface Unavailable {
  readonly available: false;
  readonly what: string;
  readonly why: string;
  readonly howToGetIt: string;
  /** What its own start answered, where it is here and did not start. */
  readonly cause?: NativeError;
}

/** Something that this needs is not on this machine. */
export class UnavailableError extends ChoraleError {
  readonly code = "UNAVAILABLE";
  readonly unavailable: Unavailable;
  constructor(what: string, why: string, howToGetIt: string, options?: ErrorOptions) {
    super(`${what} is not available: ${why}. ${howToGetIt}`, options);
    this.unavailable = { available: false, what, why, howToGetIt };
  }
}

/** A bounded memory is full. */
export class OutOfMemoryError extends ChoraleError {
  readonly code = "OUT_OF_MEMORY";
  readonly where: string;
  readonly requestedBytes: number;
  readonly availableBytes: number;
  constructor(
    where: string,
    requestedBytes: number,
    availableBytes: number,
    howToMend: string,
    options?: ErrorOptions,
  ) {
    super(`${where}: ${requestedBytes} bytes asked for, ${availableBytes} are free. ${howToMend}`, options);
    this.where = where;
    this.requestedBytes = requestedBytes;
    this.availableBytes = availableBytes;
  }
}

/** What one rank was last seen doing: `undefined` when it has issued nothing. */
export interface RankActivity {
  readonly rank: number;
  readonly arrived: boolean;
  readonly lastOp?: string;
  readonly lastSeq?: number;
  /** The call in which the rank waits instead, in another group or for one peer: `all_reduce(f32[4], sum) #0 of tp`. */
  readonly waitsIn?: string;
  /** Of a plan: what each of the rank's strands waits for, with the program's line. */
  readonly strands?: readonly string[];
}

/** Strands that a TimeoutError's message lists. */
const MAX_STRANDS_SHOWN = 16;

/** A deadline passed. Says which ranks arrived and which did not. */
export class TimeoutError extends ChoraleError {
  readonly code = "TIMEOUT";
  readonly op: string;
  readonly timeoutMs: number;
  readonly ranks: readonly RankActivity[];
  /** Where the program made the call, or waits for it, as far as that was noted. */
  readonly callSite: string | undefined;
  constructor(
    op: string,
    timeoutMs: number,
    ranks: readonly RankActivity[] = [],
    options?: ErrorOptions & { readonly callSite?: string | undefined },
  ) {
    const list = (arrived: boolean) => ranks.filter((r) => r.arrived === arrived).map((r) => r.rank);
    const last = ranks
      .filter((r) => !r.arrived && r.strands === undefined)
      .map((r) => {
        const waits = r.waitsIn === undefined ? "" : `, it waits in ${r.waitsIn}`;
        return `rank ${r.rank}: ${r.lastOp === undefined ? "no operation yet" : `${r.lastOp} #${r.lastSeq}`}${waits}`;
      });
    const who =
      ranks.length === 0
        ? ""
        : `; arrived: ranks [${list(true).join(", ")}], missing: ranks [${list(false).join(", ")}]${last.length === 0 ? "" : ` (last operation of ${last.join("; ")})`}`;
    const site = options?.callSite === undefined ? "" : `; called at ${options.callSite}`;
    const strands = ranks.flatMap((r) => (r.strands ?? []).map((text) => `\n  rank ${r.rank} ${text}`));
    const more = strands.length > MAX_STRANDS_SHOWN ? `\n  and ${strands.length - MAX_STRANDS_SHOWN} more` : "";
    const shown = `${strands.slice(0, MAX_STRANDS_SHOWN).join("")}${more}`;
    super(`${op} did not complete within ${timeoutMs} ms${who}${site}${shown}`, options);
    this.callSite = options?.callSite;
    this.op = op;
    this.timeoutMs = timeoutMs;
    this.ranks = ranks;
  }
}

/** One side of a mismatch: what a rank asked for. */
export interface MismatchSide {
  readonly rank: number;
  readonly call: string;
  readonly callSite?: string;
}

/** Ranks of one group called different things. Thrown on every rank of the group. */
export class MismatchError extends ChoraleError {
  readonly code = "MISMATCH";
  /** The message without the sides. */
  readonly problem: string;
  readonly sides: readonly MismatchSide[];
  constructor(problem: string, sides: readonly MismatchSide[], options?: ErrorOptions) {
    const lines = sides.map(
      (s) => `\n  rank ${s.rank}: ${s.call}${s.callSite === undefined ? "" : ` at ${s.callSite}`}`,
    );
    super(`${problem}${lines.join("")}`, options);
    this.problem = problem;
    this.sides = sides;
  }
}

/** Why a generation ends in which no rank failed. Its ranks are told so as they are told of a failure, and rebuild. */
export const HOST_HAS_COME = "another host has come, and the world is formed anew";

/**
 * A rank of the world died. Pending work of every survivor fails with this; also where the world takes in another host, and no
 * rank has failed.
 */
export class RankFailedError extends ChoraleError {
  readonly code = "RANK_FAILED";
  readonly rank: number;
  readonly generation: number;
  constructor(rank: number, generation: number, cause: unknown) {
    const why = cause instanceof Error ? cause.message : show(cause);
    const what =
      why === HOST_HAS_COME ? `generation ${generation} ends` : `rank ${rank} failed (generation ${generation})`;
    super(`${what}: ${why}`, { cause });
    this.rank = rank;
    this.generation = generation;
  }
}

/** The caller, or a peer, gave up on purpose. */
export class AbortedError extends ChoraleError {
  readonly code = "ABORTED";
  readonly reason: string;
  constructor(reason: string, options?: ErrorOptions) {
    super(`aborted: ${reason}`, options);
    this.reason = reason;
  }
}

/** A world, communicator, tensor or buffer was used after its end, or in another generation than its own. */
export class ClosedError extends ChoraleError {
  readonly code = "CLOSED";
  readonly what: string;
  constructor(what: string, why: string, options?: ErrorOptions) {
    super(`${what} ${why}`, options);
    this.what = what;
  }
}

/** What is wrong at one place of an execution plan; the verifier's findings are this and more. */
export interface PlanProblem {
  readonly code: string;
  readonly rank: number;
  readonly strand: number;
  readonly op: number;
  readonly message: string;
  readonly hint: string;
}

/** A collective program or execution plan does not do what it says. `problems` lists where. */
export class PlanError extends ChoraleError {
  readonly code = "INVALID_PLAN";
  readonly problems: readonly PlanProblem[];
  constructor(what: string, problems: readonly PlanProblem[], details?: string, options?: ErrorOptions) {
    const [first] = problems;
    const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
    super(
      `${what}: ${first === undefined ? "is wrong" : `${first.code}: ${first.message}`}${more}${details === undefined ? "" : `\n${details}`}`,
      options,
    );
    this.problems = problems;
  }
}

/** A foreign library answered with an error. */
export class NativeError extends ChoraleError {
  readonly code = "NATIVE";
  readonly library: string;
  readonly symbol: string;
  readonly status: number;
  readonly text: string;
  constructor(library: string, symbol: string, status: number, text: string, options?: ErrorOptions) {
    super(`${library}: ${symbol} returned ${status}: ${text}`, options);
    this.library = library;
    this.symbol = symbol;
    this.status = status;
    this.text = text;
  }
}

/** A bug of chorale's own. */
export class InvariantError extends ChoraleError {
  readonly code = "INVARIANT";
}

/**
 * States what must hold if chorale is right.
 * @throws InvariantError when it does not
 */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InvariantError(`${message} (this is a bug in chorale)`);
}

/** The error for memory that cannot be given back yet. @param use what still uses it */
export function tensorInUse(use: string): InvalidArgumentError {
  return new InvalidArgumentError(
    "tensor",
    described(`in use by ${use}`),
    "one whose operations are done: await them first",
  );
}
