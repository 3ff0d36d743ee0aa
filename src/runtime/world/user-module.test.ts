import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { bundleFunction, textOf } from "./sent-function.ts";
import { bundleUserModule, importUserModule } from "./user-module.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, text: string): string {
  const path = join(folder, name);
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, text);
  return path;
}

describe("a user's module", () => {
  it("may be TypeScript in several files, with its own import.meta", async () => {
    write("lib/part.ts", "export const where: string = import.meta.url;\nexport const folder = import.meta.dirname;\n");
    const path = write(
      "main.ts",
      'import { folder, where } from "./lib/part.ts";\nimport { sep } from "node:path";\nimport { EOL } from "os";\n' +
        "export const here: string = import.meta.url;\nexport { EOL, folder, sep, where };\nexport default (x: number): number => x + 1;\n",
    );
    const module = await importUserModule(path);
    expect(module).toMatchObject({
      here: pathToFileURL(path).href,
      where: pathToFileURL(join(folder, "lib/part.ts")).href,
      folder: join(folder, "lib"),
    });
    expect((module["default"] as (x: number) => number)(1)).toBe(2);
  });

  it("gets the running copy of chorale, whatever is installed beside it", async () => {
    write("node_modules/chorale/package.json", '{"name":"chorale","exports":"./x.js"}');
    write("node_modules/chorale/x.js", "throw new Error('the wrong copy')");
    const path = write(
      "uses.ts",
      'import { createMesh } from "chorale/mesh";\nexport const size = createMesh({ tp: 3 }).size;',
    );
    expect(await importUserModule(path)).toMatchObject({ size: 3 });
    const wrong = write("wrong.ts", 'import "chorale/nothing";');
    await expect(importUserModule(wrong)).rejects.toThrow(
      /wrong\.ts:1:8: chorale has no entry point chorale\/nothing; there are chorale, /,
    );
  });

  it("loads packages as Node would, beside the user's file", async () => {
    write("node_modules/esm-only/package.json", '{"name":"esm-only","type":"module","exports":{"import":"./main.js"}}');
    write("node_modules/esm-only/main.js", "export const kind = 'esm'; export const url = import.meta.url;");
    write("node_modules/old-cjs/package.json", '{"name":"old-cjs","main":"main.js"}');
    write("node_modules/old-cjs/main.js", "exports.kind = 'cjs';");
    const path = write(
      "packages.ts",
      'import { kind, url } from "esm-only";\nimport * as old from "old-cjs";\nexport const seen = [kind, old.kind];\nexport { url };',
    );
    const module = await importUserModule(path);
    expect(module["seen"]).toEqual(["esm", "cjs"]);
    expect(module["url"]).toBe(pathToFileURL(join(folder, "node_modules/esm-only/main.js")).href);
  });

  it("gets chorale's zod where none is installed beside it, and its own where one is", async () => {
    const path = write("schema.ts", 'import { z } from "zod";\nexport const args = z.object({ n: z.number() });');
    const module = await importUserModule(path);
    expect((module["args"] as { safeParse: (x: unknown) => object }).safeParse({ n: 3 })).toMatchObject({
      success: true,
    });
    await expect(importUserModule(write("other.ts", 'import "not-installed";'))).rejects.toThrow(/Could not resolve/);
    write("own/node_modules/zod/package.json", '{"name":"zod","type":"module","exports":"./main.js"}');
    write("own/node_modules/zod/main.js", "export const z = 'own';");
    const own = await importUserModule(write("own/main.ts", 'import { z } from "zod";\nexport const seen = z;'));
    expect(own).toMatchObject({ seen: "own" });
  });

  it("may itself lie in an installed package", async () => {
    write("node_modules/examples/part.ts", "export const part: number = 4;");
    const path = write("node_modules/examples/main.ts", 'export { part } from "./part.ts";');
    expect(await importUserModule(path)).toMatchObject({ part: 4 });
  });

  it("throws with the user's file and line", async () => {
    const path = write(
      "throws.ts",
      "interface Gone {\n  readonly x: number;\n}\nexport const f = (g: Gone): never => {\n  throw new Error('x' + g.x);\n};\n",
    );
    const module = await importUserModule(path);
    const { prepareStackTrace } = Error;
    let stack = "";
    try {
      // As in a rank: Node formats the stack, and not vitest.
      Error.prepareStackTrace = undefined as never;
      (module["f"] as (g: { x: number }) => never)({ x: 1 });
    } catch (error) {
      stack = (error as Error).stack ?? "";
    } finally {
      Error.prepareStackTrace = prepareStackTrace;
    }
    expect(stack).toContain(`${path}:5:`);
  });

  it("is bundled once, and again when a file of it changes", async () => {
    const part = write("again/part.ts", "export const x = 1;");
    const path = write("again/main.ts", 'export { x } from "./part.ts";');
    const first = await bundleUserModule(path);
    expect(first.inputs.toSorted()).toEqual([path, part].toSorted());
    expect(await bundleUserModule(path)).toBe(first);
    writeFileSync(part, "export const x = 1000;");
    expect((await bundleUserModule(path)).url).not.toBe(first.url);
    expect(await importUserModule(path)).toMatchObject({ x: 1000 });
  });

  it("is refused when it is missing, of another kind, or does not parse or resolve", async () => {
    await expect(bundleUserModule(join(folder, "absent.ts"), "SCRIPT")).rejects.toThrow(InvalidArgumentError);
    await expect(bundleUserModule(folder)).rejects.toThrow("a regular file; this is a folder or a special file");
    for (const path of [join(write("part.ts", "export {};"), "below.ts"), join(folder, `${"n".repeat(300)}.ts`)]) {
      await expect(bundleUserModule(path, "SCRIPT")).rejects.toThrow("a file that exists");
    }
    await expect(bundleUserModule(write("data.txt", "x"))).rejects.toThrow("a file that ends in .ts");
    const syntax = bundleUserModule(write("syntax.ts", "const ok = 1;\nconst x: = 3;\n"));
    await expect(syntax).rejects.toThrow(FormatError);
    await expect(syntax).rejects.toThrow(/syntax\.ts:2:10: Unexpected "="\n {4}const x: = 3;/);
    await expect(bundleUserModule(write("lost.ts", 'import "./nowhere.ts";'))).rejects.toThrow(
      /lost\.ts:1:8: Could not resolve/,
    );
  });
});

