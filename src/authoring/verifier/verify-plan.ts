/**
 * The verifier: proves that a plan does what its collective asks, under every interleaving, or says what is wrong and
 * where. The semantics are docs/semantics.md; why one exploration decides is in `explore-plan.ts`. What it refuses to do:
 * guess. Where it cannot decide within its budget it says `undecided`, as an error.
 */
import type { ExecutionPlan } from "../plan/index.ts";
import { placeOfSite } from "./access-log.ts";
import { type Geometry, iterationsOf, layOut, MAX_STEPS } from "./cell-geometry.ts";
import type { Promises } from "./check-promises.ts";
import { checkShape } from "./check-shape.ts";
import { checkCounts } from "./check-signal-balance.ts";
import { checkTarget, type Target } from "./check-target.ts";
import { OrderComparison } from "./compare-orders.ts";
import { reportDeadlock } from "./deadlock.ts";
import { type Exploration, explore } from "./explore-plan.ts";
import { type Finding, type FindingCode, Findings } from "./findings.ts";
import { judge } from "./judge-outputs.ts";
import { lint } from "./lint-plan.ts";
import { undecidedLoops } from "./loop-progress.ts";
import { type CheckedSize, sizesToCheck } from "./loop-units.ts";
import { countsAhead } from "./packet-lookahead.ts";
import type { Stalls } from "./proxy-stalls.ts";
import { hasShortChunks, ShortChunks } from "./short-chunks.ts";
import {
  areOrdered,
  type Counter,
  type CounterTable,
  counterTable,
  laterWaits,
  mustPrecede,
} from "./signal-counters.ts";
import { Values } from "./symbolic-values.ts";
import { type Policy, simple } from "./token-accounting.ts";

export interface VerifyOptions {
  /** Also checks the limits and known defects of this executor. */
  readonly target?: Target;
  /** Promises beyond correctness, each off unless asked for. */
  readonly promises?: Promises & {
    /** Launches may follow each other without anything between them. */
    readonly relaunch?: boolean;
  };
  /** Warnings about unused channels, dead copies and the like. On by default. */
  readonly lint?: boolean;
  /** Units that a chunk has where loops are unrolled. As many as decide for every size by default. */
  readonly unitsPerChunk?: readonly number[];
  /**
   * Where strands compete for signals: operations executed in trying the orders, beyond the first 256 orders, before the
   * verdict is `undecided`. 1,000,000 by default.
   */
  readonly maxOrderSteps?: number;
  /** Findings of one code that are listed; the rest is counted. 16 by default. */
  readonly maxFindings?: number;
}

export interface Verdict {
  /** No finding is an error. */
  readonly ok: boolean;
  readonly findings: readonly Finding[];
  /** Findings beyond `maxFindings`, by code. */
  readonly suppressed: Readonly<Partial<Record<FindingCode, number>>>;
  readonly stats: { readonly operations: number; readonly cells: number; readonly explorations: number };
}

/** Adds findings to others in other words: of a check under conditions that the words have to name. Warnings are left out. */
class RewordedFindings extends Findings {
  readonly #inner: Findings;
  readonly #reword: (finding: Finding) => Partial<Finding>;
  constructor(inner: Findings, reword: (finding: Finding) => Partial<Finding>) {
    super();
    this.#inner = inner;
    this.#reword = reword;
  }
  override add(finding: Finding): void {
    if (finding.severity === "warning") return;
    super.add(finding);
    this.#inner.add({ ...finding, ...this.#reword(finding) });
  }
}

/** A finding of the run as MSCCL++'s executor does it. */
const onExecutor = ({ code, message }: Finding): Partial<Finding> => ({
  code: code === "undecided" ? code : "target-defect",
  message: `on this executor, where one thread each signals and waits, and threads share out packets otherwise than plain data: ${message}`,
  hint: "put a nop (sync) before signals, behind waits, and between packets and plain data of the same place",
});

