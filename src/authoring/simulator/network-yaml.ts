/**
 * The YAML of ASTRA-sim's network files: one mapping of keys to numbers, words or flat lists of them. Read by the library
 * `yaml` in its core schema; what it takes for anything else (anchors, tags, nested maps) is refused by line, not misread.
 */
import { isMap, isScalar, isSeq, LineCounter, parseDocument } from "yaml";
import { FormatError } from "../../core/index.ts";

export type YamlScalar = number | string;
export type YamlValue = YamlScalar | readonly YamlScalar[];

/**
 * Reads a mapping of scalars and lists.
 * @throws FormatError naming the line
 */
export function parseNetworkYaml(text: string, where = "yaml"): ReadonlyMap<string, YamlValue> {
  checkNesting(text, where);
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, schema: "core", uniqueKeys: true, logLevel: "silent" });
  const place = (offset: number | undefined) => `${where}:${offset === undefined ? 1 : lines.linePos(offset).line}`;
  const [error] = [...document.errors, ...document.warnings];
  if (error !== undefined) throw new FormatError(place(error.pos[0]), error.message.split("\n")[0] ?? "is no YAML");
  const { contents } = document;
  if (contents === null) return new Map();
  if (!isMap(contents)) throw new FormatError(place(contents.range?.[0]), "is not a mapping `key: value`");
  const scalar = (node: unknown, offset: number | undefined): YamlScalar => {
    const value = isScalar(node) ? node.value : undefined;
    if (isScalar(node) && (node.anchor !== undefined || node.tag !== undefined))
      throw new FormatError(place(offset), "has an anchor or a tag; expected a number or a word");
    if (typeof value === "number" || typeof value === "string") return value;
    throw new FormatError(place(offset), "has a value that is neither a number, a word nor a list of them");
  };
  const result = new Map<string, YamlValue>();
  for (const { key, value } of contents.items) {
    const offset = isScalar(key) ? key.range?.[0] : undefined;
    if (!isScalar(key) || typeof key.value !== "string")
      throw new FormatError(place(offset), "has a key that is no word");
    result.set(key.value, isSeq(value) ? value.items.map((item) => scalar(item, offset)) : scalar(value, offset));
  }
  return result;
}

/** These files hold flat lists. The library takes minutes, and then the stack, for what is nested a thousand deep. */
const MAX_NESTING = 8;

/** @throws FormatError naming the line where brackets, or list marks of one line, are nested too deep */
function checkNesting(text: string, where: string): void {
  let depth = 0;
  for (const [index, line] of text.split("\n").entries()) {
    for (const mark of line.replace(/(^|\s)#.*/, "")) {
      if (mark === "[" || mark === "{") depth++;
      else if (mark === "]" || mark === "}") depth = Math.max(0, depth - 1);
      if (depth > MAX_NESTING) break;
    }
    if (depth > MAX_NESTING || /^\s*(?:[-?:]\s+){8}/.test(line)) {
      throw new FormatError(
        `${where}:${index + 1}`,
        "is nested too deep; expected numbers, words, or flat lists of them",
      );
    }
  }
}
