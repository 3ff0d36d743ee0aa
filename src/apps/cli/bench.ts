/** `chorale bench`: how fast an operation is here, with nccl-tests' columns. */
import { availableParallelism } from "node:os";
import { type Command, Option } from "commander";
import { operationInfo, parseOperation } from "../../collectives/index.ts";
import {
  type ChoraleError,
  InvalidArgumentError,
  parseDType,
  REDUCE_OPS,
  UnavailableError,
  UnsupportedError,
} from "../../core/index.ts";
import {
  type BackendName,
  backendKind,
  DEFAULT_BACKEND,
  ISOLATIONS,
  LAUNCH_BACKENDS,
  parseBackendOptions,
} from "../../runtime/world/index.ts";
import {
  type BenchOptions,
  type BenchRow,
  bench,
  checkBench,
  DRIVES,
  defaultDrive,
  defaultRanks,
  tableFooter,
  tableHeader,
  tableRow,
} from "../bench/index.ts";
import { DEFAULT_SIZES, type Flags, MOST_UNASKED, redop } from "./bench-flags.ts";
import { counted } from "./counted.ts";
import { EXIT } from "./exit-codes.ts";
import { addHostOptions, measuredHosts, measuredHostsHelp } from "./host-options.ts";
import { collect, factor, whole } from "./option-readers.ts";
import { print, printJson, showProgress } from "./output.ts";
import { sizesOf } from "./size-options.ts";

/** Calls of one graph unless -G says. */
const DEFAULT_GRAPH_CALLS = 20;
export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "<operation>",
      "all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter, send, barrier, ...; or a program (FILE.ts, a plan's FILE.json, an algorithm's name), measured beside the built-in choice",
    )
    .option("-n, --ranks <n>", "number of ranks (default: the cores or the visible GPUs, at most 8)", whole(1))
    .addOption(
      new Option("--backend <name>", "what communicates").choices([...LAUNCH_BACKENDS, "all"]).default(DEFAULT_BACKEND),
    )
    .addOption(
      new Option("--isolation <how>", "what a rank runs in (thread; process with shm, tcp and mpi)").choices(
        ISOLATIONS,
      ),
    )
    .option(
      "--backend-option <key=value>",
      "an option of the backend, as in launch()'s backendOptions (nccl: devices=[0,2] registerBuffers=true ...)",
      collect,
    )
    .option(
      "-b, --min <size>",
      "first size, as the larger of a rank's two buffers (default: 1K); sizes are rounded down to whole elements",
    )
    .option("-e, --max <size>", "last size (default: 16M)")
    .option("-f, --factor <f>", "each size is this times the one before", factor, 4)
    .option("--dtype <dtype>", "element type", "f32")
    .option("--redop <op>", `${REDUCE_OPS.join(", ")}, preMulSum (default: sum, or the program's)`)
    .option("--root <rank>", "root of rooted operations", whole(0), 0)
    .addOption(
      new Option(
        "--drive <how>",
        "wait: each call by wait(); await: by the event loop; queue: back to back, as nccl-tests (default: wait on threads, queue on nccl)",
      ).choices(DRIVES),
    )
    .option("--iterations <n>", "calls per loop (default: chosen by time)", whole(1))
    .option("--repeats <n>", "loops per size; the median counts", whole(1), 5)
    .option("--warmup <n>", "calls before the timed ones", whole(0))
    .option(
      "-G, --graph [calls]",
      `capture this many calls (default: ${DEFAULT_GRAPH_CALLS}) in a graph and time its replay (nccl)`,
      whole(1),
    )
    .option(
      "--algorithm <name>",
      "what serves the calls in place of the choice by size: NAME[*INSTANCES][/CHUNKS], on devices also @SHAPE",
    )
    .option("--arg <name=value>", "argument of the program; numRanks is -n's by default", collect)
    .option("--check", "check the results and print the number of wrong elements")
    .option("--json", "print one JSON document");
  addHostOptions(command)
    .addHelpText("after", measuredHostsHelp("chorale bench all_reduce --backend tcp", "tcp or nccl"))
    .action(async (operation: string, flags: Flags) => exit(await run(operation, flags)));
}

