/**
 * The leak campaign from the outside: two worlds that work for long, then many short worlds, with the device's free
 * memory, the host's memory, file descriptors and threads read before and after.
 */
import { performance } from "node:perf_hooks";
import { setFlagsFromString } from "node:v8";
import { type BackendName, type BackendOptions, backendKind, type Isolation, launch } from "chorale/world";
import { type LeakJob, type LeakProgress, type PhaseReport, PROGRESS_PREFIX, type RankGauges } from "./leak-rank.ts";
import { collectGarbage, hostGauges } from "./process-gauges.ts";

export interface LeakOptions {
  readonly backend?: BackendName;
  readonly backendOptions?: BackendOptions;
  readonly isolation?: Isolation;
  readonly ranks?: number;
  /** Collectives of each rank; 100,000 by default. */
  readonly collectives?: number;
  readonly splits?: number;
  /** Worlds that are started and ended one after the other. */
  readonly inits?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Growth of a process's memory that is no leak, bytes: heaps of V8 breathe. 64 MiB for each heap, at least two by default. */
  readonly rssSlackBytes?: number;
  /** Further counters of this process that must come back, such as those of an instrumented library; read around the worlds. */
  readonly counters?: () => Readonly<Record<string, number>>;
  readonly onPhase?: (row: LeakRow) => void;
  /** Is told every two seconds or so how far a phase is, and at its end. */
  readonly onProgress?: (progress: LeakProgress) => void;
}

/** How far a phase is from where it began. Positive: something was kept. */
export interface LeakRow {
  readonly phase: "collectives" | "splits" | "inits";
  readonly count: number;
  /** Over the ranks, the largest. */
  readonly deviceBytes: number;
  readonly poolBytes: number;
  readonly rssBytes: number;
  /** What JavaScript holds after a collection, in the thread where it grew the most. */
  readonly heapBytes: number;
  readonly fds: number;
  readonly threads: number;
  /** Of `LeakOptions.counters`, those that are above where they were. */
  readonly counters: Readonly<Record<string, number>>;
  readonly tookMs: number;
  readonly ok: boolean;
}

export interface LeakReport {
  readonly backend: BackendName;
  readonly isolation: Isolation;
  readonly ranks: number;
  readonly rows: readonly LeakRow[];
  readonly ok: boolean;
}

const RANK_MODULE = new URL("./leak-rank.ts", import.meta.url);
const WARM_WORLDS = 2;
/**
 * The ranks' V8 keeps short-lived objects in little memory: what a young generation grows to in millions of calls, which Node 24
 * has take 150 MiB more of two ranks, would pass for a leak, and hide one.
 */
const YOUNG_FLAG = "--max-semi-space-size=2";
/** Of a process's memory that is no leak, for each heap: what V8 keeps of what it once had, and what it compiles. */
const HEAP_SLACK_BYTES = 64 * 2 ** 20;
/** Of what JavaScript holds after a collection: code that is compiled meanwhile. */
const HEAP_KEPT_BYTES = 4 * 2 ** 20;

type Gauge = Omit<RankGauges, "freeBytes"> & { readonly freeBytes: readonly number[] };

export function compareGauges(
  phase: LeakRow["phase"],
  count: number,
  pairs: readonly { readonly before: Gauge; readonly after: Gauge }[],
  tookMs: number,
  slack: number,
  counters: Readonly<Record<string, number>> = {},
): LeakRow {
  const most = (of: (pair: { before: Gauge; after: Gauge }) => number) => Math.max(0, ...pairs.map(of));
  const row = {
    deviceBytes: most(({ before, after }) =>
      Math.max(0, ...before.freeBytes.map((free, device) => free - (after.freeBytes[device] ?? free))),
    ),
    poolBytes: most(({ before, after }) => after.poolBytes - before.poolBytes),
    rssBytes: most(({ before, after }) => after.rssBytes - before.rssBytes),
    heapBytes: most(({ before, after }) => after.heapBytes - before.heapBytes),
    fds: most(({ before, after }) => after.fds - before.fds),
    threads: most(({ before, after }) => after.threads - before.threads),
    counters,
  };
  const ok =
    row.deviceBytes === 0 &&
    row.poolBytes === 0 &&
    row.fds === 0 &&
    row.threads === 0 &&
    row.rssBytes <= slack &&
    row.heapBytes <= HEAP_KEPT_BYTES &&
    Object.keys(counters).length === 0;
  return { phase, count, ...row, tookMs: Math.round(tookMs), ok };
}

