/** JSON as plan files have it: sizes up to 2^64 - 1, which a number of JavaScript does not hold. */
import { FormatError } from "../../core/index.ts";

/** Parses JSON with integers beyond 2^53 kept as decimal strings. */
export function parseExact(text: string): unknown {
  // Most texts have no long digits at all; those that do are rewritten between their strings.
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const pieces: string[] = [];
  for (let at = 0; at < text.length; ) {
    let quote = text.indexOf('"', at);
    if (quote < 0) quote = text.length;
    pieces.push(text.slice(at, quote).replace(/(?<![\d.eE+-])(\d{16,})(?![\d.eE])/g, '"$1"'));
    let end = quote;
    do end = text.indexOf('"', end + 1);
    while (end >= 0 && isEscaped(text, end));
    if (end < 0) end = text.length;
    pieces.push(text.slice(quote, end + 1));
    at = end + 1;
  }
  return JSON.parse(pieces.join(""));
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === "\\") backslashes++;
  return backslashes % 2 === 1;
}

/**
 * Parses the text of a plan file.
 * @throws FormatError when it is not JSON
 */
export function parseFile(text: string, where: string, parse: (text: string) => unknown = parseExact): unknown {
  try {
    return parse(text);
  } catch (error) {
    throw new FormatError(where, `is not JSON: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
}
