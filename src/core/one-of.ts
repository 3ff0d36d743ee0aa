import { InvalidArgumentError } from "./errors.ts";

/** Reads one of several words. @throws InvalidArgumentError naming them */
export function oneOf<const W extends string>(text: string, argument: string, words: readonly W[]): W {
  const found = words.find((word) => word === text);
  if (found === undefined) throw new InvalidArgumentError(argument, text, `one of ${words.join(", ")}`);
  return found;
}
