import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const script = fileURLToPath(new URL("many-ranks.mjs", import.meta.url));
const main = fileURLToPath(new URL("../../.cache/dev/apps/cli/main.js", import.meta.url));

/** The campaign has 64 ranks; here a few show that its script holds. */
describe.skipIf(process.platform !== "linux")("many ranks on pretended hosts", () => {
  it("form a world, run every collective right, and leave nothing", { timeout: 120_000 }, () => {
    const flags = ["--hosts", "2", "--ranks", "2", "--limit", "60", "--main", main, "--json"];
    const { stdout, stderr, status } = spawnSync(process.execPath, [script, ...flags], { encoding: "utf8" });
    const report = JSON.parse(stdout) as { calls: number; problems: string[] };
    expect(report.problems, stderr).toEqual([]);
    expect(report.calls).toBeGreaterThanOrEqual(34);
    expect(status).toBe(0);
  });
});