/** A finding of a run of several launches. */
const whenLaunchedAgain = ({ code, message }: Finding): Partial<Finding> => ({
  code: code === "undecided" ? code : "relaunch-race",
  message: `launched three times in a row: ${message}`,
  hint: "double-buffer scratch, or synchronise the ranks at the end of the plan",
});

/** Ways to order contested waits that are always tried. */
const MIN_ORDERS = 256;
/** `maxOrderSteps` by default: a lock with seven contenders takes 5,040 orders. */
const MAX_ORDER_STEPS = 1_000_000;
/** Runs in which more orders are derived; fewer derived orders make the verdict stricter, never wrong. */
const MAX_ORDER_ROUNDS = 12;
/** Runs until no read is newly marked. Each may mark only what races through one more place; beyond: undecided. */
const MAX_MARK_ROUNDS = 64;

/**
 * Proves a plan right, or says what is wrong with it. Pure: the plan is not changed, nothing is printed.
 * @returns all findings as data; `ok` when none is an error
 * @example
 * verifyPlan({ schemaVersion: 1, name: "idle", mode: "imported", collective: { operation: "barrier", numRanks: 1, chunksPerPart: 1, inPlace: false }, options: { protocol: "Simple", instances: 1, reuseResources: false, numThreadsPerBlock: 32, useDoubleScratchBuffer: false, bufferAlignment: 16, minMessageSizeBytes: 0n, maxMessageSizeBytes: 0n }, ranks: [{ rank: 0, input: { chunks: 0, segments: 1 }, output: { chunks: 0, segments: 1 }, scratch: { chunks: 0, segments: 1 }, channels: { memory: [], port: [], switch: [] }, semaphores: [], strands: [] }], sources: [] }).ok // true
 */
export function verifyPlan(plan: ExecutionPlan, options: VerifyOptions = {}): Verdict {
  const findings = new Findings(options.maxFindings);
  const stats = { operations: 0, cells: 0, explorations: 0 };
  if (checkShape(plan, findings)) {
    checkMeaning(plan, findings);
    if (options.target !== undefined) checkTarget(plan, options.target, findings);
    const sizes = sizesToCheck(plan, options.unitsPerChunk);
    const last = sizes.list.length - 1;
    sizes.list.forEach((size, i) => {
      if (i > 0 && findings.hasErrors) return;
      const at = (
        launches: number,
        on: Findings,
        promises: Promises | undefined,
        withLint: boolean,
        threadwise: boolean,
      ) => verifyAt(plan, size, launches, { ...options, promises: promises ?? {} }, on, stats, withLint, threadwise);
      const { promises } = options;
      at(1, findings, promises, i === last, false);
      const again = promises?.relaunch === true;
      if (again && !findings.hasErrors) at(3, findings, undefined, false, false);
      // MSCCL++'s executor orders less than the plan says: what is right so far has to be right there too.
      if (options.target !== "mscclpp" || findings.hasErrors) return;
      const reworded = new RewordedFindings(findings, onExecutor);
      at(1, reworded, promises, false, true);
      if (again && !findings.hasErrors) at(3, reworded, undefined, false, true);
    });
    const notCovered =
      sizes.notCovered ??
      (findings.hasErrors || options.unitsPerChunk !== undefined ? undefined : undecidedProgress(plan, sizes.list[0]!));
    if (notCovered !== undefined && !findings.hasErrors)
      findings.atRank(-1, { code: "undecided", severity: "error", ...notCovered });
  }
  return {
    ok: !findings.hasErrors,
    findings: findings.list,
    suppressed: Object.fromEntries(findings.suppressed),
    stats,
  };
}

/** Why loops may get stuck at sizes that were not looked at. */
function undecidedProgress(plan: ExecutionPlan, size: CheckedSize): { message: string; hint: string } | undefined {
  if (!plan.ranks.some(({ strands }) => strands.some(({ ops }) => ops.some((op) => op.kind === "pipeline"))))
    return undefined;
  const geometry = layOut(plan, size, 1);
  const why = typeof geometry === "string" ? undefined : undecidedLoops(plan, counterTable(geometry));
  if (why === undefined) return undefined;
  return {
    message: `its loops end at the sizes that were looked at, but may get stuck at others: ${why}`,
    hint: "let each channel and semaphore of a loop stand in one loop at either end, in the same order in all strands",
  };
}

