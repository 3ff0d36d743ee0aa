/** Runs a tool for a probe and says, in a warning, why its answer is of no use. */

import { line, plain } from "./field-readers.ts";
import type { CommandRequest, CommandResult } from "./machine.ts";
import type { ProbeContext, ProbeWarning } from "./probe.ts";

export interface Answer {
  readonly argv: readonly string[];
  /** Without terminal escapes. */
  readonly stdout: string;
}

/**
 * Runs a tool. Undefined when it is absent (no warning: it belongs to hardware that is not here), failed, timed out or
 * said nothing (each with a warning).
 * @param quietExitCodes exit codes that mean "no device here"
 */
export async function ask(
  context: ProbeContext,
  request: CommandRequest,
  warnings: ProbeWarning[],
  quietExitCodes: readonly number[] = [],
): Promise<Answer | undefined> {
  const result = await context.commands.run(request);
  if (result === undefined) return undefined;
  const problem = problemOf(result, request);
  if (problem === undefined) return { argv: result.argv, stdout: plain(result.stdout) };
  if (result.exitCode === null || !quietExitCodes.includes(result.exitCode)) {
    warnings.push({ source: request.tool, message: problem });
  }
  return undefined;
}

/** Why a result cannot be used; a truncated one can, as far as it goes. */
function problemOf(result: CommandResult, request: CommandRequest): string | undefined {
  const call = line([request.tool, ...request.args].join(" ")).slice(0, 80);
  if (result.timedOut) return `${call} did not end within its deadline and was stopped`;
  if (result.truncated === true) return `${call} printed more than 1 MiB and was stopped`;
  if (result.exitCode !== 0) {
    const said = line(result.stderr) || line(result.stdout);
    return `${call} ended with ${result.exitCode === null ? "a signal" : `exit code ${result.exitCode}`}${said === "" ? "" : `: ${said.slice(0, 160)}`}`;
  }
  return undefined;
}
