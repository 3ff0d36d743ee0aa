import { describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import {
  type DemoReport,
  makeStyle,
  showInventory,
  showPlans,
  showRanks,
  showSpeed,
  showSweepRow,
  showText,
} from "./index.ts";

describe("chorale demo", { timeout: 120_000 }, () => {
  let report: DemoReport | undefined;

  it("prints one document with --json, whose tokens are those of one rank and of the reference", async () => {
    const { code, out } = await runCli("demo", "--json");
    const found = JSON.parse(out) as DemoReport;
    report = found;
    expect(code).toBe(0);
    expect(found.tokensIdentical).toBe(true);
    expect(found.comparisons).toMatchObject({ shardedEqualsSingle: true, shardedEqualsReference: true });
    expect(found.comparisons.maxLogitDifference).toBeLessThan(1e-3);
    expect(found.runs.sharded).toMatchObject({ ranks: 4, mesh: { dp: 1, pp: 2, tp: 2 } });
    expect(found.runs.sharded.tokens).toHaveLength(96);
    expect(found.runs.single.tokensPerSecond).toBeGreaterThan(0);
    expect(found.plan.mesh.axes).toMatchObject({ dp: 1, pp: 2, tp: 2 });
    expect(found.plan.ranks).toHaveLength(found.runs.sharded.ranks);
    expect(found.plans.large).toMatchObject({ model: "llama-3.1-70b", hardware: "hgx-h100-8" });
    // Embeddings and head; per layer q, o, k, v, gate, up, down and two norms; the last norm.
    const layer = 2 * 192 * 192 + 2 * 192 * 96 + 3 * 192 * 512 + 2 * 192;
    expect(found.plans.here.numParameters).toBe(2 * 256 * 192 + 6 * layer + 192);
    expect(found.inventory.devices.some((device) => device.family === "cpu")).toBe(true);
    expect(found.sweep.rows.map((row) => row.wrong)).toEqual(found.sweep.rows.map(() => 0));
    expect(found.sweep.rows.at(-1)?.sizeBytes).toBe(64 * 2 ** 20);
  });

  it("draws what was found for people", () => {
    expect(report).toBeDefined();
    if (report === undefined) return;
    const style = makeStyle(false);
    const { plans } = report;
    const text = [
      ...showInventory(style, report.inventory),
      ...showPlans(style, [
        ["here", plans.here],
        ["large", plans.large],
        ["constrained", plans.constrained],
      ]),
      ...showRanks(style, report),
      ...showText(style, report.prompt, report),
      ...showSpeed(style, report.runs, report.cores),
      ...report.sweep.rows.map((row) => showSweepRow(style, row)),
    ].join("\n");
    for (const part of [
      "llama-3.1-70b",
      "dp 1 x pp 2 x tp 2",
      "ROMEO",
      "✓ 96 tokens of 4 ranks",
      "✓ and those",
      "64 MiB",
    ]) {
      expect(text).toContain(part);
    }
    expect(text).not.toContain("\u001b[");
    expect(Math.max(...text.split("\n").map((line) => line.length))).toBeLessThan(130);
    const wrong = { ...report, comparisons: { ...report.comparisons, shardedEqualsSingle: false } };
    expect(showText(style, report.prompt, wrong).join("\n")).toContain("✗ 96 tokens");
  });
});