/** A file whose collective says nothing of any output would be right whatever it does. */
function checkMeaning({ mode, collective: { operation, custom } }: ExecutionPlan, findings: Findings): void {
  if (mode !== "imported" || operation !== "custom" || custom === undefined) return;
  const outputs = custom.outputChunks.some((chunks) => chunks > 0);
  if (!outputs || custom.post.some((chunks) => chunks.some((value) => value !== null))) return;
  findings.atRank(-1, {
    code: "unknown-collective",
    severity: "error",
    message: `nothing says what the outputs of ${JSON.stringify(custom.name)} have to hold: it is no collective that is known, or its buffers fit none, or its root cannot be told from them`,
    hint: "say what it is: --expect all_reduce, --expect broadcast:ROOT, or --expect anything",
  });
}

const UNSETTLED = [
  `races follow from races through more than ${MAX_MARK_ROUNDS} places`,
  "order the writes of each place, even of equal values, by signals or barriers",
] as const;

function verifyAt(
  plan: ExecutionPlan,
  size: CheckedSize,
  launches: number,
  options: VerifyOptions,
  target: Findings,
  stats: { operations: number; cells: number; explorations: number },
  withLint: boolean,
  threadwise = false,
): void {
  const findings = launches > 1 ? new RewordedFindings(target, whenLaunchedAgain) : target;
  const undecided = (message: string, hint: string) =>
    findings.atRank(-1, { code: "undecided", severity: "error", message, hint });
  const geometry = layOut(plan, size, launches);
  if (typeof geometry === "string") {
    undecided(`the plan is too fine to be checked: ${geometry}`, "use units and groups that divide evenly");
    return;
  }
  const steps = countSteps(geometry);
  if (steps > MAX_STEPS) {
    undecided(`the plan has ${steps} operations with its loops unrolled`, `at most ${MAX_STEPS} are checked`);
    return;
  }
  stats.cells = geometry.numCells;
  const table = counterTable(geometry);
  const promised =
    options.promises?.reuseAtRankEnd === true ||
    options.promises?.outputAtRankEnd === true ||
    plan.collective.operation === "barrier";
  // MSCCL++'s executor refuses sizes that do not divide.
  const isUneven = options.target === undefined && hasShortChunks(plan);
  const session = new Session(geometry, table, stats, { keepReads: promised, threadwise, isUneven });
  checkCounts(geometry, table, findings);
  const first = session.settle({ kind: "greedy" });
  stats.operations = first.steps;
  if (first.blocked.length > 0) {
    reportDeadlock(geometry, table, first, findings);
    return;
  }
  reportBarriers(geometry, first, findings);
  const contested = contestedCounters(table, first);
  // Where several strands compete for the same tokens: if even the slowest order ends, every order does.
  const needed = (counter: Counter, strand: number, ordinal: number) => {
    const waits = first.waits.get(counter.id) ?? [];
    const own = waits.find((wait) => wait.strand === strand && wait.ordinal === ordinal);
    return own === undefined ? counter.totalWaits : counter.totalWaits - laterWaits(own, waits);
  };
  const slowest =
    contested.length > 0
      ? session.heldUp({ kind: "pessimistic", needed }, first.stalls)
      : first.stalls.size > 0
        ? session.heldUp({ kind: "greedy" }, first.stalls)
        : first;
  if (slowest.blocked.length === 0) {
    judge(geometry, session.values, first, options.promises, findings);
    if (!findings.hasErrors) session.short?.report(findings);
    if (session.unsettled && !findings.hasErrors) undecided(...UNSETTLED);
    if (withLint && options.lint !== false && !findings.hasErrors) lint(geometry, first, findings);
    return;
  }
  if (contested.length === 0) {
    reportDeadlock(geometry, table, slowest, findings);
    return;
  }
  const ids = new Set(contested.map((counter) => counter.id));
  const orders = new OrderComparison(geometry, session.values);
  const maxSteps = options.maxOrderSteps ?? MAX_ORDER_STEPS;
  tryOrders(findings, maxSteps, (choices) => {
    const run = session.settle({ kind: "choices", contested: ids, choices });
    if (run.blocked.length > 0) reportDeadlock(geometry, table, run, findings);
    else {
      reportBarriers(geometry, run, findings);
      judge(geometry, session.values, run, options.promises, findings);
      orders.add(run, findings);
    }
    return run;
  });
  if (!findings.hasErrors) session.short?.report(findings);
  if (findings.hasErrors) return;
  if (session.unsettled) {
    undecided(...UNSETTLED);
    return;
  }
  if (threadwise || countsAhead(plan, geometry.opBase)) {
    undecided(
      "strands compete for signals or semaphores, and a relaxed signal or wait may be executed while its strand still waits for packets: there are more orders than are tried",
      "put a nop (sync) between the packets and what is relaxed, or give each waiting strand a channel of its own",
    );
    return;
  }
  if (first.stalls.size === 0) return;
  tryOrders(findings, maxSteps, (choices) => {
    const run = session.heldUp({ kind: "choices", contested: ids, choices }, first.stalls);
    if (run.blocked.length > 0) reportDeadlock(geometry, table, run, findings);
    return run;
  });
}

