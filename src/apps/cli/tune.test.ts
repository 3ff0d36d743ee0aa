import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";

const MEASURED = fileURLToPath(new URL("../../../test/fixtures/simulator/h200-4-2026-11-20.json", import.meta.url));
let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-tune-"));
  writeFileSync(
    join(folder, "program.mjs"),
    `import { directAllGather } from "chorale/algorithms";\nexport default () => directAllGather({ numRanks: 4, instances: 32 });\n`,
  );
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("chorale tune --fit", () => {
  const file = () => join(folder, "constants.json");
  const fit = [
    "tune",
    "all_gather",
    "--fit",
    MEASURED,
    "--topology",
    "hgx-h200-8",
    "--only",
    "storeEfficiency,fenceUs",
  ];

  it("prints each constant with its uncertainty and source, the error before and after, and writes them", async () => {
    const { code, out } = await runCli(...fit, "-o", file());
    expect(code).toBe(0);
    expect(out).toMatch(/^storeEfficiency +0\.69 +0\.6\d+ +\d\.\d % +these measurements$/m);
    expect(out).toMatch(/^fenceUs +0\.85 +\d/m);
    expect(out).toMatch(/before: median \d\.\d % off/);
    expect(out).toMatch(/after: median \d\.\d % off/);
    expect(out).toMatch(/10 rows name no plan of the library and were not used/);
  });
  it("writes what `sim --params` takes", async () => {
    const { fenceUs } = JSON.parse(readFileSync(file(), "utf8")) as { fenceUs: number };
    expect(fenceUs).not.toBe(0.85);
    const sim = ["sim", join(folder, "program.mjs"), "--topology", "hgx-h200-8", "-b", "1M", "-e", "1M", "--json"];
    const plain = JSON.parse((await runCli(...sim)).out) as { rows: { timeUs: number }[]; parameters: string };
    const fitted = JSON.parse((await runCli(...sim, "--params", file())).out) as typeof plain;
    expect([plain.parameters, fitted.parameters]).toEqual(["h200", "h200-fitted"]);
    expect(fitted.rows[0]!.timeUs).not.toBe(plain.rows[0]!.timeUs);
  });
  it("fits NCCL's model to NCCL's rows", { timeout: 600_000 }, async () => {
    // Each row is simulated in every step, and a plan's take a hundred times what NCCL's do: all of these, and some of those.
    const measured = JSON.parse(readFileSync(MEASURED, "utf8")) as { rows: { plan?: string }[] };
    const rows = measured.rows.filter(({ plan }, i) => plan === undefined || i % 12 === 0);
    writeFileSync(join(folder, "few.json"), JSON.stringify({ ...measured, rows }));
    const changed: Readonly<Record<string, string>> = {
      all_gather: "all_reduce",
      [MEASURED]: join(folder, "few.json"),
    };
    const { code, out } = await runCli(...fit.map((arg) => changed[arg] ?? arg), "--json");
    expect(code).toBe(0);
    const { nccl, fit: found } = JSON.parse(out) as {
      nccl: { after: number; numRows: number };
      fit: { rows: unknown[] };
    };
    expect(nccl.numRows).toBe(10);
    expect(nccl.after).toBeGreaterThan(180);
    expect(found.rows.length).toBeGreaterThan(5);
  });
  it("refuses what it cannot use, and says what it can", async () => {
    const refused = async (...argv: string[]) => {
      const { code, err } = await runCli("tune", ...argv);
      expect(code, err).toBe(2);
      return err;
    };
    expect(await refused("--topology", "hgx-h200-8")).toMatch(
      /an operation, and --backend threads, cuda or tcp; a program, and .*--fit <measurements>/,
    );
    expect(await refused("all_reduce")).toMatch(/what to tune is all_reduce without --backend; expected an operation/);
    expect(await refused("--show", "--reset")).toMatch(/--show is given with --reset; expected one of the two/);
    expect(await refused("--fit", MEASURED)).toMatch(/--topology is not given/);
    expect(await refused("--fit", "nothing.json", "--topology", "hgx-h200-8")).toMatch(/nothing.json: does not exist/);
    expect(await refused("--fit", MEASURED, "--topology", "hgx-h200-8", "--only", "speed")).toMatch(/launchUs/);
    expect(await refused("broadcast", "--fit", MEASURED, "--topology", "hgx-h200-8")).toMatch(/all_reduce, all_gather/);
    writeFileSync(join(folder, "none.json"), `{"rows": [{"op": "all_reduce", "sizeBytes": 4, "timeUs": 1}]}`);
    expect(await refused("--fit", join(folder, "none.json"), "--topology", "hgx-h200-8")).toMatch(/rows with a `plan`/);
    writeFileSync(join(folder, "none.json"), "{");
    expect(await refused("--fit", join(folder, "none.json"), "--topology", "hgx-h200-8")).toMatch(/is not valid JSON/);
  });
});
