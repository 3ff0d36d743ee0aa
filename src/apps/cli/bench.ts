/** `chorale bench`: how fast an operation is here, with nccl-tests' columns. */
import { availableParallelism } from "node:os";
import { type Command, Option } from "commander";
import { parseOperation } from "../../collectives/index.ts";
import {
  type ChoraleError,
  InvalidArgumentError,
  parseDType,
  parseReduceOp,
  parseSize,
  REDUCE_OPS,
  UnavailableError,
  UnsupportedError,
} from "../../core/index.ts";
import {
  type BackendName,
  DEFAULT_BACKEND,
  ISOLATIONS,
  type Isolation,
  LAUNCH_BACKENDS,
  parseBackendOptions,
} from "../../runtime/world/index.ts";
import {
  type BenchOptions,
  type BenchRedop,
  type BenchRow,
  bench,
  checkBench,
  DRIVES,
  type Drive,
  defaultDrive,
  defaultRanks,
  sizeRange,
  tableFooter,
  tableHeader,
  tableRow,
} from "../bench/index.ts";
import { EXIT } from "./exit-codes.ts";
import { collect, factor, whole } from "./option-readers.ts";
import { print, printJson, showProgress } from "./output.ts";

const DEFAULT_MIN = 2 ** 10;
const DEFAULT_MAX = 16 * 2 ** 20;
/** Calls of one graph unless -G says. */
const DEFAULT_GRAPH_CALLS = 20;
/** More ranks than this must be asked for. */
const MOST_UNASKED = 8;

interface Flags {
  readonly ranks?: number;
  readonly backend: BackendName | "all";
  readonly isolation: Isolation;
  readonly min?: string;
  readonly max?: string;
  readonly factor: number;
  readonly dtype: string;
  readonly redop: string;
  readonly root: number;
  readonly drive?: Drive;
  readonly iterations?: number;
  readonly repeats?: number;
  readonly warmup?: number;
  readonly graph?: number | true;
  readonly backendOption?: readonly string[];
  readonly check?: boolean;
  readonly json?: boolean;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "<operation>",
      "all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter, send, barrier, ...",
    )
    .option("-n, --ranks <n>", "number of ranks (the cores or the visible GPUs, at most 8, unless given)", whole(1))
    .addOption(
      new Option("--backend <name>", "what communicates").choices([...LAUNCH_BACKENDS, "all"]).default(DEFAULT_BACKEND),
    )
    .addOption(
      new Option("--isolation <how>", "what a rank runs in (threads: thread only)")
        .choices(ISOLATIONS)
        .default("thread"),
    )
    .option(
      "--backend-option <key=value>",
      "what the backend is told, as launch()'s backendOptions (nccl: devices=[0,2] registerBuffers=true ...)",
      collect,
    )
    .option("-b, --min <size>", "first size, as the larger of a rank's two buffers (1K unless given)")
    .option("-e, --max <size>", "last size (16M unless given)")
    .option("-f, --factor <f>", "each size is this times the one before", factor, 4)
    .option("--dtype <dtype>", "element type", "f32")
    .option("--redop <op>", `${REDUCE_OPS.join(", ")}, preMulSum`, "sum")
    .option("--root <rank>", "root of rooted operations", whole(0), 0)
    .addOption(
      new Option(
        "--drive <how>",
        "wait: each call by wait(); await: by the event loop; queue: back to back, as nccl-tests (wait on threads, queue on nccl unless given)",
      ).choices(DRIVES),
    )
    .option("--iterations <n>", "calls per loop; chosen by time unless given", whole(1))
    .option("--repeats <n>", "loops per size; the median counts", whole(1), 5)
    .option("--warmup <n>", "calls before the timed ones", whole(0))
    .option(
      "-G, --graph [calls]",
      `capture this many calls (${DEFAULT_GRAPH_CALLS} unless given) in a graph and time its replay (nccl)`,
      whole(1),
    )
    .option("--check", "check the results and print the number of wrong elements")
    .option("--json", "print one JSON document")
    .action(async (operation: string, flags: Flags) => exit(await run(operation, flags)));
}

function redop(text: string): BenchRedop {
  return text === "preMulSum" ? text : parseReduceOp(text, "--redop");
}

