/** `chorale compile`: a program to a plan, shown, compared or written in the format of an executor. */
import { type Command, Option } from "commander";
import { compile, SOUND_PASSES } from "../../authoring/compiler/index.ts";
import { mscclppCollective, planToJson, writeMscclppPieces, writeMscclXml } from "../../authoring/interchange/index.ts";
import { writeMscclpp } from "../../authoring/language/index.ts";
import {
  diffPlans,
  type ExecutionPlan,
  limitViolations,
  printDiff,
  printPlan,
  proofOf,
  withTables,
} from "../../authoring/plan/index.ts";
import { provePlan, renderFindings, verifyPlan } from "../../authoring/verifier/index.ts";
import { DTYPE_NAMES, type DType, InvalidArgumentError, PlanError } from "../../core/index.ts";
import { generateCuda } from "../../runtime/executor/index.ts";
import { counted } from "./counted.ts";
import { isProgramFile, loadProgram } from "./load-program.ts";
import { collect, refuseGiven } from "./option-readers.ts";
import { print, printError, printJsonText } from "./output.ts";
import { parseProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";
import { stream } from "./stream.ts";
import { writeOutput } from "./write-output.ts";

interface Flags {
  readonly arg?: readonly string[];
  readonly compat?: "mscclpp";
  readonly target?: "json" | "xml" | "text" | "chorale" | "cuda";
  readonly dtype?: DType;
  readonly printAfter?: string;
  readonly diff?: boolean;
  readonly output?: string;
  readonly json?: boolean;
  readonly verify: boolean;
  readonly rank?: readonly string[];
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument("<file...>", "a program (.ts, .js), a plan (.json, .xml) or an algorithm of the library; two with --diff")
    .option("--arg <k=v>", "an argument of the program, as often as needed", collect)
    .addOption(
      new Option("--compat <what>", "make exactly what the MSCCL++ 0.9 DSL makes, its mistakes included").choices([
        "mscclpp",
      ]),
    )
    .addOption(
      new Option("--target <format>", "text, chorale's own JSON, MSCCL++'s JSON, MSCCL's XML, or CUDA C++").choices([
        "text",
        "chorale",
        "json",
        "xml",
        "cuda",
      ]),
    )
    .addOption(new Option("--dtype <dtype>", "of CUDA C++: the elements (default: f32)").choices(DTYPE_NAMES))
    .option("--print-after <pass>", `show the plan after a pass: ${SOUND_PASSES.join(", ")}, or all`)
    .option("--diff", "show how two plans differ; exit code 1 when they do")
    .option("--rank <ranks...>", "of the text, only these ranks")
    .option("-o, --output <file>", "write there instead of to the terminal")
    .option("--json", "chorale's own JSON on stdout (as --target chorale)")
    .option("--no-verify", "do not prove the plan right")
    .action(async (files: readonly string[], flags: Flags) => {
      exit(await run(files, flags));
    });
}

/** Options that another one leaves without a meaning are refused. */
function checkMode(flags: Flags): void {
  const { target, dtype, rank, json, diff, printAfter } = flags;
  if (json === true && target !== undefined && target !== "chorale")
    throw new InvalidArgumentError("--target", target, "chorale or nothing, since --json is given");
  if (diff === true) refuseGiven({ "--target": target, "--rank": rank, "--print-after": printAfter }, "no --diff");
  if (printAfter !== undefined) refuseGiven({ "--target": target, "--json": json }, "no --print-after");
  const format = target ?? (json === true ? "chorale" : targetOf(flags.output));
  for (const [of, given] of Object.entries({ cuda: { "--dtype": dtype }, text: { "--rank": rank } }))
    if (format !== of) refuseGiven(given, `--target ${of}`);
}

async function run(files: readonly string[], flags: Flags): Promise<number> {
  checkMode(flags);
  const args = parseProgramArgs(flags.arg ?? []);
  const options = { verify: flags.verify, ...(flags.compat === undefined ? {} : { compat: flags.compat }) };
  if (flags.diff === true) {
    const [a, b, ...more] = files;
    if (a === undefined || b === undefined || more.length > 0)
      throw new InvalidArgumentError("--diff", files, "two files");
    const differences = diffPlans(await loadPlan(a, args, options), await loadPlan(b, args, options));
    if (flags.json === true)
      writeJsonText(flags, `${JSON.stringify({ same: differences.length === 0, differences }, null, 2)}\n`);
    else writeText(flags, differences.length === 0 ? "no difference\n" : `${printDiff(differences)}\n`);
    return differences.length === 0 ? 0 : 1;
  }
  const [file, ...rest] = files;
  if (file === undefined || rest.length > 0)
    throw new InvalidArgumentError("FILE", files, "one file, or two with --diff");
  if (flags.printAfter !== undefined) return printAfter(file, args, flags);
  const target =
    flags.target ?? (flags.json === true ? "chorale" : flags.compat !== undefined ? "json" : targetOf(flags.output));
  if (target === "json" && isProgramFile(file)) {
    const program = await loadProgram(file, args);
    stream(flags.output, (sink) => {
      writeMscclpp(program, sink, options);
    });
    // A program that was not proved for this executor is written all the same, but not in silence.
    if (flags.verify && program.recorder.numOps <= MAX_TARGET_CHECK_OPS)
      tellTargetFindings(compile(program, { ...options, verify: false }));
    return 0;
  }
  const plan = await loadPlan(file, args, options);
  // A program that is wrong was refused by now.
  if (flags.verify && WRITTEN_WRONG.has(target) && !isProgramFile(file)) tellProof(plan);
  WRITERS[target](plan, flags);
  return 0;
}

const WRITERS: { readonly [T in NonNullable<Flags["target"]>]: (plan: ExecutionPlan, flags: Flags) => void } = {
  text: (plan, flags) => writeText(flags, `${printPlan(plan, ranksOf(flags, plan))}\n`),
  chorale: (plan, flags) => writeJsonText(flags, `${planToJson(plan, 2)}\n`),
  xml: (plan, flags) => writeText(flags, writeMscclXml(plan)),
  cuda: (plan, flags) => writeText(flags, cudaSource(plan, flags)),
  json: writeJson,
};

/** Programs of more operations are written without a look at what their executor does with them: it takes memory. */
const MAX_TARGET_CHECK_OPS = 20_000;

/** Says on stderr what `check --target mscclpp` would refuse. */
function tellTargetFindings(plan: ExecutionPlan): void {
  const { findings } = verifyPlan(plan, { lint: false, target: "mscclpp" });
  const errors = findings.filter((finding) => finding.severity === "error");
  if (errors.length === 0) return;
  printError(
    `chorale check --target mscclpp would refuse this plan, ${counted(errors.length, "finding")}, first:\n${renderFindings(plan, errors, 1)}\n`,
  );
}

/** Formats in which the plan of a file is written with a warning when it is wrong; the others refuse it. */
const WRITTEN_WRONG: ReadonlySet<string> = new Set(["text", "chorale", "json", "xml"]);

/** Says on stderr that the plan of a file is wrong: whoever mends or converts it is still given it. */
function tellProof(plan: ExecutionPlan): void {
  const errors = verifyPlan(plan, { lint: false }).findings.filter(({ severity }) => severity === "error");
  if (errors.length === 0) return;
  printError(
    `chorale compile: this plan is wrong, ${counted(errors.length, "finding")} (chorale check shows all; --no-verify writes it in silence), first:\n${renderFindings(plan, errors, 1)}\n`,
  );
}

/**
 * The kernel of a plan; the ranks meet before and after it unless the plan is proved not to need that.
 * @throws PlanError for a plan that is wrong, as one from a file may be: its kernel would hang, or compute something else
 */
function cudaSource(plan: ExecutionPlan, { dtype = "f32", verify }: Flags): string {
  if (!verify) return generateCuda(plan, { dtype }).source;
  provePlan(plan);
  const proof = proofOf(plan);
  if (proof?.ok !== true) {
    const opinion = `${proof?.opinion ?? "it is wrong"}\n(--no-verify writes its kernel all the same)`;
    throw new PlanError(plan.name ?? "the plan", [], opinion);
  }
  return generateCuda(plan, { dtype, relaunches: proof.relaunches(), endsAlone: proof.endsAlone() }).source;
}

/** The ranks to show. @throws InvalidArgumentError for a number that is not a valid rank */
function ranksOf({ rank }: Flags, plan: ExecutionPlan): readonly number[] | undefined {
  return rank?.map((text) => {
    if (/^\d+$/.test(text) && Number(text) < plan.ranks.length) return Number(text);
    throw new InvalidArgumentError("--rank", text, `ranks from 0 to ${plan.ranks.length - 1}`);
  });
}

/** The format that an output file's name asks for. */
function targetOf(output: string | undefined): "text" | "chorale" | "xml" | "cuda" {
  return output === undefined
    ? "text"
    : output.endsWith(".cu")
      ? "cuda"
      : output.endsWith(".xml")
        ? "xml"
        : output.endsWith(".json")
          ? "chorale"
          : "text";
}

/** Shows the plan after each pass, with what the verifier says of it. */
async function printAfter(file: string, args: ReturnType<typeof parseProgramArgs>, flags: Flags): Promise<number> {
  if (!isProgramFile(file))
    throw new InvalidArgumentError("--print-after", file, "a program: a plan's file has no passes");
  const wanted = flags.printAfter ?? "all";
  const known: readonly string[] = [...SOUND_PASSES, "mscclpp", "all"];
  if (!known.includes(wanted)) throw new InvalidArgumentError("--print-after", wanted, known.join(", "));
  const out: string[] = [];
  await loadPlan(file, args, {
    verify: false,
    ...(flags.compat === undefined ? {} : { compat: flags.compat }),
    onPass: (pass, plan) => {
      if (wanted !== "all" && wanted !== pass) return;
      out.push(`=== after ${pass}${verdict(pass, plan)}`, printPlan(plan, ranksOf(flags, plan)), "");
    },
  });
  if (out.length === 0)
    throw new InvalidArgumentError("--print-after", wanted, "a pass that this program goes through; all shows them");
  writeText(flags, `${out.join("\n")}\n`);
  return 0;
}

function verdict(pass: string, plan: ExecutionPlan): string {
  // Before synchronisation a plan need not be right.
  if (pass === "record" || pass === "auto-sync" || pass === "fuse") return "";
  const { ok, findings } = verifyPlan(plan, { lint: false });
  return ok ? ": proved right" : `: ${findings.length} findings, first ${findings[0]?.code}`;
}

/** A plan that was read, as MSCCL++'s JSON: only within its executor's limits. */
function writeJson(plan: ExecutionPlan, flags: Flags): void {
  const problems = limitViolations(plan);
  if (flags.verify && problems.length > 0) {
    throw new PlanError(
      "this plan for the MSCCL++ executor",
      problems.map((p) => ({
        code: p.limit,
        rank: p.rank,
        strand: p.strand,
        op: p.op ?? -1,
        message: p.message,
        hint: "--no-verify writes it all the same",
      })),
      renderFindings(plan, []),
    );
  }
  const header = {
    name: plan.name,
    collective: mscclppCollective(plan),
    inPlace: plan.collective.inPlace,
    options: plan.options,
  };
  stream(flags.output, (sink) => {
    writeMscclppPieces(header, plan.ranks.map(withTables), sink);
  });
}

function writeText(flags: Flags, text: string): void {
  if (flags.output === undefined) print(text);
  else writeOutput("-o", flags.output, text);
}

function writeJsonText(flags: Flags, text: string): void {
  if (flags.output === undefined) printJsonText(text);
  else writeOutput("-o", flags.output, text);
}
