import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const script = fileURLToPath(new URL("random-faults.mjs", import.meta.url));
const dist = fileURLToPath(new URL("../../.cache/dev", import.meta.url));

/** The campaign has hundreds of events; here a few show that its script holds. */
describe.skipIf(process.platform !== "linux")("random faults in one world", () => {
  const run = (...words: string[]) => {
    const flags = ["--backend", "threads", ...words, "--dist", dist, "--json"];
    const { stdout, stderr } = spawnSync(process.execPath, [script, ...flags], { encoding: "utf8" });
    const report = JSON.parse(stdout) as {
      table: { kind: string; events: number }[];
      generations: number;
      problems: string[];
    };
    expect(report.problems, stderr).toEqual([]);
    return report;
  };

  it("are told of, mended, and leave nothing, on threads", { timeout: 120_000 }, () => {
    const kinds = "throw,midcall,leave";
    const { table } = run("--events", "3", "--kinds", kinds);
    expect(table.map(({ kind, events }) => `${kind} ${events}`)).toEqual(kinds.split(",").map((k) => `${k} 1`));
  });

  it("take as many generations as it takes ranks to be there in time", { timeout: 240_000 }, () => {
    const { generations } = run("--events", "1", "--kinds", "throw", "--deadline", "1000", "--late-starts", "4");
    expect(generations).toBeGreaterThan(4);
  });
});
