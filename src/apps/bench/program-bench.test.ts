/** `chorale bench` of programs and of named algorithms, and the share of the memory roofline. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { OPERATION_NAMES } from "../../collectives/index.ts";
import { type BenchRow, memoryTraffic, type ProgramRow, programFooter, programHeader, programRow } from "./index.ts";

const RING = fileURLToPath(new URL("../../../examples/write-a-collective/ring.ts", import.meta.url));
let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-program-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const few = ["--iterations", "20", "--warmup", "5", "--repeats", "2"];

describe("chorale bench FILE", () => {
  it("measures a program beside the built-in choice, and checks both", async () => {
    const { code, out, err } = await runCli(
      "bench",
      RING,
      "-n",
      "2",
      "-b",
      "1K",
      "-e",
      "16K",
      "--check",
      "--json",
      ...few,
    );
    expect(code, err).toBe(0);
    const { rows } = JSON.parse(out) as { rows: ProgramRow[] };
    expect(rows.map(({ sizeBytes }) => sizeBytes)).toEqual([1024, 4096, 16_384]);
    for (const row of rows) {
      expect(row).toMatchObject({
        op: "all_reduce",
        program: "ring",
        ranks: 2,
        wrong: 0,
        redop: "sum",
        inPlace: false,
      });
      expect(row.builtIn).toMatchObject({ name: "two-shot-kernel", wrong: 0 });
      expect(row.timeUs).toBeGreaterThan(0);
      expect(row.ratio).toBeCloseTo(row.builtIn.timeUs / row.timeUs, 6);
    }
  });

  it.each([
    ["an algorithm's name", "binomial-broadcast", ["--arg", "root=1"], { op: "broadcast", root: 1 }],
    ["a program in place", "ring-all-gather", ["--arg", "inPlace=true"], { op: "all_gather", inPlace: true }],
    ["a reduction by another operator", "ring-reduce-scatter", ["--redop", "max"], { redop: "max" }],
  ])("takes %s", async (_, name, args, expected) => {
    const argv = ["bench", name, "-n", "2", ...args, "-b", "2K", "-e", "2K", "--check", "--json", ...few];
    const { code, out, err } = await runCli(...argv);
    expect(code, err).toBe(0);
    const [row] = (JSON.parse(out) as { rows: ProgramRow[] }).rows;
    expect(row).toMatchObject({ ...expected, sizeBytes: 2048, wrong: 0 });
    expect(row?.builtIn.wrong).toBe(0);
  });

  it("says a wrong program's findings, and refuses what is not for programs", async () => {
    const lazy = join(folder, "lazy.mjs");
    writeFileSync(
      lazy,
      `import { allReduce, program } from "chorale/language";
      export default ({ numRanks }) => program({ name: "lazy", collective: allReduce(numRanks), autoSync: "full" }, (p) => {
        for (const r of p.ranks) p.copy(r.output.at(0), r.input.at(0));
      });`,
    );
    const wrong = await runCli("bench", lazy, "-n", "2");
    expect(wrong.code).toBe(1);
    expect(wrong.err).toMatch(/missing-contribution/);
    const refused = async (...argv: string[]) => {
      const { code, err } = await runCli("bench", ...argv);
      expect(code, err).toBe(2);
      return err;
    };
    expect(await refused(RING, "-n", "2", "--backend", "nccl")).toMatch(/does not choose among algorithms/);
    expect(await refused(RING, "-n", "2", "--backend", "all")).toMatch(/one backend/);
    expect(await refused(RING, "-n", "2", "--algorithm", "ring-all-reduce")).toMatch(/built-in operations/);
    expect(await refused(RING, "-n", "2", "--arg", "numRanks=3")).toMatch(/-n is 2; expected 3/);
    expect(await refused("direct-send-recv", "-n", "2")).toMatch(/measured beside the built-in all_reduce/);
    expect(await refused("all_reduce", "--arg", "numRanks=3")).toMatch(/--arg is/);
    expect(await refused(join(folder, "none.ts"))).toMatch(/none\.ts/);
  });

  it("prints a table", () => {
    const figures = { timeUs: 82.04, minUs: 80, maxUs: 90, algbwGBps: 12.78, busbwGBps: 19.17, wrong: 0 };
    const row: ProgramRow = {
      op: "all_reduce",
      backend: "threads",
      ranks: 4,
      isolation: "thread",
      sizeBytes: 1048576,
      count: 262144,
      dtype: "f32",
      redop: "sum",
      root: -1,
      drive: "wait",
      repeats: 5,
      program: "ring",
      inPlace: false,
      ...figures,
      builtIn: { ...figures, timeUs: 41.02, name: "two-shot-kernel" },
      ratio: 0.5,
    };
    expect([...programHeader(), programRow(row), ...programFooter([row])].join("\n")).toMatchInlineSnapshot(`
      "#                                                          program                             built-in choice
      #       size       count    type redop  root     time   algbw   busbw #wrong     time   algbw   busbw #wrong   ratio  choice
      #        (B)  (elements)                         (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           1048576      262144     f32   sum    -1     82.0   12.78   19.17      0     41.0   12.78   19.17      0   0.50x  two-shot-kernel
      # Wrong elements : 0 OK
      # ratio: how many times as fast as the built-in choice, same loops; faster at 0 of 1 sizes"
    `);
    expect(programFooter([{ ...row, wrong: 2 }])[0]).toMatch(/2 FAILED/);
  });
});

describe("chorale bench --algorithm", () => {
  it("has the algorithm serve the calls, and lists the names there are", async () => {
    const argv = ["bench", "all_gather", "-n", "2", "-b", "1K", "-e", "1K", ...few, "--check"];
    const good = await runCli(...argv, "--json", "--algorithm", "ring-all-gather*2");
    expect(good.code, good.err).toBe(0);
    const [row] = (JSON.parse(good.out) as { rows: BenchRow[] }).rows;
    expect([row?.wrong, row?.inPlace?.wrong]).toEqual([0, 0]);
    const bad = await runCli(...argv, "--algorithm", "ring-all-reduce");
    expect([bad.code, bad.err]).toEqual([
      2,
      expect.stringMatching(/--algorithm is "ring-all-reduce"; expected one of direct-kernel, direct-all-gather/),
    ]);
  });
});

describe("the share of the memory roofline", () => {
  it("counts what each operation must load and store", () => {
    const traffic = Object.fromEntries(OPERATION_NAMES.map((op) => [op, memoryTraffic(op, 4, 100)]));
    expect(traffic).toEqual({
      all_reduce: 800,
      broadcast: 500,
      reduce: 500,
      all_gather: 500,
      all_gather_v: 500,
      reduce_scatter: 500,
      reduce_scatter_v: 500,
      all_to_all: 800,
      all_to_all_v: 800,
      gather: 200,
      scatter: 200,
      barrier: 0,
      send: 800,
      recv: 800,
    });
  });

  it("is in the table and in JSON where ranks are threads with a core each", async () => {
    const argv = ["bench", "all_reduce", "-b", "64K", "-e", "64K", ...few];
    const { rows } = JSON.parse((await runCli(...argv, "-n", "1", "--json")).out) as { rows: BenchRow[] };
    expect(rows[0]?.roofline).toBeGreaterThan(0);
    expect(rows[0]?.inPlace?.roofline).toBeGreaterThan(0);
    expect((await runCli(...argv, "-n", "1")).out).toMatch(/#wrong {4}roof\n[\s\S]* \d+ %\n/);
    const crowded = JSON.parse((await runCli(...argv, "-n", String(availableParallelism() + 1), "--json")).out) as {
      rows: BenchRow[];
    };
    expect(crowded.rows[0]?.roofline).toBeNull();
  });
});