/** Says where it depends on timing which strands meet at a barrier: this run is then not that of all interleavings. */
function reportBarriers(geometry: Geometry, run: Exploration, findings: Findings): void {
  for (const { site, barrier, why } of run.barrierClashes) {
    const { rank, strand, op, body } = placeOfSite(geometry, site);
    findings.at(geometry.plan, [rank, strand, op, body], {
      code: "barrier-mismatch",
      severity: "error",
      message:
        why === "counts"
          ? `barrier ${barrier} of rank ${rank} is given different numbers of strands`
          : `comes to barrier ${barrier} of rank ${rank} while other strands may still meet there: who meets whom depends on timing`,
      hint:
        why === "counts"
          ? "give every operation of a barrier the same numStrands"
          : "give each group of strands a barrier of its own, or order this strand behind the others' meeting",
    });
  }
}

/** Tries every order in which contested waits can be served. */
function tryOrders(findings: Findings, maxSteps: number, attempt: (choices: readonly number[]) => Exploration): void {
  let choices: number[] = [];
  let steps = 0;
  for (let count = 0; ; count++) {
    if (count >= MIN_ORDERS && steps > maxSteps) {
      findings.atRank(-1, {
        code: "undecided",
        severity: "error",
        message: `strands compete for signals or semaphores in more than ${count} orders; those tried were fine`,
        hint: "give each waiting strand a channel or semaphore of its own",
      });
      return;
    }
    const run = attempt(choices);
    steps += run.steps;
    if (findings.hasErrors) return;
    // The next order: raise the last choice that has an alternative left.
    const taken = run.decisions.map((_, i) => choices[i] ?? 0);
    let last = taken.length - 1;
    while (last >= 0 && taken[last]! + 1 >= run.decisions[last]!) last--;
    if (last < 0) return;
    choices = [...taken.slice(0, last), taken[last]! + 1];
  }
}

interface SessionMode {
  readonly keepReads: boolean;
  readonly threadwise: boolean;
  /** Chunks need not be equally long. */
  readonly isUneven: boolean;
}

