import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";

let folder = "";
const file = (name: string) => join(folder, name);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-synth-"));
  const nodes = ["a", "b", "c"].map((id) => ({ id, kind: "rank" }));
  const edges = [
    ["a", "b"],
    ["b", "c"],
    ["c", "a"],
  ].map(([from, to]) => ({ from, to, capacity: "10" }));
  writeFileSync(file("circle.network.json"), JSON.stringify({ nodes, edges }));
  writeFileSync(file("cut.network.json"), JSON.stringify({ nodes, edges: edges.slice(1) }));
  const pair = [
    { from: "a", to: "b", capacity: "10" },
    { from: "b", to: "a", capacity: "10" },
  ];
  writeFileSync(file("pair.network.json"), JSON.stringify({ nodes: nodes.slice(0, 2), edges: pair }));
  writeFileSync(file("number.network.json"), JSON.stringify({ nodes, edges: [{ from: "a", to: "b", capacity: 25 }] }));
  writeFileSync(file("bad.network.json"), JSON.stringify({ nodes, edges: [{ from: "a", to: "x", capacity: "1" }] }));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("chorale topo --bounds", () => {
  it("says what nothing is faster than, for each collective", async () => {
    const { code, out } = await runCli("topo", "--bounds", "--hardware", "mi250x-8");
    expect(code).toBe(0);
    expect(out).toMatch(/all_reduce +3\/500 +166\.67 +3\.80 +links among 4 parts/);
    expect(out).toMatch(/all_to_all +1\/150 /);
    const json = await runCli("topo", "--bounds", "--hardware", "mi250x-8", "--json");
    expect((JSON.parse(json.out) as { bounds: { bounds: unknown[] } }).bounds.bounds).toHaveLength(8);
  });

  it("refuses a machine with one accelerator", async () => {
    const { code, err } = await runCli("topo", "--bounds", "--hardware", "l4");
    expect(code).toBe(2);
    expect(err).toMatch(/1 visible accelerator .* two or more/);
  });
});

describe("chorale sim", () => {
  it("says what share of the optimum a plan reaches", async () => {
    const words = ["sim", "ring-all-gather", "--arg", "numRanks=8", "--topology", "hgx-a100-8", "-b", "1G", "-e", "1G"];
    const { code, out } = await runCli(...words);
    expect(code).toBe(0);
    expect(out).toMatch(/share of the optimum \(no schedule is faster than 7\/2400 s\/GB.*\): 1 GiB \d+\.\d %/);
    const { optimum } = JSON.parse((await runCli(...words, "--json")).out) as { optimum: { shares: number[] } };
    expect(optimum.shares[0]).toBeGreaterThan(0.3);
    expect(optimum.shares[0]).toBeLessThanOrEqual(1);
  });
});

