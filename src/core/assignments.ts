/** Words of a command line of the form NAME=VALUE. */
import { InvalidArgumentError } from "./errors.ts";

/**
 * Reads NAME=VALUE words.
 * @throws InvalidArgumentError for a word of another form, or a name that was given before
 */
export function assignments(
  words: readonly string[],
  argument: string,
  accepted = "name=value",
): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const word of words) {
    const at = word.indexOf("=");
    if (at < 1) throw new InvalidArgumentError(argument, word, accepted);
    const name = word.slice(0, at);
    if (values.has(name)) throw new InvalidArgumentError(argument, word, `${name} once`);
    values.set(name, word.slice(at + 1));
  }
  return values;
}
