/**
 * The one place where the command line writes to the terminal: what it shows comes from files, tools and machines of
 * others, so every text passes `printable` (colours of our own aside). `stream.ts` writes plans, which are ASCII, in
 * pieces; a test fails when any other file of this room writes to stdout or stderr by itself.
 */
import { printable, printableInColour, printableJson, printableJsonText } from "../../core/index.ts";

/** Prints text to stdout as it is given: the caller ends its lines. */
export function print(text: string): void {
  process.stdout.write(printable(text));
}

/** Prints text in which the program sets colours (`ESC [ … m`). */
export function printInColour(text: string): void {
  process.stdout.write(printableInColour(text));
}

/** Prints one JSON document and ends its line. */
export function printJson(value: unknown, indent?: number): void {
  process.stdout.write(`${printableJson(value, indent)}\n`);
}

/** Prints a text that is JSON already. */
export function printJsonText(json: string): void {
  process.stdout.write(printableJsonText(json));
}

/** Prints text to stderr. */
export function printError(text: string): void {
  process.stderr.write(printable(text));
}

/** On a terminal, shows a line in place of the last one, and erases it when the text is empty. */
export function showProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${printable(text)}`);
}

/** As `showProgress`, and where stderr is no terminal a line of its own: for what takes minutes. */
export function reportProgress(text: string): void {
  if (process.stderr.isTTY) showProgress(text);
  else printError(`${text}\n`);
}

/** On a terminal, begins a new page, as `watch` does. */
export function clearScreen(): void {
  if (process.stdout.isTTY) process.stdout.write("\u001b[H\u001b[2J");
}

/** Calls back when all that was printed has been taken. */
export function whenPrinted(then: () => void): void {
  process.stdout.write("", then);
}
