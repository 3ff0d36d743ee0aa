import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { spread } from "../../test/support/spread.ts";
import { DEMO_MODEL, GOLDEN } from "./testing/demo.ts";

/** Eight ranks on two busy cores take their time. */
const PATIENT = { timeout: 120_000 };

const cli = new URL("../../.cache/dev/apps/cli/main.js", import.meta.url);
const script = fileURLToPath(new URL("./main.ts", import.meta.url));
const program = `import { main } from ${JSON.stringify(cli.href)}; process.exitCode = await main(process.argv.slice(1));`;

/** `chorale launch` in a process of its own. */
function launch(ranks: number, ...words: string[]) {
  const args = ["--input-type=module", "-e", program, "--", "launch", "-n", String(ranks), script, "--", ...words];
  return spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
}

describe("the command line", PATIENT, () => {
  const golden = GOLDEN[0]!;
  const bytes = ["--prompt-bytes", golden.prompt.join(",")];

  it("prints one document, from one rank, and nothing else on stdout", () => {
    const { stdout, status } = launch(4, "--model", DEMO_MODEL, "--tp", "2", "--pp", "2", ...bytes, "--json");
    const document = JSON.parse(stdout);
    expect(document.tokens).toEqual(golden.greedy);
    expect(document.text).toBe(Buffer.from(golden.greedy as number[]).toString());
    expect(document.lastLogits).toHaveLength(256);
    expect(document.tokensPerSecond).toBeGreaterThan(0);
    expect(document.mesh).toEqual({ dp: 1, pp: 2, tp: 2 });
    expect(document.results).toBeUndefined();
    expect(status).toBe(0);
  });

  it("deals several prompts to replicas, and prints all results in their order", () => {
    const words = ["--model", DEMO_MODEL, "--dp", ...bytes, "--prompt", "JULIET:", "--max-new-tokens", "8", "--json"];
    const { results, tokens } = JSON.parse(launch(2, ...words).stdout);
    expect(results).toHaveLength(2);
    expect(results[0].tokens).toEqual(golden.greedy.slice(0, 8));
    expect(tokens).toEqual(results[0].tokens);
    expect(launch(1, "--model", DEMO_MODEL, "--prompt", "JULIET:", "--max-new-tokens", "8").stdout).toContain(
      results[1].text.split("\n")[0],
    );
  });

  const refused = [
    [3, ["--tp", "3"], /8 heads % tp 3 = 2, not 0/],
    [2, ["--tp", "two"], /--tp is "two"/],
  ] as const;
  it.each(spread(refused, 2))("fails on %i ranks with %j", (ranks, words, message) => {
    const { stdout, stderr, status } = launch(ranks, "--model", DEMO_MODEL, ...words, ...bytes, "--json");
    expect(stderr).toMatch(message);
    expect(stdout).toBe("");
    expect(status).not.toBe(0);
  });
});
