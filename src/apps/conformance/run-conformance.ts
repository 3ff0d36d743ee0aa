/**
 * The suite from the outside: starts a world for each number of ranks, compares the ranks' digests, and goes on in a
 * new world after a case that left the old one unusable.
 */
import {
  type BackendName,
  type BackendOptions,
  backendKind,
  closeRankPool,
  DEFAULT_BACKEND,
  type Isolation,
  launch,
  loadableUrl,
  type NodesOptions,
  type OutputLine,
  runRanks,
} from "../../runtime/world/index.ts";
import { allCases, pairwise, RANK_COUNTS } from "./case-selection.ts";
import { type CaseFailure, type ConformanceJob, type RankReport, SHARED } from "./conformance-rank.ts";
import { type DataCase, describeCase } from "./data-cases.ts";
import { SEMANTIC_CASES } from "./semantic-cases.ts";
import { makeSharedWords } from "./shared-words.ts";

export interface ConformanceOptions {
  readonly backend?: BackendName;
  /** As `launch()` takes them, such as `{ blocking: false }` of nccl. */
  readonly backendOptions?: BackendOptions;
  /** Whether ranks are threads, the default, or processes. */
  readonly isolation?: Isolation;
  /** Every case instead of a pairwise-covering subset. */
  readonly full?: boolean;
  /** Where random data, and the subset, come from. By default they are drawn, and reported. */
  readonly seed?: number;
  /** Numbers of ranks of the data cases; each behaviour case has its own. */
  readonly ranks?: readonly number[];
  /** Cases of more ranks are skipped, visibly. */
  readonly maxRanks?: number;
  /** Random interleavings of groups; by default 1,000 with `full` and 40 otherwise. */
  readonly interleavings?: number;
  /** Calls of each random program; by default 3,000 with `full` and 48 otherwise. */
  readonly programCalls?: number;
  /** Only cases whose description contains this. */
  readonly filter?: string;
  readonly onProgress?: (done: number, total: number) => void;
  /**
   * Told of each case, by its place in the run: that it is seen running (no `ms`; a short one may go unseen), and
   * that it ended, with the time of the rank that was longest in it.
   */
  readonly onCase?: (event: CaseEvent) => void;
  /** Told at once of the first problem of each case. */
  readonly onFailure?: (name: string, problem: string) => void;
  /** Whether data and behaviour cases are both run; both by default. */
  readonly only?: "data" | "behaviour";
  /** What each rank runs instead of `runConformanceRank` itself: for showing that the suite finds what is broken. */
  readonly module?: URL;
  readonly env?: Readonly<Record<string, string>>;
  /**
   * The hosts of each world: this is the first; the others launch `conformance-rank` again and again, with
   * `ranksElsewhere` ranks together. They must share a file system, as namespaces of one machine do.
   */
  readonly nodes?: NodesOptions & { readonly ranksElsewhere: number };
}

export interface CaseEvent {
  readonly place: number;
  readonly total: number;
  readonly name: string;
  /** Absent while it runs. */
  readonly ms?: number;
}

export interface ConformanceResult {
  readonly seed: number;
  readonly numPassed: number;
  readonly failed: readonly { readonly name: string; readonly problems: readonly string[] }[];
  /** What the backend cannot do, with the number of cases. */
  readonly skipped: readonly { readonly why: string; readonly cases: number }[];
  readonly numSkipped: number;
  readonly tookMs: number;
  readonly slowest: readonly { readonly name: string; readonly ms: number }[];
}

/** How often it is looked which case runs. */
const WATCH_MS = 20;
const INTERLEAVINGS = 40;
const INTERLEAVINGS_OF_FULL = 1000;
const PROGRAM_CALLS = 48;
const PROGRAM_CALLS_OF_FULL = 3000;
/** The module that each rank runs. */
const RANK_MODULE = "apps/conformance/conformance-rank";

interface Entry {
  readonly name: string;
  readonly data?: DataCase;
}

/** Runs the suite on a backend. @returns what failed, by case; throws only when the suite itself is broken */
export async function runConformance(options: ConformanceOptions = {}): Promise<ConformanceResult> {
  try {
    return await runWorlds(options);
  } finally {
    // Threads that are kept for the next world have the environment of this run.
    await closeRankPool();
  }
}

