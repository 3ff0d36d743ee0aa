import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { World } from "chorale";
import { describe, expect, it } from "vitest";
import main from "./main.ts";

const cli = new URL("../../.cache/dev/apps/cli/main.js", import.meta.url);
const script = fileURLToPath(new URL("./main.ts", import.meta.url));
const program = `import { main } from ${JSON.stringify(cli.href)}; process.exitCode = await main(process.argv.slice(1));`;

function run(options: readonly string[], args: readonly string[]) {
  const argv = ["--input-type=module", "-e", program, "--", "launch", "-n", "3", ...options, script, "--", ...args];
  const { stdout, stderr, status } = spawnSync(process.execPath, argv, { encoding: "utf8", timeout: 60_000 });
  return { line: /^\[0\] (y = .*)$/m.exec(stdout)?.[1], stderr, status };
}

describe("training that outlives its ranks", () => {
  const whole = run([], []).line;

  it("fits the line", () => {
    expect(whole).toMatch(/^y = (2.99|3.00)\d+ x \+ -(0.99|1.00)\d+ after 200 steps, on 3 ranks of generation 1$/);
  });

  it("gives the same after two ranks were killed and started again", () => {
    const { line, stderr, status } = run(["--restarts", "2"], ["--kill", "1:20", "--kill", "2:50"]);
    expect(line).toBe(whole?.replace("generation 1", "generation 3"));
    expect(stderr).toContain("chorale launch: rank 1 failed (generation 1): killed before step 20, as was asked for");
    expect(stderr).toContain("chorale launch: generation 3 has 3 ranks; started again: 2");
    expect(status).toBe(0);
  });

  it("goes on without the dead when it shrinks", () => {
    const { line, status } = run(["--on-failure", "shrink"], ["--kill", "0:20"]);
    // Two ranks add in another order than three.
    expect(line?.slice(0, 10)).toBe(whole?.slice(0, 10));
    expect(line).toContain("on 2 ranks of generation 2");
    expect(status).toBe(0);
  });

  it.each([
    ["--kill", "1:x", /--kill is "1:x"; expected RANK:STEP, with a rank from 0 to 2 and a step from 0 to 199/],
    ["--kill", "3:20", /--kill is "3:20"; expected RANK:STEP/],
    ["--steps", "many", /--steps is "many"; expected an integer of 1 or more/],
  ])("refuses %s %s, which would do nothing", async (option, value, words) => {
    await expect(main({ args: [option, value], size: 3 } as unknown as World)).rejects.toThrow(words);
  });

  it("ends when no restart is left", () => {
    const { stderr, status } = run(["--restarts", "1"], ["--kill", "1:20", "--kill", "2:50"]);
    expect(stderr).toContain("chorale launch: no further rebuild: the one rebuild is used up");
    expect(stderr).toContain("rank 2 failed first:\nError: killed before step 50");
    expect(status).toBe(1);
  });
});