/** Runs explorations of one geometry until derived orders and marked reads are stable. */
class Session {
  readonly values: Values;
  /** Some run was given up while it still found more that depends on races. */
  unsettled = false;
  readonly #geometry: Geometry;
  readonly #table: CounterTable;
  readonly #stats: { explorations: number };
  /** Of all runs; undefined where all chunks are equally long. */
  readonly short: ShortChunks | undefined;
  readonly #mode: SessionMode;
  constructor(geometry: Geometry, table: CounterTable, stats: { explorations: number }, mode: SessionMode) {
    this.#mode = mode;
    this.values = new Values(geometry.numLeaves * geometry.launches);
    this.short = mode.isUneven ? new ShortChunks(geometry, this.values) : undefined;
    this.#geometry = geometry;
    this.#table = table;
    this.#stats = stats;
  }

  once(
    policy: Policy,
    derived: ReadonlyMap<string, readonly string[]> = new Map(),
    marked = new Map<number, number>(),
    watched: ReadonlySet<number> = new Set(),
    stalls?: Stalls,
  ) {
    this.#stats.explorations++;
    return explore({
      geometry: this.#geometry,
      table: this.#table,
      values: this.values,
      policy,
      derived,
      marked,
      watched,
      ...this.#mode,
      short: this.short,
      stalls,
    });
  }

  /** A run in which proxies are held up as long as may be, for what gets stuck only: its values are not settled. */
  heldUp(policy: Policy, stalls: Stalls): Exploration {
    return this.once(policy, undefined, undefined, undefined, stalls.size > 0 ? stalls : undefined);
  }

  settle(policy: Policy): Exploration {
    let derived: ReadonlyMap<string, readonly string[]> = new Map();
    let run = this.once(policy);
    if (this.#table.counters.some((counter) => !simple(counter))) {
      let known = 0;
      for (let round = 0; round < MAX_ORDER_ROUNDS && run.blocked.length === 0; round++) {
        const next = derive(this.#table, run, policy.kind === "choices");
        const size = [...next.values()].reduce((sum, keys) => sum + keys.length, 0);
        if (size === known) break;
        known = size;
        derived = next;
        run = this.once(policy, derived);
      }
    }
    if (run.blocked.length > 0) return run;
    const marked = new Map<number, number>();
    let watched: ReadonlySet<number> = new Set();
    for (let round = 0; ; round++) {
      const { lateMarks, contested } = run.memory;
      if (lateMarks.size === 0 && contested.size === watched.size) break;
      if (round === MAX_MARK_ROUNDS) {
        this.unsettled = true;
        break;
      }
      for (const [read, race] of lateMarks) marked.set(read, race);
      watched = contested;
      run = this.once(policy, derived, marked, watched);
    }
    return run;
  }
}

/** For waits on counters that several strands share: the signals that surely came before. */
function derive(table: CounterTable, run: Exploration, ticketsAreFixed: boolean): Map<string, readonly string[]> {
  const result = new Map<string, readonly string[]>();
  for (const counter of table.counters) {
    if (simple(counter)) continue;
    const signals = run.signals.get(counter.id) ?? [];
    const waits = run.waits.get(counter.id) ?? [];
    const keys = run.signalKeys.get(counter.id) ?? [];
    const fixed = counter.waiters.size === 1 ? "all" : ticketsAreFixed ? "chosen" : "none";
    mustPrecede(counter.initial, signals, waits, fixed).forEach((indices, i) => {
      const wait = waits[i]!;
      if (indices.length === 0) return;
      result.set(
        `${counter.id}:${wait.strand}:${wait.ordinal}`,
        indices.map((index) => keys[index]!),
      );
    });
  }
  return result;
}

function contestedCounters(table: CounterTable, run: Exploration): Counter[] {
  return table.counters.filter((counter) => counter.waiters.size > 1 && !areOrdered(run.waits.get(counter.id) ?? []));
}

function countSteps(geometry: Geometry): number {
  let steps = 0;
  for (const rank of geometry.plan.ranks) {
    for (const strand of rank.strands)
      for (const op of strand.ops) steps += op.kind === "pipeline" ? op.body.length * iterationsOf(op, geometry) : 1;
  }
  return steps * geometry.launches;
}
