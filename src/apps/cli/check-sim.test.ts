import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { ringAllReduce } from "../../authoring/algorithms/index.ts";
import { planToJson } from "../../authoring/interchange/index.ts";
import { compile } from "../../authoring/language/index.ts";

let folder = "";
const file = (name: string) => join(folder, name);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-check-"));
  const plan = compile(ringAllReduce({ numRanks: 4 }));
  writeFileSync(file("right.json"), planToJson(plan));
  const wrong = structuredClone(plan) as unknown as { ranks: { strands: { ops: { kind: string }[] }[] }[] };
  const ops = wrong.ranks[1]!.strands[0]!.ops;
  ops.splice(
    ops.findIndex((op) => op.kind === "signal"),
    1,
  );
  writeFileSync(file("wrong.json"), planToJson(wrong as never));
  writeFileSync(file("broken.json"), '{"name": "x", "gpus": 3}');
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("chorale check", () => {
  it("exits 0 for a right plan and 1 for a wrong one, with JSON for one file", async () => {
    const right = await runCli("check", file("right.json"), "--json");
    expect(right.code).toBe(0);
    expect(JSON.parse(right.out)).toMatchObject({ ok: true, findings: [] });
    const wrong = await runCli("check", file("wrong.json"), "--json");
    expect(wrong.code).toBe(1);
    expect(JSON.parse(wrong.out).findings[0]).toMatchObject({
      code: "unmatched-wait",
      rank: 2,
      message: expect.any(String),
      hint: expect.any(String),
    });
  });
  it("checks several files in one go, what cannot be read among them", async () => {
    const { code, out } = await runCli("check", file("right.json"), file("broken.json"), file("wrong.json"), "--json");
    expect(code).toBe(1);
    const { results } = JSON.parse(out) as { results: { file: string; ok: boolean; findings: { code: string }[] }[] };
    expect(results.map((result) => result.ok)).toEqual([true, false, false]);
    expect(results[1]?.findings[0]?.code).toBe("malformed");
  });
  it("goes on behind files that are not there, are no JSON, or throw", async () => {
    writeFileSync(file("cut.json"), '{"name": "x", "gpus": [{');
    writeFileSync(file("throws.mjs"), "export default () => { throw new TypeError('my own mistake'); };");
    const names = [file("nothing.json"), file("cut.json"), file("throws.mjs"), file("right.json")];
    const { code, out } = await runCli("check", ...names, "--json");
    expect(code).toBe(1);
    const { ok, results } = JSON.parse(out) as { ok: boolean; results: { ok: boolean; findings: object[] }[] };
    expect(ok).toBe(false);
    expect(results.map((result) => result.ok)).toEqual([false, false, false, true]);
    expect(results[0]?.findings).toMatchObject([{ code: "malformed", message: expect.stringContaining("exists") }]);
    expect(results[1]?.findings).toMatchObject([{ code: "malformed", message: expect.stringContaining("JSON") }]);
    expect(results[2]?.findings).toMatchObject([{ code: "malformed", message: "my own mistake" }]);
  });
  it("takes arguments as compile does: lists are lists", async () => {
    writeFileSync(
      file("lists.mjs"),
      "import { directAllToAllV } from 'chorale/algorithms';\nexport default (args) => directAllToAllV(args);\n",
    );
    const { code, out, err } = await runCli("check", file("lists.mjs"), "--arg", "sendCounts=[[0,1],[2,0]]");
    expect(out + err).toMatch(/lists\.mjs: right/);
    expect(code).toBe(0);
  });
  it("refuses numbers of ranks that an algorithm is not defined for, and slips of digits", async () => {
    const many = await runCli("check", "ring-all-reduce", "--arg", "numRanks=1000000000");
    expect(many.err).toMatch(/numRanks is 1000000000; expected an integer, 1 or more, and 4096 at most/);
    const one = await runCli("check", "ring-all-reduce", "--arg", "numRanks=1");
    expect(one.err).toMatch(/numRanks is 1; expected what ring-all-reduce is defined for: 2, 3,/);
    const odd = await runCli("sim", "halving-reduce-scatter", "--arg", "numRanks=6", "--topology", "hgx-h100-8");
    expect(odd.err).toMatch(/defined for: 2, 4, 8, 16/);
    expect([many.code, one.code, odd.code]).toEqual([2, 2, 2]);
  });
  it("shows the operations around a finding, and refuses bad usage", async () => {
    const { out } = await runCli("check", file("wrong.json"));
    expect(out).toContain("error unmatched-wait at rank 2 strand 0");
    expect(out).toMatch(/> +\d+ {2}wait/);
    expect((await runCli("check", file("nothing.json"))).code).toBe(2);
    expect((await runCli("check", file("right.json"), "--promise", "everything")).code).toBe(2);
    expect((await runCli("check")).code).toBe(2);
  });
});

describe("chorale sim", () => {
  it("prints rows, writes traces, compares", async () => {
    const trace = file("trace.json");
    const one = await runCli(
      "sim",
      file("right.json"),
      "--topology",
      "hgx-h100-8",
      "-b",
      "1K",
      "-e",
      "1M",
      "-f",
      "32",
      "--trace",
      trace,
      "--json",
    );
    expect(one.code).toBe(0);
    const { rows } = JSON.parse(one.out) as {
      rows: { sizeBytes: number; timeUs: number; algbwGBps: number; busbwGBps: number }[];
    };
    expect(rows.map((row) => row.sizeBytes)).toEqual([1024, 32768, 1048576]);
    for (const row of rows) expect(row.busbwGBps / row.algbwGBps).toBeCloseTo(1.5, 1);
    expect((JSON.parse(readFileSync(trace, "utf8")) as { traceEvents: unknown[] }).traceEvents.length).toBeGreaterThan(
      50,
    );
    const two = await runCli(
      "sim",
      file("right.json"),
      file("right.json"),
      "--topology",
      "hgx-h100-8",
      "-e",
      "4K",
      "--nccl",
      "--json",
    );
    expect(JSON.parse(two.out)).toMatchObject({ results: [{}, {}], crossovers: expect.any(Array) });
  });
  it("tells people what happened, and exits 1 when it never ends", async () => {
    const { code, out } = await runCli(
      "sim",
      file("right.json"),
      "--topology",
      "hgx-h100-8",
      "-b",
      "1M",
      "-e",
      "1M",
      "--fault",
      "dead:1@3",
    );
    expect(code).toBe(1);
    expect(out).toContain("never");
    expect(out).toMatch(/rank 2: strand 0 .* waits for a signal of rank 1/);
  });
  it("refuses bad usage", async () => {
    expect((await runCli("sim", file("right.json"))).code).toBe(2);
    expect((await runCli("sim", file("right.json"), "--topology", "hgx-h100-8", "-b", "2M", "-e", "1M")).code).toBe(2);
    expect((await runCli("sim", file("right.json"), "--topology", "hgx-h100-8", "--fault", "x")).code).toBe(2);
  });
});