describe("a function's text", () => {
  type Sent = (x: string) => unknown;
  async function sent(run: (...values: never[]) => unknown): Promise<Sent> {
    const { url } = await bundleFunction(textOf(run));
    return ((await import(url)) as { default: Sent }).default;
  }

  it("becomes a module", async () => {
    const { url } = await bundleFunction("async (x) => (await import('node:path')).posix.sep + x");
    const { default: f } = (await import(url)) as { default: Sent };
    expect(await f("a")).toBe("/a");
  });

  it("may be a method, an accessor or a private method, whatever it is called", async () => {
    const get = (holder: object, name: PropertyKey) => Object.getOwnPropertyDescriptor(holder, name)?.get as Sent;
    class Job {
      static async run(x: string) {
        return `${x}1`;
      }
      #hidden(x: string) {
        return `${x}2`;
      }
      get hidden() {
        return this.#hidden;
      }
    }
    const methods = {
      async(x: string) {
        return `${x}3`;
      },
      async function(x: string) {
        return `${x}4`;
      },
      "two words": (x: string) => `${x}5`,
      [Symbol.iterator]: (x: string) => `${x}6`,
      get seven() {
        return "7";
      },
    };
    expect(await (await sent(Job.run))("a")).toBe("a1");
    expect((await sent(new Job().hidden))("a")).toBe("a2");
    expect((await sent(methods.async))("a")).toBe("a3");
    expect(await (await sent(methods.function))("a")).toBe("a4");
    expect((await sent(methods["two words"]))("a")).toBe("a5");
    expect((await sent(methods[Symbol.iterator]))("a")).toBe("a6");
    expect((await sent(get(methods, "seven")))("a")).toBe("7");
  });

  it("is refused when there is none, or when it does not parse", async () => {
    expect(() => textOf(Math.max)).toThrow(InvalidArgumentError);
    expect(() => textOf((() => 1).bind(undefined))).toThrow(/a bound or built-in one has no text/);
    const refused = bundleFunction("(x) => { super.y(); }");
    await expect(refused).rejects.toThrow(FormatError);
    await expect(refused).rejects.toThrow(/^the function run, line 1, column 26: Unexpected "super"/);
  });

  it.each([
    ["a function", "const a = 1;\n\n  run((x) => {\n    throw new Error(x + a);\n  });\n", 4, 25],
    ["a method", "const a = 1;\nconst job = { async run(x) {\n  throw new Error(x + a);\n} };\n", 3, 23],
    ["a function on the first line", "const f = () => missing;\n", 1, undefined],
  ])("keeps the place of %s in its file", async (_, text, line, column) => {
    const path = write(`place-${line}.mjs`, text);
    const source = /\(x\) => \{.*?\n {2}\}|async run.*?\n\}|\(\) => missing/s.exec(text)?.[0] ?? "";
    const { url } = await bundleFunction(source, path);
    process.setSourceMapsEnabled(true);
    const { default: f } = (await import(url)) as { default: Sent };
    const stack = await (async () => f("a"))().catch((error: Error) => error.stack ?? "");
    expect(stack).toContain(`${path}:${line}:${column ?? ""}`);
    // Where the text stands twice, or is another, nothing is claimed.
    const twice = await bundleFunction(source, write(`twice-${line}.mjs`, text + text));
    const { default: g } = (await import(twice.url)) as { default: Sent };
    expect(await (async () => g("a"))().catch((error: Error) => error.stack)).toContain(
      `run.mjs:${line === 1 ? 1 : 2}:`,
    );
  });

  it("may come from a compiler that keeps the names of functions", async () => {
    const { url } = await bundleFunction(
      '(x) => { const inner = /* @__PURE__ */ __name(() => x, "kept"); return inner.name; }',
    );
    const { default: f } = (await import(url)) as { default: Sent };
    expect(f("a")).toBe("kept");
  });
});

