/** `chorale bench FILE`: a program of the user's beside the built-in choice for the same call. */
import { availableParallelism } from "node:os";
import { InvalidArgumentError, parseDType, printableLine, UnsupportedError } from "../../core/index.ts";
import { parseBackendOptions } from "../../runtime/world/index.ts";
import { benchProgram, type ProgramRow, programFooter, programHeader, programRow } from "../bench/index.ts";
import { programOperation } from "../bench/internal.ts";
import { DEFAULT_SIZES, type Flags, redop } from "./bench-flags.ts";
import { counted } from "./counted.ts";
import { EXIT } from "./exit-codes.ts";
import { print, printJson, showProgress } from "./output.ts";
import { loadPlan } from "./program-file.ts";
import { loadForRanks } from "./program-ranks.ts";
import { sizesOf } from "./size-options.ts";

/** Measures a program over sizes. @returns the exit code */
export async function benchFile(file: string, flags: Flags): Promise<number> {
  const { backend } = flags;
  if (backend === "all") throw new InvalidArgumentError("--backend", "all", "one backend: a program runs on threads");
  for (const [flag, value] of [
    ["--algorithm", flags.algorithm],
    ["-G", flags.graph],
  ] as const) {
    if (value !== undefined) throw new UnsupportedError(`${flag} with a program`, "it is for the built-in operations");
  }
  if (flags.nnodes !== undefined) throw new UnsupportedError("--nnodes with a program", "it is measured on one host");
  if (flags.root !== 0) throw new InvalidArgumentError("--root", flags.root, "none: a program's root is its own");
  if (flags.isolation === "process")
    throw new UnsupportedError("--isolation process with a program", "ranks are threads");
  const { made: plan } = await loadForRanks(file, { ...flags, backend }, (args) => loadPlan(file, args));
  const ranks = plan.ranks.length;
  if (flags.ranks !== undefined && flags.ranks !== ranks) {
    throw new InvalidArgumentError("-n", flags.ranks, `${ranks}, the ranks of ${file}`);
  }
  const dtype = parseDType(flags.dtype, "--dtype");
  const sizes = sizesOf(flags, DEFAULT_SIZES, { op: programOperation(plan), ranks, dtype });
  const name = printableLine(plan.name ?? file);
  const label = `# chorale bench ${name}: ${plan.collective.operation}${plan.collective.inPlace ? " in place" : ""}, ${counted(ranks, "rank")}, backend ${backend}, ${flags.drive ?? "wait"}, ${availableParallelism()} cores`;
  let isHeaded = false;
  const show = (lines: readonly string[]) => {
    if (flags.json) return;
    showProgress("");
    if (!isHeaded) print(`${[label, ...programHeader()].join("\n")}\n`);
    isHeaded = true;
    print(`${lines.join("\n")}\n`);
  };
  showProgress(`measuring ${sizes.length} sizes`);
  let rows: ProgramRow[];
  try {
    rows = await benchProgram({
      plan,
      sizes,
      backend,
      dtype,
      ...(flags.redop === undefined ? {} : { redop: redop(flags.redop) }),
      check: flags.check === true,
      ...(flags.backendOption === undefined ? {} : { backendOptions: parseBackendOptions(flags.backendOption) }),
      ...(flags.drive === undefined ? {} : { drive: flags.drive }),
      ...(flags.iterations === undefined ? {} : { iterations: flags.iterations }),
      ...(flags.repeats === undefined ? {} : { repeats: flags.repeats }),
      ...(flags.warmup === undefined ? {} : { warmup: flags.warmup }),
      onRow: (row) => show([programRow(row)]),
    });
  } finally {
    showProgress("");
  }
  if (flags.json) printJson({ schemaVersion: 1, rows, skipped: [] }, 2);
  else show(programFooter(rows));
  const isWrong = rows.some(({ wrong, builtIn }) => (wrong ?? 0) > 0 || (builtIn.wrong ?? 0) > 0);
  return isWrong ? EXIT.checkFailed : EXIT.done;
}
