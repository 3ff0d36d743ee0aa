/** The world that measures what is tuned: how long, how often, and what its ranks tell. */
import { InvalidArgumentError, UnsupportedError } from "../../core/index.ts";
import type { BackendKind } from "../../runtime/comm/index.ts";
import type { ChoiceDocument } from "../../runtime/executor/internal.ts";
import { type BackendName, launch, loadableUrl, type NodesOptions } from "../../runtime/world/index.ts";
import { otherRanks, ranksOfHost } from "../bench/internal.ts";
import { TUNE_PREFIX } from "./tune-rank.ts";
import type { TuneJob, TuneReport } from "./tune-types.ts";

const RANK_MODULE = "apps/tune/tune-rank";

/** Seconds that measuring may take by default; the size that is at work then is finished. */
export const BUDGET_S = 40;

/** Loops of the first and the second look; every result is checked. */
export const HOW_MEASURED = { drive: "wait", repeats: 3, secondRepeats: 9, check: true, inPlace: false } as const;

/** @throws UnsupportedError, InvalidArgumentError where calls of a backend cannot name what serves them, or nobody is there to call */
export function requireTunable({ name, options, servesPlans, isolations }: BackendKind, ranks: number): void {
  // A call of each candidate names it.
  if (!Object.hasOwn(options, "choices") || servesPlans !== true) {
    throw new UnsupportedError(`tune --backend ${name}`, "that backend does not choose among algorithms call by call");
  }
  // shm is threads' code on other memory.
  if (!isolations.includes("thread")) {
    throw new UnsupportedError(
      `tune --backend ${name}`,
      "its ranks take the tables of threads: tune --backend threads",
    );
  }
  if (!Number.isInteger(ranks) || ranks < 2) throw new InvalidArgumentError("-n", ranks, "2 ranks or more");
}

/** Runs a job. @returns what rank 0 found */
export async function measured(
  job: TuneJob,
  world: {
    readonly ranks: number;
    readonly backend: BackendName;
    readonly choices: ChoiceDocument | "shipped";
    /** Of several hosts; `ranks` are those of all. */
    readonly nodes?: NodesOptions | undefined;
    readonly onProgress: (text: string) => void;
  },
): Promise<TuneReport | undefined> {
  const { ranks, backend, choices, nodes, onProgress } = world;
  onProgress(`measuring ${job.sizes.length} sizes`);
  const [report] = await launch<TuneReport, TuneJob>({
    ranks: ranksOfHost(ranks, nodes),
    ...(nodes === undefined ? {} : { nodes }),
    isolation: job.isolation,
    module: loadableUrl(RANK_MODULE),
    data: job,
    backend,
    backendOptions: { choices },
    onOutput: ({ stream, text }) => {
      if (text.startsWith(TUNE_PREFIX)) onProgress(`measured ${text.slice(TUNE_PREFIX.length)} bytes`);
      else if (stream === "stderr") process.stderr.write(`${text}\n`);
    },
  });
  if (report !== undefined && report.numRanks !== ranks) throw otherRanks(report.numRanks, ranks);
  return report;
}

/** What all ranks that are threads can have together, with 32-bit addresses. */
const MOST_THREADS_BYTES = 2 ** 32;

/**
 * Refuses sizes for which there can be no memory.
 * @throws InvalidArgumentError
 */
export function requireSizes(sizes: readonly number[], ranks: number, sharesMemory: boolean): void {
  const most = sharesMemory ? MOST_THREADS_BYTES / ranks : Number.POSITIVE_INFINITY;
  for (const size of sizes) {
    if (size > most)
      throw new InvalidArgumentError("-e", size, `at most ${most} bytes: ${ranks} ranks that are threads share 4 GiB`);
  }
}
