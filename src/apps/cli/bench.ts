/** `chorale bench`: how fast an operation is here, with nccl-tests' columns. */
import { availableParallelism } from "node:os";
import { type Command, InvalidArgumentError as CommanderArgumentError } from "commander";
import { parseOperation } from "../../authoring/collectives/index.ts";
import { InvalidArgumentError, parseDType, parseReduceOp, parseSize, UnsupportedError } from "../../core/index.ts";
import { LAUNCH_BACKENDS, parseBackend } from "../../runtime/world/index.ts";
import {
  type BenchRow,
  bench,
  checkBench,
  type Drive,
  sizeRange,
  tableFooter,
  tableHeader,
  tableRow,
} from "../bench/index.ts";

const DEFAULT_MIN = 2 ** 10;
const DEFAULT_MAX = 16 * 2 ** 20;

interface Flags {
  readonly ranks: number;
  readonly backend: string;
  readonly min?: string;
  readonly max?: string;
  readonly factor: number;
  readonly dtype: string;
  readonly redop: string;
  readonly root: number;
  readonly drive: string;
  readonly iterations?: number;
  readonly warmup?: number;
  readonly graph?: boolean;
  readonly check?: boolean;
  readonly json?: boolean;
}

function whole(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < least) {
      throw new CommanderArgumentError(`expected an integer of ${least} or more.`);
    }
    return value;
  };
}

function factor(text: string): number {
  const value = Number(text);
  if (!(value > 1)) throw new CommanderArgumentError("expected a number above 1.");
  return value;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "<operation>",
      "all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter, send, barrier, ...",
    )
    .option("-n, --ranks <n>", "number of ranks", whole(1), Math.max(2, Math.min(availableParallelism(), 8)))
    .option("--backend <name>", `${LAUNCH_BACKENDS.join(", ")}, or all`, "threads")
    .option("-b, --min <size>", "first size, as the larger of a rank's two buffers (1K unless given)")
    .option("-e, --max <size>", "last size (16M unless given)")
    .option("-f, --factor <f>", "each size is this times the one before", factor, 4)
    .option("--dtype <dtype>", "element type", "f32")
    .option("--redop <op>", "sum, prod, min, max, avg, band, bor, bxor", "sum")
    .option("--root <rank>", "root of rooted operations", whole(0), 0)
    .option("--drive <how>", "wait: each call by wait(); await: by the event loop", "wait")
    .option("--iterations <n>", "calls per size; chosen by time unless given", whole(1))
    .option("--warmup <n>", "calls before the timed ones", whole(0))
    .option("-G, --graph", "capture the calls in a graph (cuda backends)")
    .option("--check", "check the results and print the number of wrong elements")
    .option("--json", "print one JSON document")
    .action(async (operation: string, flags: Flags) => exit(await run(operation, flags)));
}

function drive(text: string): Drive {
  if (text !== "wait" && text !== "await") throw new InvalidArgumentError("--drive", text, "wait or await");
  return text;
}

async function run(operation: string, flags: Flags): Promise<number> {
  if (/\.(ts|js|mjs|json)$/.test(operation)) {
    throw new UnsupportedError(
      `bench of the program ${operation}`,
      "this version measures the operations of a backend",
    );
  }
  const op = parseOperation(operation);
  const backends = flags.backend === "all" ? LAUNCH_BACKENDS : [parseBackend(flags.backend, "--backend")];
  const first = flags.min === undefined ? undefined : parseSize(flags.min, "-b");
  const last = flags.max === undefined ? Math.max(DEFAULT_MAX, first ?? 0) : parseSize(flags.max, "-e");
  const sizes = sizeRange(first ?? Math.min(DEFAULT_MIN, last), last, flags.factor);
  const dtype = parseDType(flags.dtype, "--dtype");
  const redop = parseReduceOp(flags.redop, "--redop");
  if (flags.graph) throw new UnsupportedError("-G with host backends", "graphs are captured on cuda backends only");
  const rows: BenchRow[] = [];
  const options = {
    op,
    ranks: flags.ranks,
    sizes,
    dtype,
    redop,
    root: flags.root,
    drive: drive(flags.drive),
    check: flags.check === true,
    ...(flags.iterations === undefined ? {} : { iterations: flags.iterations }),
    ...(flags.warmup === undefined ? {} : { warmup: flags.warmup }),
  };
  checkBench(options);
  for (const backend of backends) {
    const label = `# chorale bench ${op}: ${flags.ranks} ranks, backend ${backend}, ${flags.drive}, ${availableParallelism()} cores`;
    if (!flags.json) process.stdout.write(`${[label, ...tableHeader()].join("\n")}\n`);
    let measured = 0;
    const progress = (text: string) => {
      if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${text}`);
    };
    progress(`measuring size 1 of ${sizes.length}`);
    const found = await bench({
      ...options,
      backend,
      onRow: (row) => {
        measured++;
        progress("");
        if (!flags.json) process.stdout.write(`${tableRow(row)}\n`);
        if (measured < sizes.length) progress(`measuring size ${measured + 1} of ${sizes.length}`);
      },
    });
    progress("");
    if (!flags.json) process.stdout.write(`${tableFooter(found).join("\n")}\n`);
    rows.push(...found);
  }
  if (flags.json) process.stdout.write(`${JSON.stringify({ schemaVersion: 1, rows }, null, 2)}\n`);
  return rows.some((row) => (row.wrong ?? 0) > 0 || (row.inPlace?.wrong ?? 0) > 0) ? 1 : 0;
}
