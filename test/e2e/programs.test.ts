/** Everyday programs, as their authors write and start them: in a folder of their own, beside an installed chorale. */
import { execFile, fork } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transformSync } from "esbuild";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { CLI_PROCESS } from "../helpers/cli.ts";
import { spread } from "../support/spread.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = realpathSync(mkdtempSync(join(tmpdir(), "chorale-programs-")));
const program = (name: string) => join(folder, name);

beforeAll(() => {
  cpSync(join(root, "test/e2e/programs"), folder, { recursive: true });
  const installed = join(folder, "node_modules/chorale");
  mkdirSync(installed, { recursive: true });
  copyFileSync(join(root, "package.json"), join(installed, "package.json"));
  symlinkSync(join(root, ".cache/dev"), join(installed, "dist"), "dir");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Run {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `node ARGS` in the folder of the programs. */
function node(...args: readonly string[]): Promise<Run> {
  const env = { ...process.env, TMPDIR: folder, NODE_OPTIONS: "" };
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd: folder, env }, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), out, err });
    });
  });
}

const chorale = (...args: readonly string[]) => node(...CLI_PROCESS, ...args);
/** A zombie that nobody waits for counts as ended. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? process.platform !== "linux" : false;
  }
}
const sorted = (text: string) => text.trimEnd().split("\n").toSorted();

describe("a program that calls launch()", () => {
  it("may give a method, a getter's value or a static method as run", async () => {
    expect(await node(program("method.mjs"))).toEqual({ code: 0, out: "30 30 30\n2 2\n0 1\n", err: "" });
  });

  it("may be compiled by tsx, which keeps the names of inner functions", async () => {
    const text = transformSync(readFileSync(program("inner-functions.ts"), "utf8"), {
      loader: "ts",
      format: "esm",
      target: "node20",
      keepNames: true,
    }).code;
    expect(text).toContain("__name(");
    writeFileSync(program("inner-functions.mjs"), text);
    expect(await node(program("inner-functions.mjs"))).toEqual({ code: 0, out: "4 9\n", err: "" });
  });

  it("runs under node --watch, which is told the files of the ranks and none of chorale's temporary ones", async () => {
    writeFileSync(program("watched.ts"), "export default async () => 1;");
    writeFileSync(
      program("watching.mjs"),
      `import { launch } from "chorale";
      process.send(await launch({ ranks: 2, module: ${JSON.stringify(program("watched.ts"))} }));
      process.send(await launch({ ranks: 2, run: async () => 2 }));`,
    );
    // What `node --watch` starts the program with: the variable, and a channel on which the files come.
    const env = { ...process.env, TMPDIR: folder, NODE_OPTIONS: "", WATCH_REPORT_DEPENDENCIES: "1" };
    const child = fork(program("watching.mjs"), {
      cwd: folder,
      env,
      execArgv: [],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    const results: unknown[] = [];
    const files: string[] = [];
    child.on("message", (message: object) => {
      if (Array.isArray(message)) results.push(message);
      else
        files.push(
          ...(Object.values(message) as string[][]).flat().map((file) => String(file).replace(/^file:\/\//, "")),
        );
    });
    expect(await new Promise((resolve) => child.on("close", resolve))).toBe(0);
    expect(results).toEqual([
      [1, 1],
      [2, 2],
    ]);
    expect(files).toContain(program("watched.ts"));
    expect(files.filter((file) => file.includes("chorale-modules-"))).toEqual([]);
  });

  it("is told the name that the sent function cannot see", async () => {
    const { code, err } = await node(program("closure.mjs"));
    expect(code).toBe(1);
    expect(err).toContain("learningRate is not defined: the function was sent to its rank as text");
    expect(err).toContain("sees nothing of its surroundings, learningRate among them; pass values as `data`");
  });

  it.each(spread(["esm", "cjs"] as const, 2))("may be bundled (%s) where chorale is installed", async (format) => {
    const source = { contents: bundled, resolveDir: folder, sourcefile: "app.mjs" };
    const outfile = program(`bundle/app.${format === "esm" ? "mjs" : "cjs"}`);
    const external = ["koffi"];
    await build({ stdin: source, bundle: true, platform: "node", format, outfile, external, logLevel: "silent" });
    expect(await node(outfile)).toEqual({ code: 0, out: "0 1\n", err: "" });
    // Elsewhere the files of the ranks are not to be had.
    const alone = mkdtempSync(join(tmpdir(), "chorale-alone-"));
    try {
      const copy = join(alone, format === "esm" ? "app.mjs" : "app.cjs");
      copyFileSync(outfile, copy);
      const { code, err } = await node(copy);
      expect(code).toBe(1);
      expect(err).toContain(`chorale was bundled into ${realpathSync(copy)}, without the files of its ranks`);
      expect(err).toContain("esbuild --external:chorale");
    } finally {
      rmSync(alone, { recursive: true });
    }
  });
});

const bundled = `
  import { launch } from "chorale";
  launch({ ranks: 2, run: async (world) => world.rank }).then(
    (ranks) => console.log(ranks.join(" ")),
    (error) => { console.error(error.message); process.exitCode = 1; },
  );
`;

describe("chorale launch", () => {
  it("runs a CommonJS script that joins the world", async () => {
    const { code, out, err } = await chorale("launch", "-n", "2", program("script.cjs"));
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(sorted(out)).toEqual([0, 1].map((rank) => `[${rank}] sum 3 of 2, found itself: true`));
  });

  it("runs a program that reads and prints values of small floats", async () => {
    const { code, out, err } = await chorale("launch", "-n", "2", program("values.ts"));
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(sorted(out)).toEqual(
      [0, 1].flatMap((rank) => [
        `[${rank}]  [3.5, 4.5]]`,
        `[${rank}] Tensor bf16 [2, 2] [[1.5, 2.5],`,
        `[${rank}] largest 4.5, last 4.5`,
      ]),
    );
  });

  it.skipIf(process.platform === "win32")("ends what ranks that are threads have started when one fails", async () => {
    const { code, out, err } = await chorale("launch", "-n", "2", program("children.mjs"));
    expect(code).toBe(1);
    expect(err).toContain("rank 0 failed first:");
    const pids = [...out.matchAll(/child (\d+)/g)].map((match) => Number(match[1]));
    expect(pids).toHaveLength(4);
    const [detached = 0, ...others] = pids.toSorted(
      (a, b) => Number(out.includes(`detached child ${b}`)) - Number(out.includes(`detached child ${a}`)),
    );
    await vi.waitFor(() => expect(others.filter(isAlive)).toEqual([]), { timeout: 30_000 });
    expect(isAlive(detached)).toBe(true);
    process.kill(detached, "SIGKILL");
  });

  it("runs the function that TypeScript for CommonJS exports", async () => {
    // Not a file: this project's own TypeScript has no CommonJS.
    writeFileSync(program("exported.cts"), EXPORTED);
    const { code, out, err } = await chorale("launch", "-n", "3", program("exported.cts"));
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(sorted(out)).toEqual([0, 1, 2].map((rank) => `[${rank}] max 3`));
  });

  const exported = [
    ["module.exports = async (world) => console.log(world.size);", "[0] 1\n", /^$/],
    ["exports.default = async (world) => console.log(world.size);", "[0] 1\n", /^$/],
    ['console.log("top level");', "[0] top level\n", /^chorale launch: rank 0 ended without joining the world: .*\n$/],
  ] as const;
  it.each(spread(exported, 2))("takes what a CommonJS file exports: %s", async (text, out, err) => {
    writeFileSync(program("exports.cjs"), text);
    const ended = await chorale("launch", "-n", "1", program("exports.cjs"));
    expect(ended).toEqual({ code: 0, out, err: expect.stringMatching(err) });
  });
});

const EXPORTED = `import chorale = require("chorale");

export = async (world: chorale.World): Promise<void> => {
  const x = world.tensor("f32", [2]);
  x.data.fill(world.rank);
  await world.comm.allReduce(x);
  console.log("max", x.data.reduce((a, b) => Math.max(a, b)));
};
`;