describe("a user's CommonJS file", () => {
  it("requires chorale, packages and files as Node would, and knows where it lies", async () => {
    write("node_modules/both/package.json", '{"name":"both","exports":{"require":"./r.cjs","import":"./i.mjs"}}');
    write("node_modules/both/r.cjs", "exports.kind = 'required';");
    write("node_modules/both/i.mjs", "export const kind = 'imported';");
    write("cjs/part.cjs", "exports.main = require.main === module; exports.name = __filename;");
    const path = write(
      "cjs/main.cjs",
      'const { createMesh } = require("chorale/mesh");\nconst part = require("./part.cjs");\n' +
        'const { sep } = require("path");\nconst data = require("./data.json");\n' +
        'module.exports = { size: createMesh({ tp: 3 }).size, part, kind: require("both").kind, sep, data, ' +
        "main: require.main === module, folder: __dirname, found: require.resolve('both') };",
    );
    write("cjs/data.json", '{"x":1}');
    expect((await importUserModule(path))["default"]).toMatchObject({
      size: 3,
      part: { main: false, name: join(folder, "cjs/part.cjs") },
      kind: "required",
      sep: "/",
      data: { x: 1 },
      main: true,
      folder: join(folder, "cjs"),
      found: join(folder, "node_modules/both/r.cjs"),
    });
    const typed = write(
      "cjs/typed.cts",
      'import mesh = require("chorale/mesh");\nexport = mesh.createMesh({ tp: 2 }).size as number;',
    );
    expect(await importUserModule(typed)).toMatchObject({ default: 2 });
    const own = write(
      "cjs/own.mjs",
      'import { createRequire } from "node:module";\nimport part from "./part.cjs";\n' +
        'const require = createRequire(import.meta.url);\nexport const seen = [require("both").kind, part.main];\nimport "./uses.cjs";',
    );
    write("cjs/uses.cjs", 'require("chorale/mesh"); exports.x = 1;');
    expect(await importUserModule(own)).toMatchObject({ seen: ["required", false] });
  });
});
