/** `chorale launch`: starts a script on N ranks, prints what they say, and says which rank failed first. */
import { constants } from "node:os";
import { type Command, InvalidArgumentError as InvalidOption, Option } from "commander";
import { AbortedError, RankFailedError } from "../../core/index.ts";
import { LAUNCH_BACKENDS, launch, MAX_RANKS, parseBackend } from "../../runtime/world/index.ts";

interface Flags {
  readonly n: number;
  readonly backend: string;
  readonly timeout?: number;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .argument(
      "<script>",
      "TypeScript or JavaScript file: calls joinWorld(), or exports default async (world) => result",
    )
    .argument("[args...]", "words for the script, after --")
    .requiredOption("-n <ranks>", `number of ranks, 1 to ${MAX_RANKS}`, parseRanks)
    .addOption(
      new Option("--backend <backend>", "how the ranks communicate").choices(LAUNCH_BACKENDS).default("threads"),
    )
    .option("--timeout <seconds>", "end the world when it takes longer", parseSeconds)
    .usage("-n N [--backend threads] [--timeout S] SCRIPT [-- args]")
    .addHelpText(
      "after",
      "\nEach line that a rank prints comes out as `[rank] line`. The first rank that fails ends the world: exit code 1.",
    )
    .action(async (script: string, args: readonly string[], flags: Flags) => {
      exit(await runLaunch(script, args, flags));
    });
}

async function runLaunch(script: string, args: readonly string[], flags: Flags): Promise<number> {
  const controller = new AbortController();
  let caught: NodeJS.Signals | undefined;
  const onSignal = (signal: NodeJS.Signals) => {
    caught = signal;
    controller.abort(signal);
  };
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  try {
    await launch({
      ranks: flags.n,
      module: script,
      args,
      backend: parseBackend(flags.backend),
      signal: controller.signal,
      ...(flags.timeout === undefined ? {} : { timeoutMs: flags.timeout * 1000 }),
    });
    return 0;
  } catch (error) {
    if (error instanceof RankFailedError) {
      process.stderr.write(`chorale launch: ${describeFailure(error)}\n`);
      return 1;
    }
    if (error instanceof AbortedError && caught !== undefined) {
      process.stderr.write(`chorale launch: ended by ${caught}; all ranks are stopped\n`);
      return 128 + (constants.signals[caught] ?? 0);
    }
    throw error;
  } finally {
    process.removeListener("SIGINT", onSignal).removeListener("SIGTERM", onSignal);
  }
}

/** The first failure with its stack, and the chain of what caused it. */
function describeFailure(failure: RankFailedError): string {
  const lines = [`rank ${failure.rank} failed first:`];
  let cause: unknown = failure.cause;
  for (let depth = 0; cause instanceof Error && depth < 8; depth++) {
    lines.push(`${depth === 0 ? "" : "caused by: "}${cause.stack ?? cause.message}`);
    cause = cause.cause;
  }
  return lines.join("\n");
}

function parseRanks(text: string): number {
  const ranks = Number(text);
  if (!/^\d+$/.test(text) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidOption(`expected an integer from 1 to ${MAX_RANKS}`);
  }
  return ranks;
}

function parseSeconds(text: string): number {
  const seconds = Number(text);
  if (text.trim() === "" || !(seconds > 0) || seconds > 2_000_000) {
    throw new InvalidOption("expected a number of seconds above 0");
  }
  return seconds;
}