async function runWorlds(options: ConformanceOptions): Promise<ConformanceResult> {
  const seed = options.seed ?? Math.floor(Math.random() * 2 ** 31);
  const began = Date.now();
  const wanted = options.ranks ?? RANK_COUNTS;
  const { filter } = options;
  const matching = <T>(cases: readonly T[], nameOf: (one: T) => string) =>
    filter === undefined ? cases : cases.filter((one) => nameOf(one).includes(filter));
  const everything = options.only === "behaviour" ? [] : matching(allCases(wanted), describeCase);
  const data = options.full ? everything : pairwise(everything, seed);
  const behaviour = options.only === "data" ? [] : matching(SEMANTIC_CASES, ({ name }) => name);
  const total = data.length + behaviour.length;
  const failed = new Map<string, string[]>();
  const times: { name: string; ms: number }[] = [];
  const skipped = new Map<string, number>();
  const most = await roomFor(options);
  const { maxRanks = Number.POSITIVE_INFINITY } = options;
  let done = 0;

  for (const ranks of [...new Set([...wanted, ...behaviour.map((c) => c.ranks)])].sort((a, b) => a - b)) {
    let queue: Entry[] = [
      ...data.filter((c) => c.ranks === ranks).map((c) => ({ name: describeCase(c), data: c })),
      ...behaviour.filter((c) => c.ranks === ranks).map((c) => ({ name: `${c.name} (${c.ranks} ranks)` })),
    ];
    const { ranksElsewhere = 0 } = options.nodes ?? {};
    const why =
      ranks - ranksElsewhere > most
        ? `room for ${most} ${most === 1 ? "rank" : "ranks"} here, not ${ranks - ranksElsewhere}`
        : ranks > maxRanks
          ? `${ranks} ranks, and ${maxRanks} are the most that was asked for`
          : ranks <= ranksElsewhere
            ? `${ranks} ranks, and the other hosts have ${ranksElsewhere}`
            : undefined;
    if (why !== undefined && queue.length > 0) {
      skipped.set(why, queue.length);
      done += queue.length;
      queue = [];
    }
    while (queue.length > 0) {
      // Worlds of a bounded number of cases: progress is seen, and a failure costs little.
      const batch = queue.slice(0, 2000);
      const before = done;
      const tell = (index: number, ms?: number) =>
        options.onCase?.({
          place: before + index + 1,
          total,
          name: batch[index]?.name ?? `case ${index}`,
          ...(ms === undefined ? {} : { ms }),
        });
      const numDone = await runBatch(batch, ranks, seed, options, { failed, times, skipped, tell });
      queue = queue.slice(Math.max(numDone, 1));
      done += Math.max(numDone, 1);
      options.onProgress?.(done, total);
    }
  }
  const numSkipped = [...skipped.values()].reduce((a, b) => a + b, 0);
  return {
    seed,
    numPassed: total - failed.size - numSkipped,
    failed: [...failed].map(([name, problems]) => ({ name, problems })),
    skipped: [...skipped].map(([why, cases]) => ({ why, cases })),
    numSkipped,
    tookMs: Date.now() - began,
    slowest: slowestOf(times),
  };
}

/** The slowest cases, each with the time of the rank that was longest in it. */
function slowestOf(times: Findings["times"]): Findings["times"] {
  const sorted = times.sort((a, b) => b.ms - a.ms);
  const seen = new Set<string>();
  return sorted.filter(({ name }) => !seen.has(name) && seen.add(name)).slice(0, 8);
}