/** Reads the free memory of every device that the ranks use, from this process; none on backends without devices. */
async function deviceReader(backend: BackendName, ranks: number) {
  if (!(await backendKind(backend)).usesDevices) return { read: (): number[] => [], close: () => {} };
  const { openDevice, requireCudaDriver } = await import("chorale/device");
  const driver = requireCudaDriver();
  const devices = Array.from({ length: ranks }, (_, ordinal) => openDevice(driver, ordinal));
  return {
    read: () => devices.map((device) => device.memoryInfo().freeBytes),
    close: () => {
      for (const device of devices) device.close();
    },
  };
}

/**
 * Runs the campaign: collectives in one world, splits in another, then short worlds.
 * @returns how far from their start device memory, host memory, descriptors and threads are after each phase
 * @throws what `launch()` throws
 */
export async function measureLeaks(options: LeakOptions = {}): Promise<LeakReport> {
  const { backend = "threads", isolation = "thread", ranks = 2 } = options;
  const heaps = isolation === "thread" ? Math.max(2, ranks) : 2;
  const { rssSlackBytes = heaps * HEAP_SLACK_BYTES } = options;
  const { collectives = 100_000, splits = 1_000, inits = 50 } = options;
  // For threads that are still to come, and for processes.
  setFlagsFromString(YOUNG_FLAG);
  const env = { NODE_OPTIONS: `${process.env["NODE_OPTIONS"] ?? ""} ${YOUNG_FLAG}`.trim(), ...options.env };
  const world = (job: LeakJob) =>
    launch<PhaseReport[], LeakJob>({
      ranks,
      backend,
      isolation,
      module: RANK_MODULE,
      data: job,
      ...(options.backendOptions === undefined ? {} : { backendOptions: options.backendOptions }),
      env,
      timeoutMs: 3_600_000,
      onOutput: ({ rank, text }) => {
        if (!text.startsWith(PROGRESS_PREFIX)) process.stderr.write(`[${rank}] ${text}\n`);
        else options.onProgress?.(JSON.parse(text.slice(PROGRESS_PREFIX.length)) as LeakProgress);
      },
    });
  const rows: LeakRow[] = [];
  const add = (row: LeakRow) => {
    rows.push(row);
    options.onPhase?.(row);
  };
  // A world for each, so that each is reported as soon as it is done.
  for (const job of [
    { collectives, splits: 0 },
    { collectives: 0, splits },
  ]) {
    if (job.collectives + job.splits === 0) continue;
    const byRank = await world(job);
    for (const [index, { phase, count, tookMs }] of (byRank[0] ?? []).entries()) {
      const pairs = byRank.flatMap((reports) => {
        const report = reports[index];
        if (report === undefined) return [];
        const gauge = (g: RankGauges): Gauge => ({ ...g, freeBytes: [g.freeBytes] });
        return [{ before: gauge(report.before), after: gauge(report.after) }];
      });
      add(compareGauges(phase, count, pairs, tookMs, rssSlackBytes));
    }
  }
  if (inits > 0) {
    const devices = await deviceReader(backend, ranks);
    const short = () => world({ collectives: 20, splits: 0, brief: true });
    const read = async (): Promise<Gauge> => {
      await collectGarbage();
      return { ...hostGauges(), poolBytes: 0, freeBytes: devices.read() };
    };
    for (let i = 0; i < WARM_WORLDS; i++) await short();
    const before = await read();
    const held = options.counters?.() ?? {};
    const began = performance.now();
    for (let i = 0; i < inits; i++) {
      await short();
      const tookMs = Math.round(performance.now() - began);
      options.onProgress?.({ phase: "inits", count: i + 1, of: inits, tookMs });
    }
    const tookMs = performance.now() - began;
    const after = await read();
    const more = Object.entries(options.counters?.() ?? {}).flatMap(([name, value]) => {
      const difference = value - (held[name] ?? 0);
      return difference > 0 ? [[name, difference] as const] : [];
    });
    add(compareGauges("inits", inits, [{ before, after }], tookMs, rssSlackBytes, Object.fromEntries(more)));
    devices.close();
  }
  return { backend, isolation, ranks, rows, ok: rows.every((row) => row.ok) };
}
