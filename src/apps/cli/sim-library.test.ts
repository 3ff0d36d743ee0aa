import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";

const MEASURED = `# nThread 1 nGpus 8 minBytes 1024 maxBytes 1073741824
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    36.00    0.03    0.05      0    35.70    0.03    0.05      0
  1073741824     268435456     float     sum      -1   4000.0  268.43  469.76      0   4000.1  268.43  469.76      0
# Out of bounds values : 0 OK
`;

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-sim-"));
  writeFileSync(join(folder, "measured.txt"), MEASURED);
  writeFileSync(join(folder, "empty.txt"), "# nothing\n");
});
afterAll(() => rmSync(folder, { recursive: true }));

const sim = (...args: string[]) => runCli("sim", ...args);
const library = (...args: string[]) => sim("--nccl", "--op", "all_reduce", ...args);

describe("chorale sim --nccl", () => {
  it("needs no plan: 1,440 GPUs by one command", async () => {
    const { code, out } = await library(
      "--topology",
      "20x gb200-nvl72",
      "--nvls",
      "on",
      "-b",
      "1G",
      "-e",
      "1G",
      "--json",
    );
    expect(code).toBe(0);
    const { rows, ncclMachine } = JSON.parse(out) as { rows: object[]; ncclMachine: object };
    expect(ncclMachine).toMatchObject({ numRanks: 1440, numNodes: 20, numHosts: 360 });
    expect(rows).toMatchObject([
      { library: "NCCL", algorithm: "nvlstree", protocol: "Simple", uncertainty: expect.any(Number) },
    ]);
  });
  it("names algorithm, protocol, channels and the expected range", async () => {
    const { out } = await library("--topology", "hgx-h100-8", "-b", "1K", "-e", "1K");
    expect(out).toMatch(/NCCL's model: all_reduce, 8 ranks on 1 node, .*NVLS off/);
    expect(out).toMatch(/1024 .* ring +LL +1 +\d+(\.\d+)? to \d+/);
    const forced = await library(
      "--topology",
      "hgx-h100-8",
      "-b",
      "1K",
      "-e",
      "1K",
      "--algorithm",
      "ring",
      "--protocol",
      "simple",
    );
    expect(forced.out).toMatch(/ring +Simple/);
  });
  it("says where a version is newer than those that it knows", async () => {
    const of1K = ["--topology", "hgx-h100-8", "-b", "1K", "-e", "1K"];
    const newer = await library(...of1K, "--nccl-version", "2.31.2");
    expect(newer.out).toMatch(/8 ranks on 1 node, NCCL 2.31.2 timed as 2.30, the newest that is modelled/);
    expect(JSON.parse((await library(...of1K, "--nccl-version", "2.31.2", "--json")).out)).toMatchObject({
      ncclTimedAs: "2.30",
    });
    expect((await library(...of1K, "--nccl-version", "2.30.7")).out).not.toMatch(/timed as/);
  });
  it("refuses a switch that is not there, and what it does not know", async () => {
    const refused = await library("--topology", "hgx-a100-8", "--switch");
    expect(refused).toMatchObject({ code: 2, err: expect.stringMatching(/--switch .*A100.*compute capability 9.0/) });
    const plan = await sim("ring-all-reduce", "--arg", "numRanks=8", "--topology", "mi300x-8", "--switch");
    expect(plan).toMatchObject({ code: 2, err: expect.stringMatching(/--switch .*MI300X/) });
    expect((await library("--topology", "2x gaudi3-8")).err).toMatch(/HCCL on 2 hosts is not supported/);
    expect((await sim("--topology", "hgx-h100-8")).err).toMatch(/--nccl --op OPERATION/);
    expect((await sim("--nccl", "--op", "all_sum", "--topology", "hgx-h100-8")).err).toMatch(/all_reduce, all_gather/);
    expect((await library("--topology", "hgx-h100-8", "--nccl-version", "new")).err).toMatch(/such as 2.27.7/);
    for (const version of ["99.99", "2", "1.3.5", "3.0", "2.030"]) {
      const { code, err } = await library("--topology", "hgx-h100-8", "--nccl-version", version);
      expect([code, err]).toEqual([2, expect.stringMatching(/--nccl-version is ".*"; expected a version of NCCL 2/)]);
    }
    expect((await library("--topology", "mi300x-8", "--nccl-version", "2.30.7")).err).toMatch(
      /--nccl-version is "2.30.7"; expected nothing on AMD Instinct MI300X/,
    );
    expect((await library("--topology", "hgx-h100-8", "--processes", "9")).err).toMatch(/1 to 8 ranks a process/);
    expect((await library("--topology", "hgx-h100-8", "--ranks", "1")).err).toMatch(/2 to 65536/);
  });
  it("sets plans and the library side by side and names the fastest", async () => {
    const { out } = await sim(
      "ring-all-reduce",
      "one-shot-packet-all-reduce",
      "--arg",
      "numRanks=8",
      "--topology",
      "hgx-h100-8",
      "--nccl",
      "-b",
      "1K",
      "-e",
      "256M",
      "-f",
      "512",
    );
    expect(out).toMatch(/# +size +ring-all-reduce +one-shot-packet-all-reduce +NCCL +fastest/);
    expect(out).toMatch(/1024( +\d+\.\d\d){3} {2}one-shot-packet-all-reduce/);
    expect(out).toMatch(/268435456( +\d+\.\d\d){3} {2}NCCL/);
  });
});

describe("what a model does not know", () => {
  const on = (topology: string, ...flags: string[]) =>
    library("--topology", topology, "-b", "1K", "-e", "1K", ...flags);
  it.each([
    ["mi300x-8", "--algorithm", "tree", /algorithm .*tree.*ring, what RCCL's model has/],
    ["mi300x-8", "--protocol", "LL128", /LL or Simple/],
    ["mi300x-8", "--nccl-version", "2.18", /version .*it is NCCL's/],
    ["gaudi3-8", "--protocol", "LL", /protocol .*it is NCCL's/],
    ["trn1.32xlarge", "--algorithm", "ring", /algorithm .*it is NCCL's/],
  ])("on %s %s %s is refused, not ignored", async (topology, flag, value, words) => {
    expect(await on(topology, flag, value)).toMatchObject({ code: 2, err: expect.stringMatching(words) });
  });
  it("takes RCCL's Simple for a small message when told to, and NCCL's tree on one node", async () => {
    const timeOf = async (topology: string, ...flags: string[]) =>
      (JSON.parse((await on(topology, ...flags, "--json")).out) as { rows: { timeUs: number }[] }).rows[0]!.timeUs;
    expect(await timeOf("mi300x-8", "--protocol", "LL")).toBe(await timeOf("mi300x-8"));
    expect(await timeOf("mi300x-8", "--protocol", "Simple")).toBeGreaterThanOrEqual(await timeOf("mi300x-8"));
    expect(await timeOf("hgx-h100-8", "--algorithm", "tree")).toBeGreaterThan(await timeOf("hgx-h100-8"));
  });
  it("says what nobody said: the network, and the number of processes", async () => {
    expect((await on("2x p5.48xlarge")).out).toMatch(/32 NICs a node, efa, 400 GB\/s \(of the preset; --nic/);
    expect((await on("2x p5.48xlarge --nic 8xNDR")).out).not.toMatch(/of the preset/);
    const open = JSON.parse((await on("hgx-a100-8", "--json")).out) as {
      rows: { highUs: number; uncertainty: number }[];
    };
    const host = ["--processes", "host", "--json"];
    const { rows } = JSON.parse((await on("hgx-a100-8", ...host)).out) as {
      rows: { timeUs: number; highUs: number }[];
    };
    expect(open.rows[0]!.highUs).toBeCloseTo(rows[0]!.highUs, 3);
    expect((await on("hgx-a100-8")).out).toMatch(/1 or 8 devices a process \(--processes says which\)/);
  });
});

describe("chorale sim ALGORITHM", () => {
  it("takes as many instances as fill the links, unless they are given", async () => {
    const args = [
      "ring-all-reduce",
      "--arg",
      "numRanks=8",
      "--topology",
      "hgx-h100-8",
      "-b",
      "1G",
      "-e",
      "1G",
      "--json",
    ];
    const chosen = JSON.parse((await sim(...args)).out) as { instances: number; rows: { busbwGBps: number }[] };
    expect(chosen.instances).toBeGreaterThan(4);
    expect(chosen.rows[0]?.busbwGBps).toBeGreaterThan(300);
    const one = JSON.parse((await sim(...args, "--arg", "instances=1")).out) as { rows: { busbwGBps: number }[] };
    expect(one.rows[0]?.busbwGBps).toBeLessThan(40);
  });
  it("fills a mesh with a strand for each peer: MI300X, measured 316 GB/s (issue 22, 7)", async () => {
    const args = ["mesh-all-reduce", "--arg", "numRanks=8", "--topology", "mi300x-8", "-b", "1G", "-e", "1G", "--json"];
    const { rows } = JSON.parse((await sim(...args)).out) as { rows: { busbwGBps: number }[] };
    expect(rows[0]?.busbwGBps).toBeGreaterThan(280);
    expect(rows[0]?.busbwGBps).toBeLessThan(350);
  });
  it("takes of ring and two-shot the form that fills a mesh, and says so (issue 22, 7)", async () => {
    const system = ["--arg", "numRanks=8", "--topology", "mi300x-8", "-b", "1K", "-e", "1G", "-f", "1048576"];
    for (const [name, form, least] of [
      ["two-shot-all-reduce", "mesh-all-reduce", 280],
      ["ring-all-reduce", "multi-ring-all-reduce", 280],
    ] as const) {
      const { out } = await sim(name, ...system, "--json");
      const { rows } = JSON.parse(out) as { rows: { busbwGBps: number; form?: string }[] };
      expect(rows.at(-1)).toMatchObject({ form });
      expect(rows.at(-1)!.busbwGBps).toBeGreaterThan(least);
      expect(rows.at(-1)!.busbwGBps).toBeLessThan(350);
    }
    expect((await sim("two-shot-all-reduce", ...system)).out).toMatch(
      /all links of the mesh at once: as .*mesh-all-re/,
    );
    const switched = await sim("two-shot-all-reduce", "--arg", "numRanks=8", "--topology", "hgx-h100-8", "-e", "1K");
    expect(switched.out).not.toMatch(/mesh/);
  });
  it("sends all-to-all between hosts to the receiver's own NIC (issue 22, 8)", async () => {
    const system = ["--topology", "2x hgx-h100-8", "-b", "1G", "-e", "1G", "--json"];
    const { rows } = JSON.parse((await sim("direct-all-to-all", "--arg", "numRanks=16", ...system)).out) as {
      rows: { timeUs: number }[];
    };
    expect(rows[0]?.timeUs).toBeGreaterThan(10_700);
    expect(rows[0]?.timeUs).toBeLessThan(13_000);
  });
});

describe("chorale sim with several plans", () => {
  const args = ["--arg", "numRanks=8", "--topology", "hgx-h100-8", "-b", "1M", "-e", "1M"];
  it("sets them side by side, with commas too, and names the fastest", async () => {
    const { code, out } = await sim("ring-all-reduce,two-shot-all-reduce", "one-shot-all-reduce", ...args);
    expect(code).toBe(0);
    expect(out).toMatch(/ring-all-reduce +two-shot-all-reduce +one-shot-all-reduce +fastest/);
    expect(out).toMatch(/1048576 +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\S+-all-reduce/);
  });
  it("does not compare different operations", async () => {
    const { code, out } = await sim("ring-all-reduce", "ring-all-gather", ...args);
    expect(code).toBe(0);
    expect(out).not.toMatch(/fastest/);
    expect(out).toMatch(/not set side by side: all_reduce, all_gather/);
  });
  it("takes of hierarchical plans the machine's hosts as nodes, and pieces where they are faster (issue 22, 8)", async () => {
    const run = async (...more: string[]) => {
      const system = ["--arg", "numRanks=16", "--arg", "instances=8", "--topology", "2x hgx-h100-8", "-f", "65536"];
      const { out } = await sim("hierarchical-all-gather", ...system, "-b", "16K", "-e", "1G", "--json", ...more);
      return JSON.parse(out) as { rows: { timeUs: number; chunks?: number; ranksPerNode?: number }[] };
    };
    const { rows } = await run();
    expect(rows).toMatchObject([{ ranksPerNode: 8 }, { ranksPerNode: 8, chunks: expect.any(Number) }]);
    const whole = await run("--arg", "chunks=1");
    expect(rows[0]!.timeUs).toBeLessThanOrEqual(whole.rows[0]!.timeUs);
    expect(rows[1]!.timeUs / whole.rows[1]!.timeUs).toBeLessThan(0.7);
  });
});

describe("chorale sim --measured", () => {
  it("overlays the output of nccl-tests with the error", async () => {
    const file = join(folder, "measured.txt");
    const args = ["--topology", "hgx-h100-8", "--nvls", "on", "--measured", file];
    const { out } = await library(...args);
    expect(out).toMatch(/1073741824 +4000\.00 +\d+\.\d\d +[+-]\d\.\d %/);
    expect(out).toMatch(/median \d+\.\d % off; the expected range holds 100 % of 2 sizes/);
    const { measured } = JSON.parse((await library(...args, "--json")).out) as { measured: { rows: object[] }[] };
    expect(measured[0]?.rows).toMatchObject([
      { sizeBytes: 1024, measuredUs: 36 },
      { sizeBytes: 2 ** 30, measuredUs: 4000 },
    ]);
  });
  it("takes the ranks of a process from the file, unless --processes says another number", async () => {
    const args = ["--topology", "hgx-h100-8", "--measured", join(folder, "measured.txt")];
    expect((await library(...args)).out).toMatch(/, 8 devices a process\n/);
    expect((await library(...args, "--processes", "rank")).out).not.toMatch(/devices a process/);
    const two = await library(...args, "--ranks", "2");
    expect(two.out, "a file of more ranks than the job has").toMatch(/1 or 2 devices a process/);
  });
  it("refuses a file without rows", async () => {
    const { code, err } = await library("--topology", "hgx-h100-8", "--measured", join(folder, "empty.txt"));
    expect(code).not.toBe(0);
    expect(err).toMatch(/has no rows: expected the output of nccl-tests/);
  });
});
