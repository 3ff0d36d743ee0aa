/** A new backend is one folder and one line: made in a copy of the built package, which then runs the conformance suite on it. */
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { transform } from "esbuild";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = join(root, "test/backends/echo");
const files = readdirSync(folder);
/** The line of `world/backend-table.ts`. */
const LINE = '  echo: async () => (await import("../backends/echo/internal.js")).ECHO_KIND,\n';
/** Within the repository, where its packages are found. */
let copy = "";

const run = (...argv: string[]) =>
  promisify(execFile)(process.execPath, argv, { cwd: copy, encoding: "utf8" }).then(
    ({ stdout, stderr }) => ({ code: 0, text: stdout + stderr }),
    ({ code, stdout, stderr }) => ({ code: code as number, text: `${stdout}${stderr}` }),
  );

beforeAll(async () => {
  mkdirSync(join(root, ".cache"), { recursive: true });
  copy = mkdtempSync(join(root, ".cache/echo-"));
  cpSync(join(root, "package.json"), join(copy, "package.json"));
  cpSync(join(root, ".cache/dev"), join(copy, "dist"), { recursive: true });
  const target = join(copy, "dist/runtime/backends/echo");
  mkdirSync(target);
  for (const file of files) {
    const text = readFileSync(join(folder, file), "utf8").replaceAll("../../../src/runtime/", "../../");
    const { code } = await transform(text.replaceAll("../../../src/", "../../../"), { loader: "ts", format: "esm" });
    writeFileSync(
      join(target, file.replace(".ts", ".js")),
      code.replace(/(from "|import\(")(\.[^"]+)\.ts"/g, '$1$2.js"'),
    );
  }
  // The table is part of what every rank loads.
  const table = join(copy, "dist/runtime/shared/rank.js");
  const before = readFileSync(table, "utf8");
  writeFileSync(table, before.replace(/(const TABLE = \{\n)/, `$1${LINE}`));
  expect(readFileSync(table, "utf8").length).toBe(before.length + LINE.length);
}, 60_000);
afterAll(() => rmSync(copy, { recursive: true, force: true }));

describe("a new backend", () => {
  it("is one folder of at most 150 lines", () => {
    const lines = files.map((file) => readFileSync(join(folder, file), "utf8").split("\n").length - 1);
    expect(lines.reduce((a, b) => a + b, 0)).toBeLessThanOrEqual(150);
  });

  it("passes the conformance cases that its capabilities claim", { timeout: 120_000 }, async () => {
    const { code, text } = await run(
      "dist/apps/conformance/conformance-command.js",
      "--backend",
      "echo",
      "--ranks",
      "1",
      "--seed",
      "7",
    );
    expect(text).toMatch(/\b0 failed/);
    expect(Number(/(\d+) passed/.exec(text)?.[1])).toBeGreaterThan(60);
    expect(code).toBe(0);
  });

  it("is launched, joined, benched and refused by its own words", { timeout: 60_000 }, async () => {
    writeFileSync(
      join(copy, "script.mjs"),
      `import { joinWorld } from "chorale";
const world = await joinWorld();
const { data } = await world.comm.allReduce(new Float32Array([1, 2]));
console.log(world.backend, world.size, ...data);
await world.close();`,
    );
    const cli = join(copy, "cli.mjs");
    writeFileSync(
      cli,
      'process.exitCode = await (await import("./dist/apps/cli/main.js")).main(process.argv.slice(2));',
    );
    expect(await run(cli, "launch", "-n", "1", "--backend", "echo", "script.mjs")).toEqual({
      code: 0,
      text: "[0] echo 1 1 2\n",
    });
    const two = await run(cli, "launch", "-n", "2", "--backend", "echo", "script.mjs");
    expect(two).toMatchObject({
      code: 2,
      text: expect.stringContaining("an integer from 1 to 1 with the echo backend"),
    });
    const wrong = await run(cli, "launch", "-n", "1", "--backend", "echo", "--backend-option", "x=1", "script.mjs");
    expect(wrong).toMatchObject({ code: 2, text: expect.stringContaining("timeoutMs, which the echo backend knows") });
    const bench = await run(
      cli,
      "bench",
      "all_reduce",
      "--backend",
      "echo",
      "-n",
      "1",
      "-e",
      "4K",
      "--check",
      "--json",
    );
    expect(JSON.parse(bench.text)).toMatchObject({ rows: [{ backend: "echo", ranks: 1, wrong: 0 }, {}] });
  });
});
