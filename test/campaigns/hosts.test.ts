import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const script = fileURLToPath(new URL("hosts.mjs", import.meta.url));
const main = fileURLToPath(new URL("../../.cache/dev/apps/cli/main.js", import.meta.url));
const isPermitted = spawnSync("ip", ["netns", "add", `cho${process.pid}-try`]).status === 0;
if (isPermitted) spawnSync("ip", ["netns", "del", `cho${process.pid}-try`]);

/** The campaign itself takes minutes; here a short one shows that its script holds. */
describe.skipIf(!isPermitted)("the campaign of several hosts (needs network namespaces)", () => {
  it("finds every survivor told of a killed launcher and of a cut link", { timeout: 120_000 }, () => {
    const flags = ["--rounds", "2", "--seed", "5", "--kinds", "kill-launcher,cut-link", "--ranks", "1", "--json"];
    if (!existsSync("/dev/net/tun")) flags.push("--net", "bridge");
    const { stdout, stderr } = spawnSync(process.execPath, [script, "--main", main, ...flags], { encoding: "utf8" });
    const report = JSON.parse(stdout) as { table: { kind: string; rounds: number }[]; faults: string[] };
    expect(report.faults, stderr).toEqual([]);
    expect(report.table.map(({ kind, rounds }) => [kind, rounds])).toEqual([
      ["kill-launcher", 1],
      ["cut-link", 1],
    ]);
  });
});
