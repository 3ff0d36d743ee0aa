/** The table of complaints in docs/doctor.md: the tests that it names are there, and the messages that it shows are theirs. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

const text = readFileSync("docs/doctor.md", "utf8");
const section = text.slice(text.indexOf("## What people complain of elsewhere"));
const cellsOf = (line: string) => line.split(" | ").map((cell) => cell.replace(/^\| *| *\|$/g, ""));
const rows = section.split("\n").filter((line) => line.startsWith("| "));

/** By number: the files of its tests, and titles of some of them. "The same" are those of the row above. */
const complaints = new Map<number, { readonly files: readonly string[]; readonly titles: readonly string[] }>();
let files: readonly string[] = [];
for (const line of rows) {
  const [what = "", , tests = ""] = cellsOf(line);
  const number = Number(/^(\d+)\. /.exec(what)?.[1]);
  if (!(number > 0)) continue;
  const named = [...tests.matchAll(/`([\w./-]+\.(?:ts|mjs))`/g)].map(([, path = ""]) => path);
  if (tests !== "the same") files = named;
  complaints.set(number, { files, titles: [...tests.matchAll(/"([^"]+)"/g)].map(([, title = ""]) => title) });
}

it("has the fifteen, each with a test", () => {
  expect([...complaints.keys()]).toEqual(Array.from({ length: 15 }, (_, i) => i + 1));
  for (const [number, { files, titles }] of complaints) {
    expect(files, `complaint ${number}`).not.toEqual([]);
    const all = files.map((file) => readFileSync(file, "utf8")).join("\n");
    for (const title of titles) expect(all, `complaint ${number}: ${files.join(", ")}`).toContain(title);
  }
});

it("shows messages that those tests expect", () => {
  const shown = rows.map(cellsOf).filter(([what = ""]) => /^\d+(, \d+)*$/.test(what));
  expect(shown.flatMap(([what = ""]) => what.split(", ").map(Number))).toEqual([...complaints.keys()]);
  for (const [what = "", message = ""] of shown) {
    const files = what.split(", ").flatMap((number) => complaints.get(Number(number))?.files ?? []);
    // Some are regular expressions there.
    const all = files.map((file) => readFileSync(file, "utf8").replaceAll("\\", "")).join("\n");
    for (const [, part = ""] of message.matchAll(/`([^`]+)`/g))
      for (const piece of part.split("…").filter((one) => one.trim() !== "")) {
        if (piece === "`") continue;
        expect(all, `complaint ${what}`).toContain(
          piece
            .trim()
            .replace(/called at$/, "")
            .trim(),
        );
      }
  }
});
