/**
 * Text that is safe to show on a terminal. Names, messages and labels that come from files of others may hold escapes
 * that move the cursor, marks that turn the direction of writing round, or carriage returns that overwrite a line: what
 * the reader then sees is not what is there (CVE-2003-0063 and its kin; "Trojan Source", CVE-2021-42574). Nothing is
 * removed: each such character is shown as the escape that names it, so that the text still says what the file says.
 */

/**
 * C0 but tab and line feed, DEL, C1, soft hyphen, zero-width space and direction marks, line and paragraph separators,
 * invisible operators, the byte-order mark, interlinear annotations and tags.
 */
const UNPRINTABLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** The same without the colours of a terminal, `ESC [ … m`. */
const UNPRINTABLE_BUT_COLOURS = new RegExp(`(\\u001b\\[[\\d;]{0,16}m)|${UNPRINTABLE.source}`, "gu");

/** `\x1b`, `\u202e`, `\u{e0041}`. */
function escapeOf(character: string): string {
  const code = character.codePointAt(0) as number;
  const hex = code.toString(16);
  return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : code < 0x10000 ? `\\u${hex}` : `\\u{${hex}}`;
}

/**
 * Shows what a terminal would obey or hide; line ends and tabs stay, and CR before LF is dropped.
 * @example
 * printable("gpt\u001b[2J") // "gpt\\x1b[2J"
 */
export function printable(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(UNPRINTABLE, escapeOf);
}

/** As `printable`, and on one line: a name cannot begin a line of its own. */
export function printableLine(text: string): string {
  return printable(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

/** As `printable`, but colours (`ESC [ … m`) pass: for text that the program itself colours. */
export function printableInColour(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(UNPRINTABLE_BUT_COLOURS, (match, colour: string | undefined) => colour ?? escapeOf(match));
}

/**
 * JSON of a value that is safe to show as it is: what `printable` would escape stands as `\uXXXX`, which any reader of
 * JSON turns back. @throws TypeError as JSON.stringify does
 * @example
 * printableJson({ name: "\u202eexe" }) // '{"name":"\\u202eexe"}'
 */
export function printableJson(value: unknown, indent?: number): string {
  return printableJsonText(JSON.stringify(value, null, indent) ?? "null");
}

/** The same for a text that is JSON already, of the same meaning. */
export function printableJsonText(json: string): string {
  return json.replace(UNPRINTABLE, (character) =>
    [...Array(character.length).keys()]
      .map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}
