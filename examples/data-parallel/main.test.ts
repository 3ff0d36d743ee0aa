import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const cli = new URL("../../.cache/dev/apps/cli/main.js", import.meta.url);
const script = fileURLToPath(new URL("./main.ts", import.meta.url));
const program = `import { main } from ${JSON.stringify(cli.href)}; process.exitCode = await main(process.argv.slice(1));`;

it("trains from the command line, and says how far from one rank's losses it is", () => {
  const args = ["--input-type=module", "-e", program, "--", "launch", "-n", "3", script, "--", "--steps", "20"];
  const { stdout, status } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
  const [, difference] = /2 all-reduces a step on 3 ranks; losses differ from one rank's by at most (\S+)/.exec(
    stdout,
  )!;
  expect(Number(difference)).toBeLessThan(1e-5);
  expect(status).toBe(0);
});