describe("chorale synth", () => {
  it("ends at --time-limit, and says whether it did", async () => {
    const words = ["synth", "all_reduce", "--topology", "mi250x-8", "--time-limit"];
    const late = await runCli(...words, "0.001");
    expect(late).toMatchObject({ code: 1, out: "" });
    expect(late.err).toMatch(/chorale synth: the search for a schedule of all_reduce did not complete within 1 ms/);
    const { out } = await runCli(...words, "600", "--json");
    expect(JSON.parse(out)).toMatchObject({ status: "complete", optimal: true });
    expect((await runCli(...words, "0")).err).toMatch(/--time-limit.*expected a number of seconds, 0.001 to/);
    expect(await runCli(...words, "1", "--envelope")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--time-limit is 1; expected no --envelope beside it/),
    });
  });

  it("says on a terminal what it is at, and erases that before it answers", async () => {
    const { isTTY } = process.stderr;
    process.stderr.isTTY = true;
    try {
      const { err } = await runCli("synth", "all_gather", "--topology", "hgx-a100-8", "-o", file("progress.json"));
      const shown = err.split("\r\u001b[2K").slice(1);
      expect(shown.filter((text) => text !== "")).toEqual([
        "reading hgx-a100-8",
        "finding the optimum of all_gather over 8 ranks",
        "compiling the plan and proving it",
        "simulating the plan",
      ]);
      expect(shown.at(-1)).toBe("");
    } finally {
      process.stderr.isTTY = isTTY;
    }
  });

  it("says what it is at on many ranks where stderr is no terminal, too, and refuses too many at once", async () => {
    const star = (numRanks: number) => {
      const ids = Array.from({ length: numRanks }, (_, rank) => `g${rank}`);
      const nodes = [...ids.map((id) => ({ id, kind: "rank" })), { id: "s", kind: "relay" }];
      const both = ids.flatMap((id) => [
        { from: id, to: "s", capacity: "1" },
        { from: "s", to: id, capacity: "1" },
      ]);
      writeFileSync(file(`star${numRanks}.network.json`), JSON.stringify({ nodes, edges: both }));
      return file(`star${numRanks}.network.json`);
    };
    const many = await runCli("synth", "scatter", "--topology", star(257));
    expect(many).toMatchObject({ code: 0, err: "finding the optimum of scatter over 257 ranks\n" });
    expect(await runCli("synth", "scatter", "--topology", star(256))).toMatchObject({ code: 0, err: "" });
    const { code, err } = await runCli("synth", "all_gather", "--topology", "512x hgx-h100-8");
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining("ranks is 4096; expected at most 2896") });
  });

  it("counts one tree and one step as one, and simulates nothing on a network without machines", async () => {
    const words = ["synth", "broadcast", "--topology", file("pair.network.json"), "-o", file("pair.json")];
    const { code, out } = await runCli(...words);
    expect(code).toBe(0);
    expect(out).toContain("1 tree, at most 1 step, the fewest possible");
    expect(out).not.toContain("Simulated");
  });

  it("writes a plan that is right and a certificate that holds", async () => {
    const [plan, proof] = [file("plan.json"), file("proof.json")];
    const made = await runCli(
      "synth",
      "all_reduce",
      "--topology",
      "mi250x-8",
      "-o",
      plan,
      "--certificate",
      proof,
      "--pieces",
      "1",
      "--json",
    );
    expect(made.code).toBe(0);
    expect(JSON.parse(made.out)).toMatchObject({
      bound: "3/500",
      time: "3/500",
      optimal: true,
      gap: 1,
      ranks: 8,
      heightBound: 4,
    });
    expect((await runCli("check", plan)).code).toBe(0);
    const checked = await runCli("check", "--certificate", proof);
    expect(checked).toMatchObject({ code: 0, out: expect.stringContaining("nothing is faster than 3/500 s/GB") });
    writeFileSync(proof, readFileSync(proof, "utf8").replace('"3/500"', '"3/501"'));
    expect((await runCli("check", "--certificate", proof)).code).toBe(1);
  });

  it("says how many instances of a plan's strands would be faster, and writes them", async () => {
    const plan = file("copies.json");
    const base = ["synth", "all_reduce", "--topology", "mi250x-8", "--pieces", "2", "--size", "16M"];
    const { code, out } = await runCli(...base, "-o", plan);
    expect(code).toBe(0);
    const [, written, faster, instances] =
      /the written plan takes ([\d.]+) us, ([\d.]+) us with --instances (\d)/.exec(out) ?? [];
    // A strand moves less than a link of four times 50 GB/s by any costs that are known.
    expect(Number(faster)).toBeLessThan(Number(written) / 1.5);
    expect((await runCli(...base, "-o", plan, "--instances", instances ?? "")).out).toContain(
      `plan takes ${faster} us.`,
    );
    expect((await runCli("check", plan)).out).toContain("right");
    const refused = await runCli(...base, "-o", plan, "--instances", "5000");
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining("1 to 32 for this schedule")]);
    expect((await runCli(...base, "--instances", "2")).err).toContain("-o with it");
  }, 60_000);

  it("says rates of any size", async () => {
    const edges = [
      ["a", "b"],
      ["b", "a"],
    ].map(([from, to]) => ({ from, to, capacity: "1/1000000" }));
    writeFileSync(
      file("slow.network.json"),
      JSON.stringify({ nodes: ["a", "b"].map((id) => ({ id, kind: "rank" })), edges }),
    );
    const { out } = await runCli("synth", "broadcast", "--topology", file("slow.network.json"));
    expect(out).toContain("1000000 s/GB (0.000001 GB/s)");
  });

  it("checks the other certificates where one cannot be read", async () => {
    const [proof, wrong, broken] = [file("good.json"), file("wrong.json"), file("broken.json")];
    await runCli("synth", "broadcast", "--topology", file("pair.network.json"), "--certificate", proof);
    writeFileSync(wrong, readFileSync(proof, "utf8").replace("1/10", "1/20"));
    writeFileSync(broken, readFileSync(proof, "utf8").slice(0, -20));
    const { code, out } = await runCli("check", "--certificate", broken, wrong, file("absent.json"), proof);
    expect(code).toBe(2);
    expect(out).toMatch(
      /broken\.json: cannot be read: .*\n.*wrong\.json: does not hold.*\n.*absent\.json: cannot be read/,
    );
    expect(out).toContain("good.json: proved: nothing is faster than 1/10 s/GB");
    expect((await runCli("check", "--certificate", wrong, proof)).code).toBe(1);
    const { ok, results } = JSON.parse((await runCli("check", "--certificate", proof, broken, "--json")).out);
    expect([ok, results[0].ok, typeof results[1].unreadable]).toEqual([false, true, "string"]);
  });

  it("says what a switch that multicasts would give, and writes its plan", async () => {
    const plan = file("switch.json");
    const words = ["synth", "all_reduce", "--topology", "hgx-h100-8"];
    const { code, out } = await runCli(...words, "--multicast", "-o", plan);
    expect(code).toBe(0);
    expect(out).toMatch(/If nvswitch0 multicasts and reduces .*: 125\/53124 s\/GB .*, 12\.5 % above 250\/119529/);
    expect(readFileSync(plan, "utf8")).toContain("switch-reduce-broadcast");
    expect((await runCli("topo", "--bounds", "--hardware", "hgx-h100-8")).out).toContain("all_reduce 125/53124 s/GB");
    expect((await runCli(...words, "--multicast")).err).toMatch(/-o with it/);
    expect((await runCli("synth", "all_reduce", "--topology", "mi250x-8", "--multicast", "-o", plan)).code).toBe(2);
  });

  it("says which links bind", async () => {
    const { code, out } = await runCli("synth", "all_gather", "--topology", "mi250x-8", "--sensitivity");
    expect(code).toBe(0);
    expect(out).toContain("333.33 GB/s");
    expect(out).toMatch(/at most \d+ steps, (the fewest possible|where at least \d+ are needed \(a gap of \d+\))\.\n/);
    expect(out).toMatch(/gpu0-gpu6 +1\.0417x/);
  });

  it("has schedules of the fewest steps", async () => {
    const { code, out } = await runCli("synth", "all_gather", "--topology", "mi250x-8", "--fewest-steps");
    expect(code).toBe(0);
    expect(out).toContain("66.67 % above the bound: 12 trees, at most 2 steps");
  });

  it("says which links bind an all-reduce", async () => {
    const { code, out } = await runCli("synth", "all_reduce", "--topology", "mi250x-8", "--sensitivity", "--json");
    expect(code).toBe(0);
    const [first] = (JSON.parse(out) as { sensitivity: { narrower: number; wider: number }[] }).sensitivity;
    expect(first?.narrower).toBeGreaterThan(1);
    expect(first?.wider).toBeLessThan(1);
  });

  it("takes ASTRA-sim's networks", async () => {
    const yaml = "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 25.0 ]\nlatency: [ 500.0 ]\n";
    writeFileSync(file("ring.yml"), yaml);
    const { code, out } = await runCli("synth", "all_reduce", "--topology", file("ring.yml"), "--json");
    expect(code).toBe(0);
    // 7/200 s for 1 GB at 25 GB/s; ASTRA-sim's are GiB/s.
    expect((JSON.parse(out) as { boundGBps: number }).boundGBps).toBeCloseTo((200 / 7) * (2 ** 30 / 1e9), 9);
  });

  it("leads a group over all links where the fast ones join it only through GPUs outside", async () => {
    const words = ["synth", "all_gather", "--topology", "mi250x-8", "--devices", "gpu0,gpu7"];
    expect((await runCli(...words)).out).toContain("1/72 s/GB");
    expect((await runCli(...words, "--relay-devices")).out).toContain("1/500 s/GB");
  });

  it("takes one-way networks from a file", async () => {
    const { code, out } = await runCli("synth", "all_gather", "--topology", file("circle.network.json"));
    expect(code).toBe(0);
    expect(out).toContain("1/15 s/GB");
  });

  it("exits 1 when a certificate was asked for and there is none", async () => {
    const proof = file("none.json");
    const few = await runCli("synth", "all_gather", "--topology", "mi250x-8", "--trees", "1", "--certificate", proof);
    expect(few.code).toBe(1);
    expect(few.out).toContain("above the bound");
  });

  it.each([
    [["synth", "all_sum", "--topology", "mi250x-8"], /OPERATION is "all_sum"/],
    [["synth", "all_gather", "--topology", "nothing-8"], /--topology/],
    [["synth", "all_gather", "--topology", "l4"], /at least 2 different devices/],
    [["synth", "broadcast", "--root", "8", "--topology", "mi250x-8"], /root is 8; expected a rank from 0 to 7/],
    [["synth", "all_gather", "--share", "1/2", "--topology", "mi250x-8"], /8 fractions/],
    [["synth", "all_gather", "--trees", "1", "--fewest-steps", "--topology", "mi250x-8"], /treesPerRoot/],
    ...["all_reduce", "all_gather", "reduce", "all_to_all"].map((op): [string[], RegExp] => [
      ["synth", op, "--devices", "gpu0,gpu3,gpu5", "--links", "xgmi", "--topology", "mi250x-8"],
      /not connected/,
    ]),
    [["synth", "all_gather", "--links", "string", "--topology", "mi250x-8"], /--links/],
    [
      ["synth", "all_gather", "--pieces", "99999999", "--topology", "hgx-a100-8"],
      /--pieces is 99999999; expected 1 to \d+/,
    ],
    [["synth", "all_gather", "--root", "2", "--topology", "mi250x-8"], /--root is 2; expected nothing for all_gather/],
    [["synth", "broadcast", "--redop", "max", "--topology", "mi250x-8"], /--redop is "max"; expected nothing for/],
    [["synth", "all_gather", "--devices", "gpu0,gpu99", "--topology", "mi250x-8"], /gpu99/],
  ])("refuses %j with a sentence", async (words, message) => {
    const { code, err } = await runCli(...words);
    expect(code).toBe(2);
    expect(err).toMatch(message);
    expect(err).not.toContain("    at ");
  });

  it.each([
    ["cut.network.json", /not connected/],
    ["bad.network.json", /edges\[0\]\.to/],
    ["number.network.json", /edges\[0\]\.capacity: expected a fraction above 0 as text/],
    ["missing.network.json", /missing\.network\.json/],
  ])("refuses %s", async (name, message) => {
    const { code, err } = await runCli("synth", "all_gather", "--topology", file(name));
    expect(code).toBeGreaterThan(0);
    expect(err).toMatch(message);
    expect(err).not.toContain("    at ");
  });
});
