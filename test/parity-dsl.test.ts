/** Checks docs/parity-dsl.md: every name of ours is exported as written, and every test that is named exists. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { isBuilt, unlessBuilt } from "./support/declarations.ts";
import { missingName } from "./support/public-names.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const lines = readFileSync(join(root, "docs/parity-dsl.md"), "utf8").split("\n");
const rows = lines.flatMap((text, i) => {
  if (!text.startsWith("| ") || text.startsWith("| MSCCL++ DSL |")) return [];
  const [theirs = "", ours = "", shown = ""] = text.slice(1).split(" | ");
  const [, file = "", title = ""] = /`([^`]+)` › (.+?)( \|)?$/.exec(shown) ?? [];
  return [
    {
      line: i + 1,
      theirs,
      names: [...ours.matchAll(/`chorale\/(\w+)#([\w.]+)`/g)].map((m) => [m[1] ?? "", m[2] ?? ""] as const),
      file,
      title,
    },
  ];
});

describe("docs/parity-dsl.md", () => {
  it("has a row for every part of the DSL", () => {
    expect(rows.length).toBeGreaterThan(55);
    expect(rows.filter((row) => row.names.length === 0 || row.file === "" || row.title === "")).toEqual([]);
  });

  it.skipIf(!isBuilt)(`names only what is exported${unlessBuilt}`, { timeout: 90_000 }, () => {
    const problems = rows.flatMap(({ line, names }) =>
      names.flatMap(([room, path]) => {
        const missing = missingName(`chorale/${room}`, path);
        return missing === undefined ? [] : [`line ${line}: ${missing}`];
      }),
    );
    expect(problems).toEqual([]);
  });

  it("names only tests that exist", () => {
    const problems = rows.flatMap(({ line, file, title }) => {
      const path = join(root, file);
      if (!existsSync(path)) return [`line ${line}: there is no ${file}`];
      return readFileSync(path, "utf8").includes(`("${title}`)
        ? []
        : [`line ${line}: ${file} has no test "${title}..."`];
    });
    expect(problems).toEqual([]);
  });
});
