/** What every call of the command line owes its caller, whatever its files hold. */

/** Escapes, carriage returns and direction marks: what a terminal would obey. */
export const OBEYED = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
/** A line of a JavaScript stack. */
const STACK = /^\s+at (?:.*\()?(?:file:\/\/|\/|node:|[A-Z]:\\|<anonymous>).*$/m;

/**
 * What is wrong with the end of a call, in words; nothing when it is as promised.
 * @param isProgram whether the file was a program: its errors are its author's, who wants to see where they were thrown
 */
export function wrongEnding(
  { code, out, err }: { readonly code: number; readonly out: string; readonly err: string },
  isProgram = false,
): string[] {
  const wrong: string[] = [];
  if (![0, 1, 2, 3].includes(code)) wrong.push(`exit code ${code}`);
  for (const [name, text] of [
    ["stdout", out],
    ["stderr", err],
  ] as const) {
    const obeyed = OBEYED.exec(text);
    if (obeyed !== null)
      wrong.push(`${name} has ${JSON.stringify(text.slice(Math.max(0, obeyed.index - 40), obeyed.index + 40))}`);
    const stack = STACK.exec(text);
    if (stack !== null && !isProgram) wrong.push(`${name} has a stack: ${text.slice(0, stack.index + 200)}`);
  }
  if (code !== 0 && out.trim() === "" && err.trim() === "") wrong.push(`exit code ${code} without a word`);
  if (
    !isProgram &&
    /RangeError|TypeError|Maximum call stack|Cannot read prop|is not iterable|Invalid array length/.test(err)
  )
    wrong.push(`an error of JavaScript's own: ${err.slice(0, 200)}`);
  if (/bug in chorale/.test(out + err)) wrong.push(`a bug: ${(out + err).slice(0, 300)}`);
  return wrong;
}
