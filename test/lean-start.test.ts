/** What is loaded before a program does anything: no package for a rank, nor for `import "chorale"`. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const src = fileURLToPath(new URL("../src", import.meta.url));

/** Files and packages that loading `entries` loads, without those that are imported when they are used. */
function loadedBy(...entries: string[]): { readonly files: readonly string[]; readonly packages: readonly string[] } {
  const files = new Set(entries);
  const packages: string[] = [];
  // Each file that is found is looked at in its turn.
  for (const file of files) {
    const text = readFileSync(join(src, file), "utf8");
    const found = text.matchAll(
      /^(?:import|export)\s+(?!type\s)(?:(\*(?: as \w+)?|\{[^}]*\}|\w+)\s+from\s+)?"([^"]+)"/gm,
    );
    for (const [, names = "", specifier = ""] of found) {
      const isOfTypes = /^\{(\s*type [^,}]+,?)+\s*\}$/.test(names);
      if (isOfTypes) continue;
      if (specifier.startsWith(".")) files.add(relative(src, join(src, dirname(file), specifier)));
      else if (!specifier.startsWith("node:")) packages.push(`${file} loads ${specifier}`);
    }
  }
  return { files: [...files], packages };
}

it.each([
  ["threads", "threads"],
  ["shm", "shm"],
  ["nccl", "nccl"],
  ["mpi", "mpi"],
  ["cuda", "nccl"],
])("a rank of the %s backend loads no package when it starts", (backend, attaches) => {
  const folder = `runtime/backends/${backend}`;
  expect(existsSync(join(src, folder, `${backend}-kind.ts`))).toBe(true);
  const { files, packages } = loadedBy(
    "runtime/world/rank-entry.ts",
    `${folder}/${backend}-kind.ts`,
    `runtime/backends/${attaches}/backend.ts`,
  );
  expect(files).toContain("mesh/device-mesh.ts");
  expect(packages).toEqual([]);
  if (backend === "threads") expect(files.filter((file) => /cuda|^runtime\/device\//.test(file))).toEqual([]);
});

it("a rank that asks for its first plan loads no package", () => {
  const { files, packages } = loadedBy("runtime/executor/library-plans.ts");
  expect(files).toContain("authoring/algorithms/index.ts");
  expect(packages).toEqual([]);
});

it("chorale launch loads no package but what reads its words", () => {
  const { files, packages } = loadedBy("apps/cli/launch.ts");
  expect(files).toContain("runtime/world/launch.ts");
  expect(packages.filter((found) => !found.endsWith(" loads commander"))).toEqual([]);
});

it("a thread loads neither sockets nor another backend before it has its place", () => {
  const { files } = loadedBy("runtime/world/rank-entry.ts");
  const unwanted = /^(runtime\/(backends|rendezvous\/(store|client|channel)|device|memory|executor)|foreign)\//;
  expect(files.filter((file) => unwanted.test(file))).toEqual([]);
});

const dist = fileURLToPath(new URL("../dist/", import.meta.url));
const isBuilt = existsSync(join(dist, "index.js"));

it.skipIf(!isBuilt)(`a rank loads few files${isBuilt ? "" : " (needs npm run build)"}`, () => {
  const folder = "runtime/backends/threads";
  const files = new Set(["runtime/world/rank-entry.js", `${folder}/internal.js`, `${folder}/backend.js`]);
  for (const file of files) {
    const text = readFileSync(join(dist, file), "utf8");
    for (const [, path = ""] of text.matchAll(/^(?:import|export|\}).*"(\.[^"]+)";$/gm)) {
      files.add(relative(dist, join(dist, dirname(file), path)));
    }
  }
  expect(files).toContain("runtime/shared/threads.js");
  // 137 before anything was bundled, 41 when each room was: each file costs about a millisecond.
  expect(files.size).toBeLessThan(10);
});

it.skipIf(!isBuilt)(`classes keep their names${isBuilt ? "" : " (needs npm run build)"}`, () => {
  const rooms = readdirSync(dist, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".js"));
  const renamed = rooms.flatMap((file) => readFileSync(join(dist, file), "utf8").match(/= class _\w+/g) ?? []);
  expect(renamed).toEqual([]);
});

it('`import "chorale"` loads no package', () => {
  const { files, packages } = loadedBy("index.ts");
  expect(files).toContain("runtime/world/launch.ts");
  expect(packages).toEqual([]);
});

it("a package that is loaded would be noticed", () => {
  expect(loadedBy("mesh/index.ts").packages.join()).toMatch(/loads zod/);
});
