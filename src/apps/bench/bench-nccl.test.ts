/** `chorale bench --backend nccl`, over the stand-in GPU library: real launches, real FFI, no GPU. */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { CLI_PROCESS, runCli } from "../../../test/helpers/cli.ts";
import { buildFakeGpu, fakeGpuFolder, useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { isFull, spread } from "../../../test/support/spread.ts";
import { OPERATION_NAMES } from "../../collectives/index.ts";
import { bench, checkBench } from "./index.ts";

const available = buildFakeGpu() !== undefined;
/** A world starts for each. The conformance suite has every operation over NCCL, bench.test.ts on threads; CHORALE_FULL=1 here too. */
const OPERATIONS = spread(
  OPERATION_NAMES.filter((name) => name !== "recv"),
  6,
);

describe("bench where NCCL is missing", () => {
  it("ends with exit code 3 and says what would enable it; `all` goes on without it, visibly", () => {
    const absent = ["CUDA", "NCCL", "MPI"].map((name) => [`CHORALE_${name}_LIBRARY`, "/nowhere/lib.so"]);
    const env = { ...process.env, ...Object.fromEntries(absent) };
    const start = (...words: string[]) =>
      spawnSync(process.execPath, [...CLI_PROCESS, "bench", ...words], { encoding: "utf8", env });
    const alone = start("all_reduce", "--backend", "nccl", "-n", "2");
    expect(alone.status).toBe(3);
    expect(alone.stderr).toMatch(/libcuda\) is not available.*\/nowhere.*Install/s);
    const sizes = ["-b", "1K", "-e", "1K", "--iterations", "3", "--repeats", "1", "--warmup", "0", "-n", "2"];
    for (const form of spread(["json", "table"] as const, 2)) {
      const both = start("all_reduce", "--backend", "all", ...(form === "json" ? ["--json"] : []), ...sizes);
      expect(both.status).toBe(0);
      if (form === "table") {
        expect(both.stdout).toMatch(/^# nccl skipped: the NVIDIA driver \(libcuda\) is not available/m);
        expect(both.stdout).toMatch(/^# .*backend threads/m);
        continue;
      }
      const found = JSON.parse(both.stdout) as {
        rows: { backend: string }[];
        skipped: { backend: string; why: string }[];
      };
      expect(found.rows.map((row) => row.backend)).toEqual(expect.arrayContaining(["threads", "tcp"]));
      expect(found.skipped).toEqual(
        expect.arrayContaining(
          ["nccl", "cuda", "mpi"].map((backend) => ({ backend, why: expect.stringMatching(/not available/) })),
        ),
      );
    }
  });
});

describe.skipIf(!available)("bench on nccl over a stand-in library (needs g++)", () => {
  useFakeGpu();
  const quick = { backend: "nccl", ranks: 2, sizes: [64, 4096], iterations: 3, repeats: 2, warmup: 0 } as const;

  it("measures and checks operations of every kind, in place and apart", {
    timeout: isFull ? 900_000 : 120_000,
  }, async () => {
    for (const op of OPERATIONS) {
      const rows = await bench({ ...quick, op, check: true });
      expect([op, ...rows.map((row) => row.wrong)]).toEqual(op === "barrier" ? [op, 0] : [op, 0, 0]);
      expect(rows.every((row) => row.timeUs > 0 && (row.inPlace?.wrong ?? 0) === 0)).toBe(true);
      expect(rows.every((row) => row.minUs <= row.timeUs && row.timeUs <= row.maxUs)).toBe(true);
      expect(rows[0]).toMatchObject({ backend: "nccl", drive: "queue", iterations: 3, repeats: 2, graphCalls: 0 });
      const alwaysApart = op === "all_to_all" || op === "all_to_all_v" || op === "send" || op === "barrier";
      expect([op, rows[0]?.inPlace === null]).toEqual([op, alwaysApart]);
    }
  });

  it("reduces every dtype and operator that NCCL has, and says what it has not", { timeout: 120_000 }, async () => {
    for (const dtype of isFull ? (["bf16", "u64", "f8e4m3"] as const) : (["f8e4m3"] as const)) {
      const [row] = await bench({ ...quick, op: "all_reduce", dtype, sizes: [512], check: true });
      expect(row).toMatchObject({ dtype, wrong: 0, inPlace: { wrong: 0 } });
    }
    for (const redop of isFull ? (["max", "avg", "preMulSum"] as const) : (["preMulSum"] as const)) {
      const [row] = await bench({ ...quick, op: "reduce_scatter", redop, sizes: [512], check: true });
      expect(row).toMatchObject({ redop, wrong: 0 });
    }
    await expect(bench({ ...quick, op: "all_reduce", dtype: "i32", redop: "bor" })).rejects.toThrow(
      /bor on i32 with the backend nccl .* is not supported; it has sum/,
    );
  });

  it("captures calls in graphs and times their replay", { timeout: 120_000 }, async () => {
    for (const op of isFull
      ? (["all_reduce", "all_gather", "all_to_all_v", "scatter"] as const)
      : (["all_to_all_v"] as const)) {
      const rows = await bench({ ...quick, op, graphCalls: 4, iterations: 8, check: true });
      expect(rows.map(({ wrong, graphCalls, iterations }) => ({ wrong, graphCalls, iterations }))).toEqual([
        { wrong: 0, graphCalls: 4, iterations: 8 },
        { wrong: 0, graphCalls: 4, iterations: 8 },
      ]);
    }
    await expect(checkBench({ ...quick, op: "all_reduce", graphCalls: 4, backend: "threads" })).rejects.toThrow(/nccl/);
  });

  it("measures ranks that are processes", { timeout: 120_000 }, async () => {
    const folder = fakeGpuFolder();
    process.env["FAKE_GPU_FOLDER"] = folder.path;
    try {
      const rows = await bench({ ...quick, op: "all_reduce", isolation: "process", check: true });
      expect(rows.map(({ isolation, wrong }) => [isolation, wrong])).toEqual([
        ["process", 0],
        ["process", 0],
      ]);
    } finally {
      delete process.env["FAKE_GPU_FOLDER"];
      folder.remove();
    }
  });

  it("waits for each call where it is told to", async () => {
    for (const drive of spread(["wait", "await"] as const, 2)) {
      const [row] = await bench({ ...quick, op: "all_reduce", drive, sizes: [1024] });
      expect(row).toMatchObject({ drive, wrong: null });
    }
  });

  it("prints nccl-tests' table, and JSON", { timeout: 120_000 }, async () => {
    const words = ["-n", "2", "-b", "1K", "-e", "4K", "--iterations", "2", "--repeats", "1", "--warmup", "0"];
    const table = await runCli("bench", "all_reduce", "--backend", "nccl", "--check", "-G", ...words);
    expect(table).toMatchObject({ code: 0, err: "" });
    expect(table.out).toMatch(/^# chorale bench all_reduce: 2 ranks, backend nccl, queue, graphs of 20 calls/);
    expect(table.out.split("\n").filter((line) => /^ +\d+ +\d+ +f32 +sum +-1 /.test(line))).toHaveLength(2);
    expect(table.out).toMatch(/# Wrong elements : 0 OK/);
    const json = await runCli("bench", "broadcast", "--backend", "nccl", "--json", ...words);
    expect(JSON.parse(json.out)).toMatchObject({
      rows: [{ backend: "nccl", sizeBytes: 1024, busbwGBps: expect.any(Number) }, {}],
    });
  });

  it("refuses more ranks than there are devices before a world is started", async () => {
    const found = await runCli("bench", "all_reduce", "--backend", "nccl", "-n", "99");
    expect(found.code).toBe(2);
    expect(found.err).toMatch(/-n is 99; expected at most \d+, the visible devices/);
  });

  it("as a launch does, whose ranks find out", async () => {
    const script = join(scratchFolder("too-many"), "script.mjs");
    writeFileSync(script, "export default async () => 0;\n");
    for (const isolation of spread(["thread", "process"], 2)) {
      const found = await runCli("launch", "-n", "9", "--backend", "nccl", "--isolation", isolation, script);
      expect(found.err).toMatch(/-n is 9; expected at most \d, the visible devices: one for each rank/);
      expect(found.code).toBe(2);
    }
  });
});
