/** package.json, the lock file and tsconfig.json: what users and `npm ci` get. The tarball itself: test/e2e/pack.test.ts. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const read = (name: string) => JSON.parse(readFileSync(join(root, name), "utf8")) as unknown;
const { exports } = read("package.json") as { exports: Record<string, { default: string } | string> };

it("locks every package by its content, from wherever npm is told to fetch it", () => {
  const { packages } = read("package-lock.json") as {
    packages: Record<string, { integrity?: string; resolved?: string }>;
  };
  const locked = Object.entries(packages).filter(([name]) => name !== "");
  expect(locked.length).toBeGreaterThan(50);
  expect(locked.filter(([, { integrity = "" }]) => !/^sha512-\S{86}==$/.test(integrity)).map(([name]) => name)).toEqual(
    [],
  );
  expect(locked.flatMap(([, { resolved = [] }]) => resolved)).toEqual([]);
});

it("exports every schema", () => {
  const schemas = readdirSync(join(root, "schemas")).map((name) => `./schemas/${name}`);
  expect(schemas.length).toBeGreaterThan(1);
  expect(Object.keys(exports).filter((name) => name.startsWith("./schemas/"))).toEqual(schemas.sort());
});

it("has one source for each entry point, which types are checked against", () => {
  const { compilerOptions } = read("tsconfig.json") as { compilerOptions: { paths: Record<string, string[]> } };
  const sources = Object.entries(exports).flatMap(([name, target]) =>
    typeof target === "string"
      ? []
      : [
          [
            name.replace(/^\./, "chorale"),
            [target.default.replace("./dist/", "./src/").replace(/\.js$/, ".ts")],
          ] as const,
        ],
  );
  expect(compilerOptions.paths).toEqual(Object.fromEntries(sources));
  expect(sources.filter(([, [path = ""]]) => !existsSync(join(root, path)))).toEqual([]);
});

it("is built with source maps that hold the sources", () => {
  const { compilerOptions } = read("tsconfig.build.json") as { compilerOptions: object };
  expect(compilerOptions).toMatchObject({ sourceMap: true, inlineSources: true, declaration: true });
});
