import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

/** The campaign itself runs on hosts with GPUs; here a short one over threads shows that its script holds. */
it("comes back from a throw, a silence and a mismatch in one world", { timeout: 60_000 }, () => {
  const script = fileURLToPath(new URL("faults.mjs", import.meta.url));
  const flags = ["--backend", "threads", "--ranks", "2", "--kills", "1", "--each", "1", "--deadline", "500"];
  const only = ["--only", "throw,never-calls,mismatch", "--big", "1000", "--json"];
  const { stdout, stderr, status } = spawnSync(process.execPath, [script, ...flags, ...only], { encoding: "utf8" });
  expect(stderr).toBe("");
  const { rows, problems } = JSON.parse(stdout) as { rows: { how: string; codes: string[] }[]; problems: string[] };
  expect(problems).toEqual([]);
  expect(rows.map(({ how, codes }) => [how, codes])).toEqual([
    ["throw", ["RANK_FAILED"]],
    ["never-calls", ["TIMEOUT"]],
    ["mismatch", ["MISMATCH"]],
  ]);
  expect(status).toBe(0);
});
