/**
 * What the scripts of bench/ and test/campaigns/ and the conformance runner have in common at the command line: `--help`
 * prints the usage and ends with 0; a flag that is not there, or an invalid value, prints one line and ends with 2, as
 * `chorale` does. For scripts alone: it ends the process.
 */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { type ParseArgsConfig, parseArgs } from "node:util";
import { ChoraleError, InvalidArgumentError } from "../../core/index.ts";

/** Takes the first comment of a script, without its stars. */
export function usageOf(text: string): string {
  const comment = /^(?:#!.*\n)?\s*\/\*\*([\s\S]*?)\*\//.exec(text)?.[1] ?? "";
  const lines = comment.split("\n").map((line) => line.replace(/^ \* ?/, ""));
  return lines.join("\n").trim();
}

/** Reads an integer of `least` or more. @throws InvalidArgumentError */
export function integer(text: string, flag: string, least = 1): number {
  const value = Number(text);
  if (text.trim() !== "" && Number.isSafeInteger(value) && value >= least) return value;
  throw new InvalidArgumentError(flag, text, `an integer of ${least} or more`);
}

/** Reads integers with commas between them. @throws InvalidArgumentError */
export function integers(text: string, flag: string, least = 1): number[] {
  return text.split(",").map((part) => integer(part, flag, least));
}

type Parsed<C extends ParseArgsConfig> = ReturnType<typeof parseArgs<C>>;

/** Why a command line cannot be taken, in one line, or `undefined` when an error is about something else. */
function complaint(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const code = (error as { code?: unknown }).code;
  const isOfParser = typeof code === "string" && code.startsWith("ERR_PARSE_ARGS");
  if (!isOfParser && !(error instanceof ChoraleError)) return undefined;
  // The parser goes on about positional arguments in further sentences.
  return error.message.split(/(?:\. |\n)/)[0]?.replace(/\.$/, "");
}

/**
 * Reads the command line of a script, or ends the process: see above.
 * @param script `import.meta.url` of a script whose first comment is its usage; or its name and its usage
 * @param read makes of the words what the script needs; what it throws of ours is about the command line
 */
export function flagsOf<const C extends ParseArgsConfig, T>(
  script: string | { readonly name: string; readonly usage: string },
  config: C,
  read: (parsed: Parsed<C>) => T,
): T {
  const path = typeof script === "string" ? fileURLToPath(script) : "";
  const name = typeof script === "string" ? basename(path) : script.name;
  try {
    const options: ParseArgsConfig["options"] = { ...config.options, help: { type: "boolean", short: "h" } };
    const parsed = parseArgs({ ...(config as ParseArgsConfig), options });
    if (parsed.values["help"] === true) {
      console.log(typeof script === "string" ? usageOf(readFileSync(path, "utf8")) : script.usage);
      process.exit(0);
    }
    return read(parsed as unknown as Parsed<C>);
  } catch (error) {
    const why = complaint(error);
    if (why === undefined) throw error;
    console.error(`${name}: ${why} (--help says what there is)`);
    process.exit(2);
  }
}
