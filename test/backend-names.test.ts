/** Who may know a backend by its name: its own folder, and the table that lists it. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { LAUNCH_BACKENDS } from "chorale/world";
import { expect, it } from "vitest";

const src = fileURLToPath(new URL("../src", import.meta.url));

/** Comparisons with, and cases of, a backend's name in a text. */
function branchesOn(text: string): string[] {
  const name = LAUNCH_BACKENDS.join("|");
  const code = text.replace(/^\s*(\/\/|\*|\/\*).*$/gm, "");
  return [...code.matchAll(new RegExp(`([!=]==?\\s*"(${name})"|"(${name})"\\s*[!=]==?|case "(${name})":)`, "g"))].map(
    ([found]) => found,
  );
}

it("nobody but a backend's own folder branches on its name", () => {
  const files = ["runtime", "apps"].flatMap((room) =>
    readdirSync(join(src, room), { recursive: true, encoding: "utf8" }).map((file) => join(room, file)),
  );
  const foreign = files.filter(
    (file) => /\.tsx?$/.test(file) && !/\.test\.ts$/.test(file) && !file.startsWith(join("runtime", "backends")),
  );
  expect(foreign.length).toBeGreaterThan(50);
  expect(
    foreign.flatMap((file) => branchesOn(readFileSync(join(src, file), "utf8")).map((one) => [file, one])),
  ).toEqual([]);
  // The doctor asks the libraries themselves what they are.
  const imports = foreign.filter(
    (file) =>
      file.startsWith(join("runtime", "world")) &&
      /(from|import\()\s*"[^"]*\/backends\//.test(readFileSync(join(src, file), "utf8")),
  );
  expect(imports).toEqual(["runtime/world/backend-table.ts"]);
});

it("a branch on a name would be noticed", () => {
  expect(branchesOn('if (backend === "threads") return;\n// backend === "nccl"\nconst x = "nccl";')).toEqual([
    '=== "threads"',
  ]);
  expect(branchesOn('switch (name) { case "nccl": }')).toHaveLength(1);
});