async function run(operation: string, flags: Flags): Promise<number> {
  if (/\.(ts|js|mjs|json)$/.test(operation)) {
    throw new UnsupportedError(
      `bench of the program ${operation}`,
      "this version measures the operations of a backend",
    );
  }
  const op = parseOperation(operation);
  const all = flags.backend === "all";
  const backends = flags.backend === "all" ? LAUNCH_BACKENDS : [flags.backend];
  const first = flags.min === undefined ? undefined : parseSize(flags.min, "-b");
  const last = flags.max === undefined ? Math.max(DEFAULT_MAX, first ?? 0) : parseSize(flags.max, "-e");
  const options: Omit<BenchOptions, "ranks"> = {
    op,
    isolation: flags.isolation,
    ...(flags.backendOption === undefined ? {} : { backendOptions: parseBackendOptions(flags.backendOption) }),
    sizes: sizeRange(first ?? Math.min(DEFAULT_MIN, last), last, flags.factor),
    dtype: parseDType(flags.dtype, "--dtype"),
    redop: redop(flags.redop),
    root: flags.root,
    check: flags.check === true,
    ...(flags.drive === undefined ? {} : { drive: flags.drive }),
    ...(flags.iterations === undefined ? {} : { iterations: flags.iterations }),
    ...(flags.repeats === undefined ? {} : { repeats: flags.repeats }),
    ...(flags.warmup === undefined ? {} : { warmup: flags.warmup }),
    ...(flags.graph === undefined ? {} : { graphCalls: flags.graph === true ? DEFAULT_GRAPH_CALLS : flags.graph }),
  };
  // What no backend can do is bad usage, whichever engines are here.
  await checkBench({ ...options, ranks: flags.ranks ?? 2 }, backends);
  const rows: BenchRow[] = [];
  const skipped: { backend: BackendName; why: string }[] = [];
  for (const backend of backends) {
    try {
      rows.push(
        ...(await measure(
          { ...options, backend, ranks: flags.ranks ?? (await defaultRanks(backend, MOST_UNASKED)) },
          flags,
        )),
      );
    } catch (error) {
      if (!all || !isSkippable(error)) throw error;
      skipped.push({ backend, why: error.message });
      if (!flags.json) print(`# ${backend} skipped: ${error.message}\n`);
    }
  }
  if (flags.json) {
    printJson({ schemaVersion: 1, rows, skipped }, 2);
  }
  if (rows.length === 0 && skipped.length > 0) return EXIT.environment;
  const isWrong = rows.some((row) => (row.wrong ?? 0) > 0 || (row.inPlace?.wrong ?? 0) > 0);
  return isWrong ? EXIT.checkFailed : EXIT.done;
}

/** With --backend all, an engine that is not here, or cannot do this, is left out and named. */
function isSkippable(error: unknown): error is ChoraleError {
  return (
    error instanceof UnavailableError ||
    error instanceof UnsupportedError ||
    (error instanceof InvalidArgumentError && error.argument === "-n")
  );
}

/** Measures on one backend, and prints the table as it grows. */
async function measure(options: BenchOptions, flags: Flags): Promise<BenchRow[]> {
  const { op, ranks, backend = DEFAULT_BACKEND, sizes, graphCalls = 0 } = options;
  const graph = graphCalls > 0 ? `, graphs of ${graphCalls} calls` : "";
  const how = options.drive ?? (await defaultDrive(backend));
  const each = options.isolation === "process" ? " in processes" : "";
  const label = `# chorale bench ${op}: ${ranks} ranks${each}, backend ${backend}, ${how}${graph}, ${availableParallelism()} cores`;
  let measured = 0;
  let isHeaded = false;
  const show = (lines: readonly string[]) => {
    if (flags.json) return;
    if (!isHeaded) print(`${[label, ...tableHeader()].join("\n")}\n`);
    isHeaded = true;
    print(`${lines.join("\n")}\n`);
  };
  showProgress(`measuring size 1 of ${sizes.length}`);
  try {
    const found = await bench({
      ...options,
      onRow: (row) => {
        measured++;
        showProgress("");
        show([tableRow(row)]);
        if (measured < sizes.length) showProgress(`measuring size ${measured + 1} of ${sizes.length}`);
      },
    });
    showProgress("");
    show(tableFooter(found));
    return found;
  } finally {
    showProgress("");
  }
}
