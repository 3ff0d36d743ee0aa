/**
 * Type-checks and runs (a quarter of them, by the seed) the `@example` of every docstring in src/, and every TypeScript block of every document (those of the nccl and cuda rooms over the stand-in of CUDA and NCCL, where there is a C++
 * compiler). An example either imports what it needs from "chorale" or "chorale/<room>", or uses only what its file
 * exports. What it prints is not checked; that it runs is. Between them they call each public function and method of
 * the nccl and cuda rooms. A block of a document that cannot run here says so where it begins, with the reason:
 * "```ts no-run: needs a network". It is type-checked all the same.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { useFakeGpu } from "./helpers/fake-gpu.ts";
import { compilerOptions, declarationsOf, entryDeclarations, isBuilt, unlessBuilt } from "./support/declarations.ts";
import { calledIn, publicFunctions } from "./support/public-calls.ts";
import { spread } from "./support/spread.ts";

const hasStandIn = useFakeGpu();
// The stand-in is its own compiler: what it compiles has the two kernels that it knows.
process.env["CHORALE_NVRTC_LIBRARY"] = process.env["CHORALE_CUDA_LIBRARY"];
const root = fileURLToPath(new URL("..", import.meta.url));
const src = join(root, "src");
/** Below the project, so that its aliases hold; of this process, so that two test runs do not meet. */
const out = join(root, ".cache/examples", String(process.pid));

/** Rooms of which each public function and method is called by an example. */
const ROOMS = ["chorale/nccl", "chorale/device"];

interface Example {
  /** `src/core/units.ts:12`. */
  readonly where: string;
  readonly file: string;
  readonly line: number;
  readonly code: string;
  /** Why it does not run here. */
  readonly whyNot?: string;
}

/** Extracts the examples of one file's text. */
function examplesOf(file: string, text: string): Example[] {
  return [...text.matchAll(/\/\*\*[\s\S]*?\*\//g)].flatMap((comment) => {
    const firstLine = text.slice(0, comment.index).split("\n").length;
    const lines = comment[0]
      .replace(/\*\/$/, "")
      .split("\n")
      .map((line) => line.replace(/^\s*\/?\*{1,2} ?/, ""));
    return lines.flatMap((line, index): Example[] => {
      if (!line.startsWith("@example")) return [];
      const rest = lines.slice(index + 1);
      const end = rest.findIndex((next) => /^@[a-z]/.test(next));
      const code = [line.slice("@example".length), ...(end < 0 ? rest : rest.slice(0, end))]
        .filter((part) => !part.startsWith("```"))
        .join("\n")
        .trim();
      const at = firstLine + index;
      return [{ where: `${file}:${at}`, file, line: at, code }];
    });
  });
}

/** Extracts the TypeScript blocks of a Markdown file. */
function blocksOf(file: string, text: string): Example[] {
  return [...text.matchAll(/^```ts(?: no-run: (.*))?\n([\s\S]*?)^```$/gm)].map((block) => {
    const line = text.slice(0, block.index).split("\n").length;
    const [, whyNot, code = ""] = block;
    return { where: `${file}:${line}`, file, line, code: code.trim(), ...(whyNot === undefined ? {} : { whyNot }) };
  });
}

/** Makes the example a module: without imports of its own, it gets the names that it uses from its file. */
function moduleOf(example: Example, exported: readonly string[], from = join(root, example.file)): string {
  if (/^import\s/m.test(example.code)) return `${example.code}\nexport {};\n`;
  const used = exported.filter((name) => new RegExp(`(?<![.\\w$"'])${name}(?![\\w$"'])`).test(example.code));
  return `import { ${used.join(", ")} } from ${JSON.stringify(from)};\n${example.code}\nexport {};\n`;
}

const files = readdirSync(src, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && /\.ts$/.test(entry.name) && !/\.test(-d)?\.ts$/.test(entry.name))
  .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/"))
  .sort();
const documents = [
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  ...["docs", "examples", "bench"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".md"))
      .map((name) => `${folder}/${name.split(sep).join("/")}`),
  ),
];
const examples = [
  ...files.flatMap((file) => examplesOf(file, readFileSync(join(root, file), "utf8"))),
  ...documents.flatMap((path) => blocksOf(path, readFileSync(join(root, path), "utf8"))),
];

function pathOf({ file, line }: Example): string {
  return join(out, `${file.replaceAll("/", "__").replace(/\.(ts|md)$/, "")}-${line}.ts`);
}

/** @param from where the compiler finds what the example's file exports; Node, which runs it, has the file itself */
async function textOf(example: Example, from?: string): Promise<string> {
  const isWhole = /^import\s/m.test(example.code);
  return moduleOf(example, isWhole ? [] : Object.keys((await import(join(root, example.file))) as object), from);
}

beforeAll(() => {
  mkdirSync(out, { recursive: true });
});
afterAll(() => {
  rmSync(out, { recursive: true, force: true });
});

