/** The commands of README.md, in their order, and the program. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { launch } from "chorale";
import { expect, it } from "vitest";

const cli = new URL("../../.cache/dev/apps/cli/main.js", import.meta.url);
const folder = fileURLToPath(new URL(".", import.meta.url));
const program = `import { main } from ${JSON.stringify(cli.href)}; process.exitCode = await main(process.argv.slice(1));`;

/** Runs a command of the README in this folder. */
function chorale(words: readonly string[]) {
  const args = ["--input-type=module", "-e", program, "--", ...words];
  return spawnSync(process.execPath, args, { cwd: folder, encoding: "utf8", timeout: 60_000 });
}

const readme = readFileSync(`${folder}README.md`, "utf8");
const commands = [...readme.matchAll(/^chorale (\S.*?)(?: +#.*)?$/gm)].map(([, command = ""]) => command.trim());

/** What each command prints. */
const EXPECTED: Readonly<Record<string, RegExp>> = {
  check: /^ring\.ts: right$/m,
  sim: /# ring\.ts: ring, 8 ranks/,
  launch: /^\[0\] sums 2, 2, 2; \{"all_reduce my-ring":1,"all_reduce two-shot-kernel":1\}$/m,
  bench: /# Wrong elements : 0 OK/,
};

it("has a command for each step", () => {
  expect(commands.map((command) => command.split(" ")[0])).toEqual(["check", "sim", "launch", "bench", "tune"]);
});

it.each(commands.filter((command) => !command.startsWith("tune")))("chorale %s", { timeout: 60_000 }, (command) => {
  const words = command.split(" ");
  const few = words[0] === "bench" ? ["--iterations", "10", "--warmup", "5", "--repeats", "2", "-e", "4K"] : [];
  const { stdout, stderr, status } = chorale([...words, ...few]);
  expect(status, stderr).toBe(0);
  expect(stdout).toMatch(EXPECTED[words[0] ?? ""] as RegExp);
});

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
