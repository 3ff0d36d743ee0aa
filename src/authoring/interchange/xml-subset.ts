/**
 * The little XML that MSCCL's algorithm files use: elements with attributes, no text. Strict and small on purpose: no
 * entities but the five, no DTDs, sizes bounded.
 */
import { FormatError, wordTable } from "../../core/index.ts";

export interface XmlElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: XmlElement[];
  readonly line: number;
}

/** Elements that a file may have; a larger one is not an algorithm anybody wrote. */
const MAX_ELEMENTS = 4_000_000;

const ENTITIES: Readonly<Record<string, string>> = wordTable({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" });

/**
 * Parses a document to its root element.
 * @throws FormatError with the line
 */
export function parseXml(text: string, where = "xml"): XmlElement {
  const token =
    /<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<(\/?)([A-Za-z_][\w.-]*)((?:\s+[\w:.-]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*)\s*(\/?)>|\s+|[^<\s]+|</g;
  const stack: XmlElement[] = [];
  let root: XmlElement | undefined;
  let line = 1;
  let count = 0;
  for (const match of text.matchAll(token)) {
    const fail = (problem: string): never => {
      throw new FormatError(`${where}:${line}`, problem);
    };
    const [all, closing, name, attributes = "", empty] = match;
    if (name === undefined) {
      if (!/^(\s|<!--|<\?)/.test(all)) fail(`unexpected ${JSON.stringify(all.slice(0, 20))}`);
    } else if (closing === "/") {
      const open = stack.pop();
      if (open?.name !== name) fail(`</${name}> closes ${open === undefined ? "nothing" : `<${open.name}>`}`);
    } else {
      if (++count > MAX_ELEMENTS) fail(`more than ${MAX_ELEMENTS} elements`);
      const element: XmlElement = { name, attributes: new Map(readAttributes(attributes)), children: [], line };
      const parent = stack.at(-1);
      if (parent !== undefined) parent.children.push(element);
      else if (root === undefined) root = element;
      else fail("a second root element");
      if (empty !== "/") stack.push(element);
    }
    for (let i = all.indexOf("\n"); i >= 0; i = all.indexOf("\n", i + 1)) line++;
  }
  if (stack.length > 0) throw new FormatError(`${where}:${line}`, `<${stack.at(-1)?.name}> is not closed`);
  if (root === undefined) throw new FormatError(where, "has no element");
  return root;
}

function readAttributes(text: string): [string, string][] {
  return [...text.matchAll(/([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')/g)].map(([, name = "", double, single]) => [
    name,
    (double ?? single ?? "").replace(/&(\w+);/g, (all, entity: string) => ENTITIES[entity] ?? all),
  ]);
}

/** Escapes an attribute's value. */
export function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&${Object.entries(ENTITIES).find(([, value]) => value === c)?.[0]};`);
}
