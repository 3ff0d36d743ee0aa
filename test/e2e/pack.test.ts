/**
 * The package as it is published: `npm pack`, unpacked beside its dependencies (linked from here, so that no network is
 * needed), and used as an installed package. Needs the fresh build that `npm test` makes first.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { scratchFolder } from "../helpers/scratch.ts";
import { spread } from "../support/spread.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const isBuilt = process.env["npm_lifecycle_event"] === "test" && existsSync(join(root, "dist/index.js"));

/** The tarball's limit, bytes: the demo model is most of it. */
const MAX_TARBALL_BYTES = 9 * 1024 * 1024;

interface PackReport {
  readonly filename: string;
  readonly size: number;
  readonly files: readonly { readonly path: string }[];
}

describe.skipIf(!isBuilt)(`the tarball${isBuilt ? "" : " (skipped: needs the build of npm test)"}`, () => {
  const folder = scratchFolder("pack");
  const installed = join(folder, "node_modules/chorale");
  const bin = join(installed, "bin/chorale.mjs");
  let report: PackReport;

  beforeAll(async () => {
    const args = ["pack", "--ignore-scripts", "--json", "--pack-destination", folder];
    const { stdout } = await run("npm", args, { cwd: root, maxBuffer: 1 << 26 });
    report = (JSON.parse(stdout) as PackReport[])[0]!;
    mkdirSync(installed, { recursive: true });
    await run("tar", ["-xzf", join(folder, report.filename), "-C", installed, "--strip-components=1"]);
    const { dependencies, optionalDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      dependencies: Record<string, string>;
      optionalDependencies: Record<string, string>;
    };
    // What npm would install beside it. Links resolve to this project's node_modules, where their own dependencies are.
    for (const name of [...Object.keys(dependencies), ...Object.keys(optionalDependencies)]) {
      const target = join(root, "node_modules", name);
      if (!existsSync(target)) continue;
      const link = join(folder, "node_modules", name);
      mkdirSync(join(link, ".."), { recursive: true });
      symlinkSync(target, link, "dir");
    }
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("holds what a user needs, and no more", () => {
    const paths = report.files.map(({ path }) => path);
    for (const needed of [
      "bin/chorale.mjs",
      "dist/index.js",
      "dist/index.d.ts",
      "dist/apps/cli/main.js",
      "README.md",
      "LICENSE",
    ]) {
      expect(paths).toContain(needed);
    }
    expect(paths.filter((path) => /\.test\.|^(src|test|node_modules|\.ci|\.cache)\//.test(path))).toEqual([]);
    expect(report.size).toBeLessThan(MAX_TARBALL_BYTES);
    const { exports } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")) as {
      exports: Record<string, { types: string; default: string } | string>;
    };
    const targets = Object.values(exports).flatMap((target) =>
      typeof target === "string" ? [target] : Object.values(target),
    );
    expect(targets.filter((target) => !existsSync(join(installed, target)))).toEqual([]);
  });

  it("runs its command line", async () => {
    const { version } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")) as { version: string };
    expect((await run(process.execPath, [bin, "--version"])).stdout).toBe(`${version}\n`);
  });

  it("launches a user's TypeScript, which imports the same copy", async () => {
    const script = join(folder, "train.ts");
    writeFileSync(
      script,
      'import { joinWorld, type World } from "chorale";\n' +
        "const world: World = await joinWorld();\n" +
        "const x = Float32Array.of(world.rank + 1);\n" +
        "await world.comm.allReduce(x);\n" +
        'console.log("sum", x[0], "of", world.size);\n' +
        "await world.close();\n",
    );
    const { stdout } = await run(process.execPath, [bin, "launch", "-n", "3", script], { cwd: folder });
    expect(stdout.trimEnd().split("\n").sort()).toEqual([0, 1, 2].map((rank) => `[${rank}] sum 6 of 3`));
  });

  it("works as a library without a launcher", async () => {
    const script = join(folder, "library.mjs");
    writeFileSync(
      script,
      'import { launch } from "chorale";\n' +
        "console.log(JSON.stringify(await launch({ ranks: 2, run: (world) => world.rank * 2 })));\n",
    );
    expect((await run(process.execPath, [script], { cwd: folder })).stdout).toBe("[0,2]\n");
  });

  it("brings a model, and the demo of it", async () => {
    expect(readdirSync(join(installed, "examples/sharded-llama/model"))).toContain("config.json");
    expect((await run(process.execPath, [bin, "demo", "--help"])).stdout).toContain("chorale demo");
  });

  // By turns with the demo on devices (src/apps/bench/demo-devices.test.ts).
  const isDue = spread(["devices", "installed"], 2).includes("installed");
  it.runIf(isDue)("runs the demo, with the model that it brings", async () => {
    // Of few tokens and small messages; the command, with all of them: src/apps/bench/demo.test.ts.
    const script = join(folder, "demo.mjs");
    writeFileSync(
      script,
      'import { runDemo } from "chorale/bench";\n' +
        "console.log(JSON.stringify(await runDemo({ maxNewTokens: 3, maxSweepBytes: 4096 })));\n",
    );
    const { stdout } = await run(process.execPath, [script], { cwd: folder, maxBuffer: 1 << 26 });
    expect(JSON.parse(stdout)).toMatchObject({ tokensIdentical: true, comparisons: { shardedEqualsReference: true } });
  });
});
