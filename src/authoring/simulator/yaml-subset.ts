/**
 * The little YAML that ASTRA-sim's network files use: one level of `key: value`, where a value is a number, a word or a
 * flow list `[ a, b ]`, and comments. Anything else is refused by line, rather than misread.
 */
import { FormatError } from "../../core/index.ts";

export type YamlScalar = number | string;
export type YamlValue = YamlScalar | readonly YamlScalar[];

function scalar(text: string, where: string): YamlScalar {
  const plain = /^"([^"]*)"$|^'([^']*)'$/.exec(text);
  if (plain !== null) return plain[1] ?? plain[2] ?? "";
  if (text === "" || /[[\]{}:&*!|>%@`"']/.test(text))
    throw new FormatError(where, `cannot read ${JSON.stringify(text)}`);
  const number = Number(text);
  return Number.isFinite(number) ? number : text;
}

/**
 * Reads the subset.
 * @throws FormatError naming the line
 */
export function parseYamlSubset(text: string, where = "yaml"): ReadonlyMap<string, YamlValue> {
  const result = new Map<string, YamlValue>();
  const lines = text.split(/\r?\n/);
  for (let i = 0; i < lines.length; i++) {
    const line = (lines[i] ?? "").replace(/(^|\s)#.*$/, "").trimEnd();
    const place = `${where}:${i + 1}`;
    if (line.trim() === "" || line === "---") continue;
    const match = /^([A-Za-z_][\w-]*)\s*:\s*(.*)$/.exec(line);
    if (match === null) throw new FormatError(place, "is not `key: value` at the beginning of a line");
    const key = match[1] ?? "";
    let value = match[2] ?? "";
    if (result.has(key)) throw new FormatError(place, `repeats ${key}`);
    if (!value.startsWith("[")) {
      result.set(key, scalar(value, place));
      continue;
    }
    // A list may go on over several lines.
    while (!value.includes("]") && i + 1 < lines.length)
      value += ` ${(lines[++i] ?? "").replace(/(^|\s)#.*$/, "").trim()}`;
    const inner = /^\[(.*)\]$/.exec(value.trim());
    if (inner === null) throw new FormatError(place, `the list of ${key} does not end`);
    const items = (inner[1] ?? "").trim();
    result.set(key, items === "" ? [] : items.split(",").map((item) => scalar(item.trim(), place)));
  }
  return result;
}