/** Whether what is measured is a program: a file, or an algorithm of the library. */
async function isProgram(operation: string): Promise<boolean> {
  if (/\.([mc]?[jt]sx?|json|xml)$/.test(operation)) return true;
  if (!operation.includes("-")) return false;
  return (await import("./load-program.ts")).algorithmNames().includes(operation);
}

async function run(operation: string, flags: Flags): Promise<number> {
  if (await isProgram(operation)) return (await import("./bench-program.ts")).benchFile(operation, flags);
  if (flags.arg !== undefined)
    throw new InvalidArgumentError("--arg", flags.arg.join(" "), "a program's FILE before it");
  const op = parseOperation(operation);
  if (!operationInfo(op).reduces && flags.redop !== undefined)
    throw new InvalidArgumentError("--redop", flags.redop, `none: ${op} reduces nothing`);
  const all = flags.backend === "all";
  const backends = flags.backend === "all" ? LAUNCH_BACKENDS : [flags.backend];
  const dtype = parseDType(flags.dtype, "--dtype");
  const options: Omit<BenchOptions, "ranks"> = {
    op,
    sizes: [],
    ...(flags.isolation === undefined ? {} : { isolation: flags.isolation }),
    ...(flags.backendOption === undefined ? {} : { backendOptions: parseBackendOptions(flags.backendOption) }),
    dtype,
    redop: redop(flags.redop ?? "sum"),
    root: flags.root,
    check: flags.check === true,
    ...(flags.algorithm === undefined ? {} : { algorithm: flags.algorithm }),
    ...(flags.drive === undefined ? {} : { drive: flags.drive }),
    ...(flags.iterations === undefined ? {} : { iterations: flags.iterations }),
    ...(flags.repeats === undefined ? {} : { repeats: flags.repeats }),
    ...(flags.warmup === undefined ? {} : { warmup: flags.warmup }),
    ...(flags.graph === undefined ? {} : { graphCalls: flags.graph === true ? DEFAULT_GRAPH_CALLS : flags.graph }),
  };
  const hosts = measuredHosts(flags);
  if (hosts !== undefined && all)
    throw new InvalidArgumentError("--backend", "all", "one backend beside --nnodes: the hosts meet once");
  // What no backend can do is bad usage, whichever engines are here.
  await checkBench({ ...options, ranks: hosts?.ranks ?? flags.ranks ?? 2 }, backends);
  const rows: BenchRow[] = [];
  const skipped: { backend: BackendName; why: string }[] = [];
  for (const backend of backends) {
    try {
      const ranks = hosts?.ranks ?? flags.ranks ?? (await defaultRanks(backend, MOST_UNASKED));
      const sizes = sizesOf(flags, DEFAULT_SIZES, { op, ranks, dtype });
      const nodes = hosts === undefined ? {} : { nodes: hosts.nodes };
      // Rows come to the first host alone, which prints the table.
      const shown = hosts?.isFirst === false ? { ...flags, json: true } : flags;
      rows.push(...(await measure({ ...options, ...nodes, backend, ranks, sizes }, shown)));
    } catch (error) {
      if (!all || !isSkippable(error)) throw error;
      skipped.push({ backend, why: error.message });
      if (!flags.json) print(`# ${backend} skipped: ${error.message}\n`);
    }
  }
  if (hosts?.isFirst === false) {
    if (!flags.json) print("# host 0 prints what was measured\n");
    return EXIT.done;
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
  const label = `# chorale bench ${op}: ${counted(ranks, "rank")}${each}, backend ${backend}, ${how}${graph}, ${availableParallelism()} cores`;
  const { usesDevices } = await backendKind(backend);
  let measured = 0;
  let isHeaded = false;
  const show = (lines: readonly string[]) => {
    if (flags.json) return;
    if (!isHeaded) print(`${[label, ...tableHeader(!usesDevices)].join("\n")}\n`);
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
