/** Tuning: what is chosen from readings, and the command from measuring to a program that uses what was stored. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { algorithm } from "../../authoring/algorithms/index.ts";
import { DEFAULT_CPU_COSTS, readMachineFile } from "../../machine/cost/index.ts";
import { checkChoices, loadLibraryPlans } from "../../runtime/executor/internal.ts";
import { isServed, parseServed } from "../../runtime/executor/served.ts";
import { candidatesOf, rankCandidates } from "./candidates.ts";
import { deviceCandidates } from "./device-candidates.ts";
import { chosenOf, type TuneResult, tableOf } from "./tune-collective.ts";
import type { TuneReading } from "./tune-types.ts";
import { storeTuning, tunedMachine } from "./tuned-machine.ts";

let folder = "";
const before = process.env["CHORALE_CHOICES"];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "chorale-tune-"));
  await loadLibraryPlans();
});
afterEach(() => {
  process.env["CHORALE_CHOICES"] = before;
});
afterAll(() => rmSync(folder, { recursive: true }));

const reading = (ratios: readonly number[], wrong = 0, ofFastest = 2): TuneReading => ({
  sizeBytes: 1024,
  base: { label: "two-shot-kernel", timeUs: 10, wrong: 0 },
  beside: [],
  others: [{ label: "ring-all-reduce", timeUs: 5, wrong }],
  second: [{ label: "ring-all-reduce", ratios, ofFastest, inPlaceRatios: [], directRatios: [] }],
});

describe("a choice", () => {
  it("is another one only where it is clearly faster in the loops in turn", () => {
    const chosen = (...ratios: number[]) => chosenOf(reading(ratios)).chosen;
    expect(chosen(1.2, 1.1, 1.3, 1.2, 1.06)).toBe("ring-all-reduce");
    expect(chosen(1.04, 1.04, 1.04, 1.04, 1.04)).toBe("two-shot-kernel");
    // Fast in the median, and slower too often to be trusted.
    expect(chosen(3, 3, 3, 0.9, 0.9)).toBe("two-shot-kernel");
    // Of a machine that was busy: the fastest loops of both say otherwise.
    expect(chosenOf(reading([3.8, 3.9, 3.7, 3.8, 3.8], 0, 1.02)).chosen).toBe("two-shot-kernel");
    expect(chosenOf(reading([3.8, 3.9, 3.7, 3.8, 3.8], 0, 1.2)).ratio).toBe(1.2);
    const inPlace = (...inPlaceRatios: number[]) => {
      const [second] = reading([1.2, 1.1, 1.3, 1.2, 1.06]).second;
      return chosenOf({ ...reading([]), second: [{ ...second!, inPlaceRatios }] }).chosen;
    };
    expect([inPlace(1.1, 1.2, 0.9), inPlace(0.9, 1.2, 0.9)]).toEqual(["ring-all-reduce", "two-shot-kernel"]);
    expect(chosenOf({ ...reading([]), second: [] })).toMatchObject({ chosen: "two-shot-kernel", ratio: 1 });
  });

  it("serves captured calls alone where it is slower in direct ones, beside the fastest that is not", () => {
    const base = { label: "nccl", timeUs: 10, wrong: 0 };
    const second = (label: string, inGraphs: number, direct: number) => ({
      label,
      ratios: Array(9).fill(inGraphs),
      ofFastest: inGraphs,
      inPlaceRatios: [],
      directRatios: Array(9).fill(direct),
    });
    const chosen = (...seconds: ReturnType<typeof second>[]) => {
      const { chosen, captured, ratio } = chosenOf({ sizeBytes: 1024, base, beside: [], others: [], second: seconds });
      return [chosen, captured, ratio];
    };
    expect(chosen(second("a", 1.2, 0.5))).toEqual(["nccl", "a", 1.2]);
    expect(chosen(second("a", 1.2, 0.97))).toEqual(["a", undefined, 1.2]);
    expect(chosen(second("a", 1.1, 1.1), second("b", 1.2, 0.5))).toEqual(["a", "b", 1.2]);
    expect(chosen(second("a", 1.3, 1.1), second("b", 1.2, 0.5))).toEqual(["a", undefined, 1.3]);
    expect(chosen(second("a", 1.01, 0.5))).toEqual(["nccl", undefined, 1]);
    const shipped = { ...base, captured: "c" };
    const of = (seconds: ReturnType<typeof second>[]) =>
      chosenOf({ sizeBytes: 1024, base: shipped, beside: [], others: [], second: seconds });
    expect(of([])).toMatchObject({ chosen: "nccl", captured: "c" });
    expect(of([second("a", 1.2, 0.5)])).toMatchObject({ chosen: "nccl", captured: "a" });
    expect(of([second("a", 1.2, 1)])).not.toHaveProperty("captured");
  });
});

describe("a table", () => {
  const row = (sizeBytes: number, chosen: string) => ({
    sizeBytes,
    chosen,
    ratio: 1,
    measured: [],
    shipped: { label: "two-shot-kernel", timeUs: 10, wrong: 0 },
  });
  const usesOf = (rows: readonly ReturnType<typeof row>[], skipped: readonly number[] = []) =>
    tableOf({ op: "all_reduce", ranks: 2 }, rows, skipped)?.rows.map(({ fromBytes, use }) => [fromBytes, use]);
  it("says what serves each measured size up to the next, and leaves what was not measured to the shipped choice", () => {
    expect(usesOf([row(64, "two-shot-kernel"), row(1024, "two-shot-kernel")])).toBeUndefined();
    const rows = [row(64, "a"), row(1024, "a"), row(4096, "two-shot-kernel"), row(65_536, "b")];
    expect(usesOf(rows)).toEqual([
      [0, "two-shot-kernel"],
      [64, "a"],
      [4096, "two-shot-kernel"],
      [65_536, "b"],
    ]);
    expect(usesOf(rows, [1 << 20, 1 << 22])?.at(-1)).toEqual([1 << 20, "two-shot-kernel"]);
  });
});

describe("candidates", () => {
  it("are the library's, with instances and chunks, and few of them are measured", () => {
    const all = candidatesOf("broadcast", 2);
    expect(all.map(({ label }) => label)).toEqual(
      expect.arrayContaining(["binomial-broadcast", "binomial-broadcast*4", "chain-broadcast/16"]),
    );
    for (const sizeBytes of [64, 1 << 20]) {
      const few = rankCandidates(all, sizeBytes, DEFAULT_CPU_COSTS, 3);
      expect(few.length).toBeGreaterThan(0);
      expect(few.length).toBeLessThanOrEqual(3);
    }
  });
});

describe("what is stored", () => {
  const result = (changes: Partial<TuneResult>): TuneResult => ({
    op: "all_reduce",
    backend: "threads",
    ranks: 2,
    dtype: "f32",
    topology: "own-cores",
    rows: [],
    skipped: [],
    wrong: [],
    fit: { costs: DEFAULT_CPU_COSTS, before: 0, after: 0 },
    measurements: [],
    table: {
      backend: "threads",
      collective: "all_reduce",
      ranks: [2, 2],
      dtypes: ["f32"],
      topology: "own-cores",
      rows: [{ fromBytes: 0, use: "ring-all-reduce" }],
    },
    ...changes,
  });

  it("replaces what was stored for the same calls, and only that", () => {
    const file = join(folder, "stored.json");
    storeTuning(file, result({}), "0.1.0");
    storeTuning(file, result({ ranks: 3, table: { ...result({}).table!, ranks: [3, 3] } }), "0.1.0");
    const rows = [{ fromBytes: 0, use: "binomial-all-reduce" }];
    storeTuning(file, result({ table: { ...result({}).table!, rows } }), "0.1.0");
    const uses = () => tunedMachine(file).choices?.tables.map(({ ranks, rows }) => `${ranks[0]} ${rows[0]?.use}`);
    expect(uses()?.sort()).toEqual(["2 binomial-all-reduce", "3 ring-all-reduce"]);
    storeTuning(file, result({ table: undefined }), "0.1.0");
    expect(uses()).toEqual(["3 ring-all-reduce"]);
  });
});

describe("chorale tune OP --backend threads", () => {
  it("measures, stores, shows, serves launched programs and simulations, and is reset", {
    timeout: 120_000,
  }, async () => {
    const file = join(folder, "machine.json");
    process.env["CHORALE_CHOICES"] = file;
    // Below the sizes that plans serve where each rank has a core.
    const sizes = ["-n", "2", "-b", "256", "-e", "256"];
    const tuned = await runCli("tune", "all_gather", "--backend", "threads", ...sizes, "--json");
    expect(tuned.code, tuned.err).toBe(0);
    const { rows, wrong, fit } = JSON.parse(tuned.out) as TuneResult;
    expect(rows.map(({ sizeBytes }) => sizeBytes)).toEqual([256]);
    for (const { shipped, measured } of rows) {
      expect(shipped).toMatchObject({ label: "direct-kernel", wrong: 0 });
      expect(measured.length).toBeGreaterThan(0);
    }
    expect(wrong).toEqual([]);
    // How well it fits depends on what else the machine does; cpu-host.test.ts has times without noise.
    expect(fit?.costs.callUs).toBeGreaterThan(0);
    expect(readMachineFile(file)).toMatchObject({ choices: { chorale: "0.1.0" }, cpuCosts: { chorale: "0.1.0" } });

    // Whatever was found: a table of our own shows that the file is used.
    const text = JSON.parse(readFileSync(file, "utf8")) as { choices: { data: { tables: unknown[] } } };
    const use = "ring-all-gather*2";
    const table = { backend: "threads", collective: "all_gather", ranks: [2, 2], rows: [{ fromBytes: 0, use }] };
    text.choices.data.tables = [table];
    writeFileSync(file, JSON.stringify(text));
    expect((await runCli("tune", "--show")).out).toMatch(
      /all_gather on threads, 2 ranks, all dtypes[\s\S]*ring-all-gather\*2/,
    );
    const bench = ["bench", "ring-all-gather", ...sizes, "--iterations", "5", "--json"];
    const choice = async () =>
      (JSON.parse((await runCli(...bench)).out) as { rows: { builtIn: { name: string } }[] }).rows[0]?.builtIn.name;
    expect(await choice()).toBe(use);

    const sim = [
      "sim",
      "ring-all-gather",
      "--arg",
      "numRanks=2",
      "--topology",
      "cpu",
      "-b",
      "4K",
      "-e",
      "64K",
      "--json",
    ];
    const simulated = JSON.parse((await runCli(...sim)).out) as { rows: { timeUs: number }[]; source: string };
    expect(simulated.source).toMatch(/fitted on 20/);
    expect(simulated.rows).toHaveLength(3);
    expect(simulated.rows[2]!.timeUs).toBeGreaterThan(simulated.rows[0]!.timeUs);

    expect((await runCli("tune", "--reset")).out).toMatch(/^removed /);
    expect((await runCli("tune", "--reset")).out).toMatch(/^nothing is stored/);
    for (const call of [["tune", "--show"], bench, sim]) {
      expect(await runCli(...call)).toMatchObject({
        code: 2,
        err: expect.stringMatching(/CHORALE_CHOICES is .*ENOENT/),
      });
    }
    process.env["CHORALE_CHOICES"] = "shipped";
    expect((await runCli("tune", "--show")).out).toMatch(/the shipped choices serve/);
    expect(await choice()).toBe("direct-kernel");
  });

  it("refuses what it cannot do, and says what it can", async () => {
    const refused = async (...argv: string[]) => {
      const { code, err } = await runCli(...argv);
      expect(code, err).toBe(2);
      return err;
    };
    process.env["CHORALE_CHOICES"] = join(folder, "none.json");
    expect(await refused("tune", "all_reduce")).toMatch(/--backend threads/);
    expect(await refused("tune", "barrier", "--backend", "threads")).toMatch(/one of all_reduce, broadcast/);
    expect(await refused("tune", "all_reduce", "--backend", "nccl")).toMatch(/Allowed choices are threads, cuda/);
    expect(await refused("tune", "all_reduce", "--backend", "threads", "-n", "1")).toMatch(/2 ranks or more/);
    const sized = (...size: string[]) => refused("tune", "all_gather", "--backend", "threads", "-n", "2", ...size);
    expect(await sized("-b", "4", "-e", "1K")).toMatch(
      /-b is 4; expected at least 8 bytes, one element of f32 for each of 2 ranks/,
    );
    expect(await sized("-e", "64G")).toMatch(/-e is \d+; expected at most 2147483648 bytes: 2 ranks that are threads/);
    expect(await refused("tune", "--show", "--reset")).toMatch(/--show is given with --reset; expected one of the two/);
    const sim = ["sim", "ring-all-gather", "--arg", "numRanks=2", "--topology", "cpu"];
    expect(await refused(...sim, "--nccl")).toMatch(/topologies of links/);
    process.env["CHORALE_CHOICES"] = "shipped";
    expect(await refused("tune", "all_reduce", "--backend", "threads")).toMatch(/--dry-run/);
    process.env["CHORALE_CHOICES"] = join(folder, "broken.json");
    writeFileSync(join(folder, "broken.json"), "{");
    writeFileSync(join(folder, "broken.json"), "{");
    expect(await refused("tune", "--show")).toMatch(/CHORALE_CHOICES must name a new file/);
    // What the user named may be anything, such as a plan.
    for (const text of ["{", '{ "schemaVersion": 1, "name": "a plan" }']) {
      writeFileSync(join(folder, "broken.json"), text);
      const tuned = ["tune", "all_reduce", "--backend", "threads", "-n", "2", "-b", "64", "-e", "64"];
      for (const argv of [tuned, ["tune", "--reset"]])
        expect(await refused(...argv)).toMatch(/a new file, or one that `chorale tune` wrote on this machine/);
      expect(readFileSync(join(folder, "broken.json"), "utf8")).toBe(text);
    }
  });
});

describe("candidates on devices", () => {
  it("are algorithms of the collective with shapes that can be kernels, at every size", () => {
    for (const [collective, numRanks] of (["all_reduce", "all_gather", "reduce_scatter"] as const).flatMap((one) =>
      [2, 4].map((n) => [one, n] as const),
    )) {
      for (let bytes = 64; bytes <= 2 ** 30; bytes *= 4) {
        const labels = deviceCandidates(collective, numRanks, bytes);
        expect([collective, bytes, labels.length > 0]).toEqual([collective, bytes, true]);
        for (const label of labels) {
          const { name, instances, shape } = parseServed(label, []);
          expect([label, algorithm(name).collective]).toEqual([label, collective]);
          expect(instances * (shape?.threads ?? 256)).toBeLessThanOrEqual(132 * 1024);
        }
      }
    }
    const namesOf = (numRanks: number) =>
      new Set(deviceCandidates("all_reduce", numRanks, 2 ** 24).map((label) => parseServed(label, []).name));
    // One step, in which everybody sends everything to everybody, is for two ranks; two phases are for more.
    expect([2, 4].map((n) => namesOf(n).has("streaming-all-reduce"))).toEqual([true, false]);
    expect([2, 4].map((n) => namesOf(n).has("staged-all-reduce"))).toEqual([false, true]);
    expect(deviceCandidates("barrier", 2, 1024)).toEqual([]);
    expect(isServed("barrier")).toBe(false);
  });

  it("end in a table of the backend and topology that were measured", () => {
    const row = (sizeBytes: number, chosen: string) => ({
      sizeBytes,
      shipped: { label: "nccl", timeUs: 6, wrong: 0 },
      measured: [{ label: chosen, timeUs: 2, wrong: 0 }],
      chosen,
      ratio: 3,
    });
    const fast = "packet-all-gather*4@256.lines";
    const where = { op: "all_gather", ranks: 2, backend: "cuda", topology: "nvidia-h200 threads" } as const;
    expect(tableOf(where, [row(1024, fast), row(4096, "nccl")])).toMatchObject({
      backend: "cuda",
      topology: "nvidia-h200 threads",
      rows: [
        { fromBytes: 0, use: "nccl" },
        { fromBytes: 1024, use: fast },
        { fromBytes: 4096, use: "nccl" },
      ],
    });
  });

  it("say what serves captured calls, and keep what shipped tables say of them", () => {
    const where = { op: "all_gather", ranks: 2, backend: "cuda", topology: "nvidia-h200 processes" } as const;
    const row = (sizeBytes: number, chosen: string, captured?: string, ofShipped?: string) => ({
      sizeBytes,
      shipped: { label: "nccl", ...(ofShipped !== undefined && { captured: ofShipped }), timeUs: 6, wrong: 0 },
      measured: [
        { label: "streaming-all-gather", timeUs: 2, wrong: 0 },
        { label: "packet-all-gather", timeUs: 3, wrong: 0 },
      ],
      chosen,
      ...(captured !== undefined && { captured }),
      ratio: 3,
    });
    const streaming = "streaming-all-gather";
    expect(tableOf(where, [row(1024, "nccl", streaming, streaming)])).toBeUndefined();
    const rows = [
      row(1024, "nccl"),
      row(4096, "nccl", streaming),
      row(16_384, "packet-all-gather", streaming),
      row(65_536, "packet-all-gather"),
      row(262_144, "nccl", "one-pass-all-gather", "one-pass-all-gather"),
    ];
    const made = tableOf(where, rows, [1 << 20]);
    expect(made?.rows).toEqual([
      { fromBytes: 0, use: "nccl", timeUs: 6 },
      { fromBytes: 4096, use: "nccl", captured: streaming, timeUs: 2 },
      { fromBytes: 16_384, use: "packet-all-gather", captured: streaming, timeUs: 2 },
      { fromBytes: 65_536, use: "packet-all-gather", timeUs: 3 },
      { fromBytes: 262_144, use: "nccl", captured: "one-pass-all-gather", timeUs: 6 },
    ]);
    expect(checkChoices({ schemaVersion: 1, source: "test", date: "", tables: [made] }, "made")).toBeDefined();
  });
});
