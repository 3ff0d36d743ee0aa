/**
 * What the verifier has to say, as data. Rendering is in `render-findings.ts`. A finding of severity
 * `error` means that the plan is not right by docs/semantics.md; a `warning` is worth a look and changes no verdict.
 */
import type { BufferKind, ExecutionPlan, SourceLocation } from "../plan/index.ts";

export const FINDING_CODES = {
  malformed: "an operation names something that the plan does not have",
  "unknown-collective": "nothing says what the outputs have to hold",
  "wrong-peer": "a channel is used with a buffer that its peer does not own",
  "missing-contribution": "an output chunk lacks an input that belongs in it",
  "doubled-contribution": "an output chunk holds an input more than once",
  misplaced: "an output chunk holds an input that does not belong there",
  "wrong-operator": "an output chunk was combined with another operator than the collective's",
  "cut-data": "data is kept in a chunk that is shorter at some sizes than the one it comes from",
  "undefined-output": "an output chunk holds memory that nobody wrote",
  "input-overwritten": "the caller's input is overwritten although the call is not in place",
  race: "two accesses to the same place are not ordered, and one writes",
  hazard: "two operations of one strand touch the same place at different positions with no synchronisation between",
  "packet-mix": "packets are read as plain data, or plain data as packets",
  deadlock: "strands wait for each other",
  "unmatched-wait": "a wait has no signal left to wait for",
  "surplus-signal": "a signal is never waited for",
  "semaphore-not-restored": "a semaphore does not end at its initial value",
  "loop-mismatch": "the two ends of a channel run their loops a different number of times",
  "barrier-mismatch": "the strands of a barrier do not agree on who takes part",
  "unfinished-put": "a put may still be under way when every strand has ended",
  undecided: "the verifier could not decide within its budget",
  "limit-exceeded": "the plan exceeds a limit of the executor that it is meant for",
  "target-defect": "the executor that the plan is meant for does something else than the plan says",
  "early-leave": "a rank may leave a barrier before another has come to it",
  "late-output": "a rank may end before its output is complete",
  "early-reuse": "a rank may end while a peer still uses its input or output",
  "relaunch-race": "two launches one after the other disturb each other",
  "unused-channel": "a channel is declared and never used",
  unreachable: "an operation can never run",
  "dead-copy": "data is written and never used",
} as const;
export type FindingCode = keyof typeof FINDING_CODES;
export type Severity = "error" | "warning";

/** Where an operation stands: index in the strand's `ops`, and in the body when it is inside a pipeline. */
export interface OpRef {
  readonly rank: number;
  readonly strand: number;
  readonly op: number;
  readonly body?: number;
  readonly iteration?: number;
  readonly source?: SourceLocation;
}

export interface ChunkPlace {
  readonly rank: number;
  readonly buffer: BufferKind;
  readonly index: number;
}

/** A finding stands at the operation at fault; -1 where it is about a rank or the plan as a whole. */
export interface Finding extends OpRef {
  readonly code: FindingCode;
  readonly severity: Severity;
  readonly chunk?: ChunkPlace;
  readonly message: string;
  readonly hint: string;
  /** The other operations that take part: the second access of a race, the members of a wait cycle. */
  readonly related?: readonly OpRef[];
  /** Of a wait cycle: for what each of its members waits, and on whom; the message says them in one line. */
  readonly waits?: readonly string[];
  /** Of a wrong output: the first operation whose result was wrong, where that is another than the one that wrote it. */
  readonly cause?: OpRef;
}

/** Completes an operation's place with its line in the program. */
export function opRef(
  plan: ExecutionPlan,
  rank: number,
  strand: number,
  op: number,
  body?: number,
  iteration?: number,
): OpRef {
  const outer = plan.ranks[rank]?.strands[strand]?.ops[op];
  const inner = body !== undefined && outer?.kind === "pipeline" ? outer.body[body] : outer;
  const index = inner?.source ?? outer?.source;
  const source = index === undefined ? undefined : plan.sources[index];
  return {
    rank,
    strand,
    op,
    ...(body === undefined ? {} : { body }),
    ...(iteration === undefined ? {} : { iteration }),
    ...(source === undefined ? {} : { source }),
  };
}

/** Collects findings, at most `limit` of each code; counts the rest. */
export class Findings {
  readonly list: Finding[] = [];
  readonly suppressed = new Map<FindingCode, number>();
  readonly #perCode = new Map<string, number>();
  readonly #limit: number;
  constructor(limit = 16) {
    this.#limit = limit;
  }
  add(finding: Finding): void {
    const key = `${finding.code} ${finding.severity}`;
    const count = (this.#perCode.get(key) ?? 0) + 1;
    this.#perCode.set(key, count);
    if (count <= this.#limit) this.list.push(finding);
    else this.skip(finding.code);
  }
  /** Counts a finding without listing it. */
  skip(code: FindingCode): void {
    this.suppressed.set(code, (this.suppressed.get(code) ?? 0) + 1);
  }
  at(
    plan: ExecutionPlan,
    place: readonly [rank: number, strand: number, op: number, body?: number | undefined],
    finding: Omit<Finding, "rank" | "strand" | "op" | "body" | "source">,
  ): void {
    this.add({ ...opRef(plan, ...place), ...finding });
  }
  /** About a rank as a whole; about the plan, with -1. */
  atRank(rank: number, finding: Omit<Finding, "rank" | "strand" | "op" | "body" | "source">): void {
    this.add({ rank, strand: -1, op: -1, ...finding });
  }
  get hasErrors(): boolean {
    return this.list.some((finding) => finding.severity === "error");
  }
}

/** A count of events as a word: never, once, twice, 3 times. */
export const times = (count: number): string => ["never", "once", "twice"][count] ?? `${count} times`;
