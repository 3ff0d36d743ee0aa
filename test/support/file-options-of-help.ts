/** The places of the command line that take a file, as the commands themselves declare them. */
import { Command } from "commander";
import { COMMANDS } from "../../src/apps/cli/commands.ts";

export interface FilePlace {
  /** The command and the option, or the argument's name. */
  readonly name: string;
  readonly command: string;
  /** The option's flags; none for an argument. */
  readonly flags: readonly string[];
  /** Flags of the command whose next word is theirs. */
  readonly valued: ReadonlySet<string>;
}

/** A placeholder or a description that speaks of files. */
const SPEAKS_OF_FILES = /\b(files?|folders?|measurements|inventor(y|ies)|recorded root|FILE)\b|\.(json|ts)\b/i;
/** What a command writes is made, not read. */
const WRITES = /^(also )?write\b/;
/** Their help speaks of a file that another option names. */
const NAMES_ONE = new Set(["sim --op"]);

/** Every option and argument whose help speaks of a file that is read. */
export async function filesOfHelp(): Promise<readonly FilePlace[]> {
  const places: FilePlace[] = [];
  for (const { name, load } of COMMANDS) {
    const command = new Command(name);
    (await load()).configure(command, () => undefined);
    const valued = new Set(
      command.options.flatMap(({ required, optional, short, long }) =>
        required || optional ? [short, long].filter((flag) => flag !== undefined) : [],
      ),
    );
    const add = (flags: readonly string[], placeholder: string, description: string) => {
      const told = `${placeholder} ${description}`;
      const label = `${name} ${flags.at(-1) ?? placeholder}`;
      if (SPEAKS_OF_FILES.test(told) && !WRITES.test(description) && !NAMES_ONE.has(label))
        places.push({ name: label, command: name, flags, valued });
    };
    for (const option of command.options) {
      if (!option.required && !option.optional) continue;
      const flags = [option.short, option.long].filter((flag) => flag !== undefined);
      add(flags, option.flags, option.description);
    }
    for (const argument of command.registeredArguments) add([], `<${argument.name()}>`, argument.description);
  }
  return places;
}

/** Whether a call puts a file of its folder at a place. */
export function isReached(
  { command, flags, valued }: FilePlace,
  calls: readonly { readonly words: readonly string[]; readonly folder: string }[],
): boolean {
  return calls.some(({ words, folder }) =>
    words.some((word, i) => {
      const before = words[i - 1] ?? "";
      const isHere = flags.length > 0 ? flags.includes(before) : !valued.has(before);
      return words[0] === command && i > 0 && word.startsWith(folder) && isHere;
    }),
  );
}