describe("examples in docstrings, README.md and the guides", () => {
  it("are found", () => {
    const text = "/**\n * Adds.\n * @example\n * add(1, 2) // 3\n * @throws never\n */\nexport function add() {}";
    const found = examplesOf("src/x.ts", text);
    expect(found).toEqual([{ where: "src/x.ts:3", file: "src/x.ts", line: 3, code: "add(1, 2) // 3" }]);
    expect(moduleOf(found[0]!, ["add", "other"])).toContain("import { add } from");
    expect(examples.length).toBeGreaterThan(5);
    const [whole, part] = blocksOf("x.md", "# X\n```ts\na();\n```\n```ts no-run: wants a network\nb();\n```\n");
    expect(whole).toEqual({ where: "x.md:2", file: "x.md", line: 2, code: "a();" });
    expect(part).toMatchObject({ line: 5, code: "b();", whyNot: "wants a network" });
  });

  it.each(documents)("%s says of each block what it is", (path) => {
    const text = readFileSync(join(root, path), "utf8");
    const fences = [...text.matchAll(/^```([^\n]*)\n([\s\S]*?)^```$/gm)];
    const unknown = fences.filter(([, language = ""]) => !/^(|sh|json|ts|ts no-run: \S.{9,})$/.test(language));
    expect(unknown.map(([, language]) => language)).toEqual([]);
    // TypeScript is called so, or it is neither checked nor run.
    const disguised = fences.filter(
      ([, language, code = ""]) => language === "" && /^(import|export|const) /m.test(code),
    );
    expect(disguised.map(([, , code]) => code)).toEqual([]);
  });

  /** Writes every example as the compiler reads it. */
  const checkedPaths = () =>
    Promise.all(
      examples.map(async (example) => {
        const path = pathOf(example).replace(/\.ts$/, ".check.ts");
        writeFileSync(path, await textOf(example, declarationsOf(example.file).replace(/\.d\.ts$/, ".js")));
        return path;
      }),
    );

  it.skipIf(!isBuilt)(`type-check${unlessBuilt}`, { timeout: 120_000 }, async () => {
    const paths = await checkedPaths();
    const config = join(out, "tsconfig.json");
    const { paths: declarations } = compilerOptions();
    const relaxed = { noUnusedLocals: false, noUnusedParameters: false, rewriteRelativeImportExtensions: false };
    const options = { ...relaxed, rootDir: root, paths: declarations };
    writeFileSync(
      config,
      JSON.stringify({ extends: join(root, "tsconfig.json"), compilerOptions: options, files: paths, include: [] }),
    );
    // The compiler of `npm run typecheck`: a fifth of the time that TypeScript's JavaScript takes.
    const tsc = join(root, "node_modules/@typescript/native/bin/tsc");
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [tsc, "-p", config, "--noEmit", "--pretty", "false"],
      {
        cwd: root,
        encoding: "utf8",
      },
    );
    const said = examples.reduce(
      (text, { where }, index) => text.replaceAll(relative(root, paths[index]!).split(sep).join("/"), where),
      stdout + stderr,
    );
    expect(said).toBe("");
    expect(status).toBe(0);
  });

  const title = `call everything that the nccl and cuda rooms let others call${unlessBuilt}`;
  // With every fourth seed: it takes TypeScript's own API, which is dear.
  const [isTurn] = spread([true, false, false, false], 4);
  it.skipIf(!isBuilt || isTurn !== true)(title, { timeout: 120_000 }, async () => {
    const paths = await checkedPaths();
    const program = ts.createProgram(paths, compilerOptions());
    const called = calledIn(program, paths);
    const all = ROOMS.flatMap((room) => [
      ...publicFunctions(program, entryDeclarations.get(room) ?? "", (file) => file.startsWith(join(root, "dist"))),
    ]);
    // Functions, methods, static ones and inherited ones are among them; private ones are not.
    const names = all.map(([name]) => name);
    expect(names).toEqual(
      expect.arrayContaining(["loadNccl", "MemoryPool.trim", "CudaModule.load", "CudaGraph.close"]),
    );
    expect(names.filter((name) => /#|poisonError|release$/.test(name))).toEqual([]);
    expect(all.filter(([, place]) => !called.has(place)).map(([name]) => name)).toEqual([]);
  });

  const needsGpu = /^(docs\/nccl(-reference)?\.md|src\/runtime\/backends\/(nccl|cuda)\/)/;
  const runnable = examples.filter(({ file, whyNot }) => whyNot === undefined && (hasStandIn || !needsGpu.test(file)));
  const apart = examples.filter(({ whyNot }) => whyNot !== undefined);
  if (apart.length > 0) {
    it.skip.each(apart.map(({ where, whyNot }) => [where, whyNot]))("%s does not run here: %s", () => {});
  }
  // All of them are type-checked in every run.
  it.each(spread(runnable, 4).map((example) => [example.where, example] as const))("%s runs", async (_, example) => {
    const quiet = [vi.spyOn(console, "log"), vi.spyOn(console, "table"), vi.spyOn(process.stdout, "write")];
    for (const spy of quiet) spy.mockImplementation((() => true) as never);
    try {
      const path = pathOf(example);
      writeFileSync(path, await textOf(example));
      await import(path);
    } finally {
      for (const spy of quiet) spy.mockRestore();
    }
  });
});
