/**
 * The command line: finds the command, runs it, and turns what is thrown into an exit code. One file per command; a
 * command's module is loaded only when it is called, so that `chorale --help` stays fast.
 * Exit codes: 0 done, 1 a check failed, 2 bad usage, 3 the environment lacks something.
 */
import { Command, CommanderError } from "commander";
import { ChoraleError, type ErrorCode, show } from "../../core/index.ts";
import { COMMANDS } from "./commands.ts";
import { stackOf } from "./error-text.ts";
import { describeLack, EXIT } from "./exit-codes.ts";
import { refuseContradictions } from "./option-readers.ts";
import { print, printError } from "./output.ts";

const EXIT_BY_CODE: Partial<Record<ErrorCode, number>> = {
  INVALID_ARGUMENT: EXIT.usage,
  INVALID_FORMAT: EXIT.usage,
  UNSUPPORTED: EXIT.usage,
  UNAVAILABLE: EXIT.environment,
  OUT_OF_MEMORY: EXIT.environment,
};

function exitCodeOf({ code, cause }: ChoraleError): number {
  const own = EXIT_BY_CODE[code];
  if (own !== undefined || code !== "RANK_FAILED" || !(cause instanceof Error)) return own ?? EXIT.checkFailed;
  // A rank that failed for what the machine lacks: no check failed.
  const lack = EXIT_BY_CODE[(cause as { readonly code?: ErrorCode }).code ?? code] === EXIT.environment;
  return lack ? EXIT.environment : EXIT.checkFailed;
}

/** Runs the command line. @returns the exit code; prints to stdout and stderr, never exits by itself */
export async function main(argv: readonly string[]): Promise<number> {
  const asksVersion = argv[0] === "-V" || argv[0] === "--version";
  const program = new Command("chorale")
    .description("The device-mesh and collective-communication stack for TypeScript.")
    .version(asksVersion ? await readVersion() : "", "-V, --version", "print the version")
    .exitOverride()
    .configureOutput({ writeOut: print, writeErr: printError })
    .showHelpAfterError("(chorale --help lists the commands, chorale COMMAND --help their options)")
    .showSuggestionAfterError();
  let exitCode: number = EXIT.done;
  const name = argv.find((word) => !word.startsWith("-"));
  try {
    for (const entry of COMMANDS) {
      const command = program.command(entry.name).description(entry.summary);
      command.exitOverride();
      if (entry.name === name) {
        const module = await entry.load();
        module.configure(command, (code) => {
          exitCode = code;
        });
        refuseContradictions(command);
      }
    }
    if (argv.length === 0) {
      program.outputHelp({ error: true });
      return EXIT.usage;
    }
    await program.parseAsync([...argv], { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    if (error instanceof ChoraleError) {
      printError(`chorale ${name ?? ""}: ${error.message}\n`);
      return exitCodeOf(error);
    }
    if (isFileError(error)) {
      const lack = describeLack(error);
      printError(`chorale ${name ?? ""}: ${lack ?? error.message}\n`);
      return lack === undefined ? EXIT.usage : EXIT.environment;
    }
    printError(
      `chorale ${name ?? ""}: ${error instanceof Error ? stackOf(error) : `${show(error)} was thrown, which is not an Error`}\n`,
    );
    return EXIT.checkFailed;
  }
}

/** A file that the system did not let us read or write, such as an output that is a folder, or a lack of the machine. */
function isFileError(error: unknown): error is Error & { readonly code: string } {
  if (!(error instanceof Error && "syscall" in error && "code" in error)) return false;
  return "path" in error || describeLack(error) !== undefined;
}

async function readVersion(): Promise<string> {
  return (await import("../../runtime/world/index.ts")).version();
}