/** How many ranks this machine has room for. An engine that is not here is for `launch()` to name. */
async function roomFor({ backend = DEFAULT_BACKEND, env }: ConformanceOptions): Promise<number> {
  // Ranks with an environment of their own may see other devices than this process.
  if (env !== undefined) return Number.POSITIVE_INFINITY;
  const kind = await backendKind(backend);
  try {
    return await kind.availableRanks();
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

interface Findings {
  readonly failed: Map<string, string[]>;
  readonly times: { name: string; ms: number }[];
  readonly skipped: Map<string, number>;
  readonly tell: (index: number, ms?: number) => void;
}

/** Runs cases in one world. @returns how many are settled, counting one that broke the world */
async function runBatch(
  batch: readonly Entry[],
  ranks: number,
  seed: number,
  options: ConformanceOptions,
  found: Findings,
): Promise<number> {
  const isolation =
    options.isolation ?? (await backendKind(options.backend ?? DEFAULT_BACKEND)).isolations[0] ?? "thread";
  const shared = makeSharedWords(SHARED.micros(batch.length, ranks), isolation);
  const strip = (name: string) => name.replace(/ \(\d+ ranks\)$/, "");
  const job: ConformanceJob = {
    seed,
    full: options.full ?? false,
    interleavings: options.interleavings ?? (options.full ? INTERLEAVINGS_OF_FULL : INTERLEAVINGS),
    programCalls: options.programCalls ?? (options.full ? PROGRAM_CALLS_OF_FULL : PROGRAM_CALLS),
    dataCases: batch.flatMap((entry) => entry.data ?? []),
    semanticCases: batch.filter((entry) => entry.data === undefined).map((entry) => strip(entry.name)),
    shared: shared.handle,
  };
  const note = (index: number, problem: string) => {
    const name = batch[index]?.name ?? `case ${index}`;
    if (!found.failed.has(name)) options.onFailure?.(name, problem);
    found.failed.set(name, [...(found.failed.get(name) ?? []), problem]);
  };
  const output: string[] = [];
  const begun = () => Array.from({ length: ranks }, (_, rank) => Atomics.load(shared.words, SHARED.begun(rank)));
  const tellTimes = options.onCase && timesTeller(shared.words, ranks, found.tell);
  const watch = tellTimes && setInterval(() => tellTimes(Math.min(...begun()) - 1, true), WATCH_MS);
  let reports: (RankReport | undefined)[];
  try {
    const module = options.module ?? loadableUrl(RANK_MODULE);
    const given = {
      ...(options.env === undefined ? {} : { env: options.env }),
      data: job,
      isolation,
      ...(options.backend === undefined ? {} : { backend: options.backend }),
      ...(options.backendOptions === undefined ? {} : { backendOptions: options.backendOptions }),
      onOutput: ({ rank, text }: OutputLine) => output.push(`[${rank}] ${text}`),
      timeoutMs: options.full ? 1_800_000 : 240_000,
    };
    // A world for each number of ranks, and threads are dear to start: what one has ended well with, the next one takes.
    const { nodes } = options;
    reports =
      isolation === "thread" && nodes === undefined
        ? await runRanks<RankReport, ConformanceJob>(ranks, { module }, given)
        : await launch<RankReport, ConformanceJob>({
            ...{ ...given, module, ranks: ranks - (nodes?.ranksElsewhere ?? 0) },
            ...(nodes === undefined ? {} : { nodes }),
          });
    tellTimes?.(batch.length, false);
  } catch (error) {
    const index = Math.max(Math.min(...begun()), 1) - 1;
    tellTimes?.(index, true);
    note(
      index,
      `the world ended: ${error instanceof Error ? error.message : String(error)}; cases begun by rank: ${begun().join(", ")}${output.length > 0 ? `\n${output.slice(-20).join("\n")}` : ""}`,
    );
    return index + 1;
  } finally {
    clearInterval(watch);
    shared.close();
  }
  return settle(
    reports.map((r) => r as RankReport),
    batch,
    note,
    found,
  );
}

/** Tells of the cases before `running` that it has not told of: those that ended with a time, not what was skipped. */
function timesTeller(words: Int32Array, ranks: number, tell: Findings["tell"]) {
  let told = 0;
  let seen = -1;
  return (running: number, goesOn: boolean): void => {
    for (; told < running; told++) {
      const micros = Atomics.load(words, SHARED.micros(told, ranks));
      if (micros > 0) tell(told, micros / 1000);
    }
    if (goesOn && running > seen) {
      seen = running;
      tell(running);
    }
  };
}

function settle(
  reports: readonly RankReport[],
  batch: readonly Entry[],
  note: (index: number, problem: string) => void,
  found: Findings,
): number {
  const fatal = reports.flatMap((report) => report.failures.filter((f) => f.fatal).map((f) => f.index));
  const end = fatal.length === 0 ? batch.length : Math.min(...fatal) + 1;
  reports.forEach((report, rank) => {
    // After the first fatal failure, what other ranks say is a consequence.
    const relevant = (f: CaseFailure) => f.index < end;
    for (const failure of report.failures.filter(relevant)) note(failure.index, `rank ${rank}: ${failure.problem}`);
    for (const [index, ms] of report.slowest) found.times.push({ name: batch[index]?.name ?? "", ms: Math.round(ms) });
  });
  const first = reports[0];
  for (const [index, why] of first?.skipped ?? []) {
    if (index < end) found.skipped.set(why, (found.skipped.get(why) ?? 0) + 1);
  }
  for (let index = 0; index < Math.min(end, first?.digests.length ?? 0); index++) {
    const digests = reports.map((report) => report.digests[index]);
    if (digests.some((d) => d !== digests[0])) {
      note(index, `the results differ between ranks (digests ${digests.join(", ")})`);
    }
  }
  return end;
}
