/** The commands of README.md, in their order, and the program. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "chorale";
import { afterAll, expect, it } from "vitest";

const machine = mkdtempSync(join(tmpdir(), "chorale-example-"));
afterAll(() => rmSync(machine, { recursive: true }));
// What is tuned goes there, and nothing is there before.
const { CHORALE_CHOICES: _, ...others } = process.env;
const env = { ...others, XDG_DATA_HOME: machine };
const cli = new URL("../../.cache/dev/apps/cli/main.js", import.meta.url);
const folder = fileURLToPath(new URL(".", import.meta.url));
const program = `import { main } from ${JSON.stringify(cli.href)}; process.exitCode = await main(process.argv.slice(1));`;

/** Runs a command of the README in this folder. */
function chorale(words: readonly string[]) {
  const args = ["--input-type=module", "-e", program, "--", ...words];
  return spawnSync(process.execPath, args, { cwd: folder, encoding: "utf8", timeout: 110_000, env });
}

const readme = readFileSync(`${folder}README.md`, "utf8");
const commands = [...readme.matchAll(/^chorale (\S.*?)(?: +#.*)?$/gm)].map(([, command = ""]) => command.trim());

/** What each command prints, by its name, or by its name and file. */
const EXPECTED: Readonly<Record<string, RegExp>> = {
  check: /^ring\.ts: right$/m,
  sim: /# ring\.ts: ring, 8 ranks/,
  "launch choose.ts": /^\[0\] sums 2, 2, 2; \{"all_reduce my-ring":1,"all_reduce two-shot-kernel":1\}$/m,
  "launch tuned.ts": /^\[0\] sum 3, (not tuned|run (as-written|ring-x[24]-h[0-9a-f]{8}))$/m,
  "tune ring.ts": /^# chorale tune ring \([0-9a-f]{16}\): all_reduce, 2 ranks, f32[\s\S]*# stored in /,
  bench: /# Wrong elements : 0 OK/,
};

it("has a command for each step", () => {
  expect(commands.map((command) => command.split(" ")[0])).toEqual([
    "check",
    "sim",
    "launch",
    "bench",
    "tune",
    "tune",
    "launch",
  ]);
});

/** What makes a command quick. */
const FEW: Readonly<Record<string, readonly string[]>> = {
  bench: ["--iterations", "10", "--warmup", "5", "--repeats", "2", "-e", "4K"],
  tune: ["-b", "4K", "-e", "4K", "--budget", "5"],
};

it.each(commands.filter((command) => !command.startsWith("tune all_reduce")))(
  "chorale %s",
  { timeout: 120_000 },
  (command) => {
    const words = command.split(" ");
    const [name = ""] = words;
    const { stdout, stderr, status } = chorale([...words, ...(FEW[name] ?? [])]);
    expect(status, stderr).toBe(0);
    const file = words.find((word) => word.endsWith(".ts"));
    expect(stdout).toMatch((EXPECTED[name] ?? EXPECTED[`${name} ${file}`]) as RegExp);
  },
);

it("serves the sizes that a table gives it", async () => {
  const table = {
    backend: "threads",
    collective: "all_reduce",
    ranks: [2, 2],
    rows: [
      { fromBytes: 0, use: "two-shot-kernel" },
      { fromBytes: 16_384, use: "my-ring" },
    ],
  } as const;
  const counts = await launch<Record<string, number>>({
    ranks: 2,
    module: `${folder}choose.ts`,
    backendOptions: { choices: { schemaVersion: 1, source: "this test", date: "2026-11-22", tables: [table] } },
    onOutput: () => {},
  });
  expect(counts).toEqual([{ "all_reduce my-ring": 2 }, { "all_reduce my-ring": 2 }]);
});
