/** Checks docs/parity.md and its parts (docs/parity-*.md): every name of ours exists, is public, and the test that is said to show it has that title. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { parseDType, REDUCE_OPS, sizeOf } from "../src/core/index.ts";
import { entryDeclarations, isBuilt, unlessBuilt } from "./support/declarations.ts";
import { missingName } from "./support/public-names.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

interface Row {
  readonly line: number;
  readonly theirs: string;
  readonly ours: readonly string[];
  readonly file: string;
  readonly title: string;
}

/** Reads the rows of the document's tables; throws for one that does not follow the form. */
export function rowsOf(text: string, document = "docs/parity.md"): Row[] {
  return text.split("\n").flatMap((line, index, lines): Row[] => {
    // A line above a rule is the table's head.
    if (!line.startsWith("| ") || lines[index + 1]?.startsWith("|---") === true) return [];
    const [theirs = "", ours = "", shown = ""] = line
      .slice(1)
      .split("|")
      .map((cell) => cell.trim());
    const names = [...ours.matchAll(/`(chorale[\w/]*#[\w.]+)`/g)].map((match) => match[1] ?? "");
    const [, file, title] = /^`([^`]+)` › (.+)$/.exec(shown) ?? [];
    if (theirs === "" || names.length === 0 || file === undefined || title === undefined) {
      throw new Error(
        `${document}:${index + 1}: no row of the form | theirs | \`chorale/room#Name\` | \`file\` › title |`,
      );
    }
    return [{ line: index + 1, theirs, ours: names, file, title }];
  });
}

/** Whether a test of `text` has a title that begins with `title`. */
function hasTitle(text: string, title: string): boolean {
  return [...text.matchAll(/\b(?:it|test|describe)(?:\.each\([\s\S]*?\))?\(\s*(["'`])((?:\\.|(?!\1)[\s\S])*)\1/g)].some(
    (match) => (match[2] ?? "").replace(/\\(.)/g, "$1").startsWith(title),
  );
}

const rows = readdirSync(join(root, "docs"))
  .filter((name) => /^parity(-[a-z]+)*\.md$/.test(name))
  .flatMap((name) => rowsOf(readFileSync(join(root, "docs", name), "utf8"), `docs/${name}`));

describe("docs/parity.md", () => {
  it.skipIf(!isBuilt)(`names only what is exported${unlessBuilt}`, { timeout: 90_000 }, () => {
    const entries = new Set(rows.flatMap(({ ours }) => ours.map((name) => name.split("#")[0] ?? "")));
    const files = [...entries].map((entry) => [entry, entryDeclarations.get(entry)] as const);
    expect(files.filter(([, file]) => file === undefined || !existsSync(file))).toEqual([]);
    const problems = rows.flatMap(({ line, ours }) =>
      ours.flatMap((name) => {
        const [entry = "", path = ""] = name.split("#");
        const missing = missingName(entry, path);
        return missing === undefined ? [] : [`line ${line}: ${missing}`];
      }),
    );
    expect(problems).toEqual([]);
    expect(rows.length).toBeGreaterThan(40);
    expect(missingName("chorale/mesh", "NoSuchName")).toBe("chorale/mesh does not export NoSuchName");
    expect(missingName("chorale/mesh", "DeviceMesh.noSuchMember")).toBe("DeviceMesh has no member noSuchMember");
  });

  it("names only tests that exist", () => {
    const problems = rows.flatMap(({ line, file, title }) => {
      const path = join(root, file);
      if (!existsSync(path)) return [`line ${line}: there is no ${file}`];
      return hasTitle(readFileSync(path, "utf8"), title) ? [] : [`line ${line}: ${file} has no test "${title}..."`];
    });
    expect(problems).toEqual([]);
  });

  it("has the dtypes and operators of kapsl-hal", () => {
    const sizes = { f32: 4, f16: 2, bf16: 2, i32: 4, i64: 8, u8: 1 } as const;
    for (const [dtype, sizeBytes] of Object.entries(sizes)) expect(sizeOf(parseDType(dtype))).toBe(sizeBytes);
    for (const op of ["sum", "prod", "min", "max", "avg"]) expect(REDUCE_OPS).toContain(op);
  });

  it("would notice a wrong row", () => {
    expect(() => rowsOf("| `x` | nothing | `a.ts` › b |")).toThrow("docs/parity.md:1");
    expect(hasTitle('it("adds two numbers", () => {})', "adds")).toBe(true);
    expect(hasTitle("it.each([[1]])(`adds %s`, () => {})", "adds")).toBe(true);
    expect(hasTitle('// it says "adds"', "adds")).toBe(false);
  });
});
