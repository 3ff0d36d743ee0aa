/** `chorale check`: proves plans right, or says what is wrong with them. */
import type { Command } from "commander";
import { expectCollective } from "../../authoring/interchange/index.ts";
import type { ExecutionPlan } from "../../authoring/plan/index.ts";
import {
  type Finding,
  renderFindings,
  TARGETS,
  type Target,
  type VerifyOptions,
  verifyPlan,
} from "../../authoring/verifier/index.ts";
import { FormatError, InvalidArgumentError, PlanError } from "../../core/index.ts";
import { checkCertificates } from "./check-certificate.ts";
import { counted } from "./counted.ts";
import { collect } from "./option-readers.ts";
import { print, printJson } from "./output.ts";
import { parseProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";
import { keepHeapSmall } from "./small-heap.ts";

interface Flags {
  readonly arg?: readonly string[];
  readonly target?: string;
  readonly expect?: string;
  readonly promise?: readonly string[];
  readonly strict?: boolean;
  readonly certificate?: boolean;
  readonly json?: boolean;
}

/** Promises beyond being right, as the command line names them. */
const PROMISES = { output: "outputAtRankEnd", reuse: "reuseAtRankEnd", relaunch: "relaunch" } as const;

interface Result {
  readonly file: string;
  readonly ok: boolean;
  readonly findings: readonly Finding[];
  readonly text: string;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument("<file...>", "programs (.ts, .js) and plans (chorale's or MSCCL++'s .json)")
    .option("--arg <name=value>", "argument of the program; may be repeated", collect)
    .option("--target <executor>", `also check the limits and defects of an executor: ${TARGETS.join(", ")}`)
    .option(
      "--expect <collective>",
      "what the outputs have to hold, whatever the plan says: a collective, broadcast:ROOT, or anything",
    )
    .option(
      "--promise <name>",
      `also check a stronger promise: ${Object.keys(PROMISES).join(", ")}; may be repeated`,
      collect,
    )
    .option("--strict", "warnings fail the check too")
    .option(
      "--certificate",
      "the files are certificates of `chorale synth`: check that nothing can be faster (exit 2: one cannot be read)",
    )
    .option("--json", "print one JSON document")
    .action(async (files: string[], flags: Flags) =>
      exit(flags.certificate === true ? checkCertificates(files, flags.json === true) : await run(files, flags)),
    );
}

function verifyOptions(flags: Flags): VerifyOptions {
  const target = TARGETS.find((name) => name === flags.target) as Target | undefined;
  if (flags.target !== undefined && target === undefined) {
    throw new InvalidArgumentError("--target", flags.target, TARGETS.join(", "));
  }
  const promises: { -readonly [K in (typeof PROMISES)[keyof typeof PROMISES]]?: boolean } = {};
  for (const name of flags.promise ?? []) {
    const key = PROMISES[name as keyof typeof PROMISES];
    if (key === undefined) throw new InvalidArgumentError("--promise", name, Object.keys(PROMISES).join(", "));
    promises[key] = true;
  }
  return { promises, ...(target === undefined ? {} : { target }) };
}

/** What cannot be read or compiled is a finding like any other: the files after it are still checked. */
function unreadable(error: unknown): readonly Finding[] {
  const whole = { code: "malformed", severity: "error", rank: -1, strand: -1, op: -1 } as const;
  if (error instanceof PlanError) {
    return error.problems.map((problem) => ({
      ...whole,
      message: `${problem.code}: ${problem.message}`,
      hint: problem.hint,
    }));
  }
  return [{ ...whole, message: error instanceof Error ? error.message : String(error), hint: "mend the file" }];
}

interface Request {
  readonly args: Readonly<Record<string, unknown>>;
  readonly options: VerifyOptions;
  readonly flags: Flags;
  /** Nothing follows: bad usage and a program that throws are thrown on. */
  readonly alone: boolean;
  readonly collectGarbage: () => void;
}

/** Loads and verifies one file. */
async function check(file: string, { args, options, flags, alone, collectGarbage }: Request): Promise<Result> {
  let plan: ExecutionPlan;
  try {
    plan = await loadPlan(file, args, { verify: false, onSynchronized: collectGarbage });
    if (flags.expect !== undefined) plan = expectCollective(plan, flags.expect);
  } catch (error) {
    if (alone && !(error instanceof FormatError || error instanceof PlanError)) throw error;
    const findings = unreadable(error);
    return { file, ok: false, findings, text: findings.map((f) => `error ${f.code}: ${f.message}`).join("\n") };
  }
  const { ok, findings, suppressed } = verifyPlan(plan, options);
  const more = Object.entries(suppressed).map(([code, count]) => `... and ${count} more findings of ${code}`);
  const text = flags.json === true ? "" : [renderFindings(plan, findings), ...more].filter((part) => part !== "");
  return {
    file,
    ok: ok && !(flags.strict === true && findings.length > 0),
    findings,
    text: typeof text === "string" ? text : text.join("\n"),
  };
}

async function run(files: readonly string[], flags: Flags): Promise<number> {
  const collectGarbage = keepHeapSmall();
  const request = {
    args: parseProgramArgs(flags.arg ?? []),
    options: verifyOptions(flags),
    flags,
    alone: files.length === 1,
  };
  const results: Omit<Result, "text">[] = [];
  for (const file of files) {
    const { text, ...result } = await check(file, { ...request, collectGarbage });
    results.push(result);
    if (flags.json === true) continue;
    const count = result.findings.length;
    print(
      `${result.file}: ${result.ok ? (count === 0 ? "right" : `right, ${counted(count, "warning")}`) : "wrong"}\n${text === "" ? "" : `${text}\n`}`,
    );
  }
  // One file's document says at its top what the list says of each.
  if (flags.json === true)
    printJson(results.length === 1 ? { ...results[0], results } : { ok: results.every(({ ok }) => ok), results });
  return results.every((result) => result.ok) ? 0 : 1;
}
