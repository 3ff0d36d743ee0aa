/** Readers of options that several commands take; commander puts the option's name before what they say. */
import { type Command, InvalidArgumentError as CommanderArgumentError } from "commander";
import { InvalidArgumentError, parseSize, show } from "../../core/index.ts";

/** One word of an option that may be given again: `<key=value>` would take the words after it too if it took several. */
export function collect(word: string, words: readonly string[] = []): readonly string[] {
  return [...words, word];
}

/** Reads an integer of `least` or more. */
export function whole(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isSafeInteger(value) || value < least || !/^\d+$/.test(text)) {
      throw new CommanderArgumentError(`expected an integer of ${least} or more.`);
    }
    return value;
  };
}

/** Reads a count that may be written as a size, such as `32k`. */
export function sized(least: number): (text: string) => number {
  return (text) => {
    try {
      return whole(least)(String(parseSize(text)));
    } catch {
      throw new CommanderArgumentError(`expected an integer of ${least} or more, such as 4096 or 4K.`);
    }
  };
}

/** The devices of ranks, in rank order. @throws InvalidArgumentError for a device that two of them would share */
export function deviceIds(text: string | undefined): readonly string[] | undefined {
  const ids = text?.split(",").map((id) => id.trim());
  const twice = ids?.find((id, at) => ids.indexOf(id) !== at);
  if (twice === undefined) return ids;
  throw new InvalidArgumentError("--devices", text, `a device for each rank: ${show(twice)} is there more than once`);
}

/** Refuses options that would be ignored. @throws InvalidArgumentError for the first one that was given, naming what it needs */
export function refuseGiven(options: Readonly<Record<string, unknown>>, needed: string): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined) throw new InvalidArgumentError(name, value, `${needed} beside it`);
  }
}

/**
 * Has a command refuse an option that is given again with another value: commander takes the last, and the first would be ignored.
 * @throws InvalidArgumentError, as the command line is parsed, that names both values
 */
export function refuseContradictions(command: Command): void {
  for (const option of command.options) {
    if (option.variadic || option.parseArg === collect) continue;
    let before: string | null | undefined;
    command.on(`option:${option.name()}`, (word: string | null) => {
      if (before !== undefined && word !== before) {
        const name = option.long ?? option.flags;
        throw new InvalidArgumentError(name, word, `one value: ${show(before)} was given before`);
      }
      before = word;
    });
  }
}

/** Reads what one size is multiplied by for the next. */
export function factor(text: string): number {
  const value = Number(text);
  if (!(value > 1)) throw new CommanderArgumentError("expected a number above 1.");
  return value;
}

/** What a timer can wait for, less than 25 days. */
const MAX_SECONDS = 2_000_000;

/** Reads a time in seconds, which may have decimals. */
export function seconds(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0.001 && value <= MAX_SECONDS))
    throw new CommanderArgumentError(`expected a number of seconds, 0.001 to ${MAX_SECONDS}.`);
  return value;
}
