import { describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { spread } from "../../../test/support/spread.ts";
import { OPERATION_NAMES } from "../../collectives/index.ts";
import { bar, makeStyle, table, width, wrap } from "./demo/terminal-style.ts";
import {
  type BenchRow,
  bench,
  measureOversubscribed,
  showSweepRow,
  sizeRange,
  tableFooter,
  tableHeader,
  tableRow,
} from "./index.ts";

const row: BenchRow = {
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
  iterations: 100,
  repeats: 5,
  graphCalls: 0,
  timeUs: 82.04,
  minUs: 80,
  maxUs: 90,
  algbwGBps: 12.7812,
  busbwGBps: 19.1718,
  wrong: 0,
  inPlace: { timeUs: 101.6, minUs: 100, maxUs: 103, algbwGBps: 10.32, busbwGBps: 15.48, wrong: null },
};

describe("tables of chorale bench", () => {
  it("have nccl-tests' columns", () => {
    expect([...tableHeader(), tableRow(row), tableRow({ ...row, inPlace: null })].join("\n")).toMatchInlineSnapshot(`
      "#                                                     out-of-place                      in-place
      #       size       count    type redop  root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
      #        (B)  (elements)                         (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           1048576      262144     f32   sum    -1     82.0   12.78   19.17      0      102   10.32   15.48    N/A
           1048576      262144     f32   sum    -1     82.0   12.78   19.17      0      N/A     N/A     N/A    N/A"
    `);
  });

  it("end with the wrong elements and the mean bus bandwidth of both forms", () => {
    expect(tableFooter([row])).toEqual(["# Wrong elements : 0 OK", "# Avg bus bandwidth : 17.3259 GB/s"]);
    expect(tableFooter([{ ...row, wrong: 3, inPlace: null }])[0]).toBe("# Wrong elements : 3 FAILED");
    expect(tableFooter([{ ...row, wrong: null }])[0]).toContain("not checked");
  });
});

describe("sizes", () => {
  it("go from -b to -e by -f", () => {
    expect(sizeRange(8, 64, 2)).toEqual([8, 16, 32, 64]);
    expect(sizeRange(1024, 70_000, 4)).toEqual([1024, 4096, 16384, 65536]);
    expect(() => sizeRange(0, 64, 2)).toThrow(/-b is 0/);
    expect(() => sizeRange(64, 8, 2)).toThrow(/-e is 8/);
    expect(() => sizeRange(8, 64, 1)).toThrow(/-f is 1/);
    expect(() => sizeRange(1024, 2 ** 24, 1 + 1e-7)).toThrow(/at most 1000 sizes/);
    expect(sizeRange(1024, 2 ** 24, Number.POSITIVE_INFINITY)).toEqual([1024]);
    expect(sizeRange(1, 3, 1.2)).toEqual([1, 2, 3]);
  });

  it("at which nothing would move are refused", async () => {
    const call = { op: "all_gather", ranks: 2, dtype: "f64" } as const;
    await expect(bench({ ...call, sizes: [1024, 15] })).rejects.toThrow(
      "-b is 15; expected at least 16 bytes, one element of f64 for each of 2 ranks",
    );
    await expect(bench({ ...call, op: "all_reduce", sizes: [7] })).rejects.toThrow(
      "-b is 7; expected at least 8 bytes, one element of f64",
    );
  });
});

describe("drawing", () => {
  const plain = makeStyle(false);
  it("measures text without its colors", () => {
    expect(width(makeStyle(true).good("abc"))).toBe(3);
    expect(plain.bold("x")).toBe("x");
  });

  it("draws bars to an eighth of a character", () => {
    expect(bar(1, 4)).toBe("████");
    expect(bar(0.5, 4)).toBe("██");
    expect(bar(0.01, 4)).toBe("▏");
    expect(bar(0, 4)).toBe("");
    expect(showSweepRow(plain, row)).toBe(`       1 MiB      82.0        19.17  ${bar(Math.log10(1917.18) / 4, 44)}`);
  });

  it("aligns tables and wraps at spaces", () => {
    expect(
      table(
        plain,
        [
          ["a", "n"],
          ["long", "7"],
        ],
        ["left", "right"],
      ),
    ).toEqual(["   a     n", "   long  7"]);
    expect(wrap("one two three\nfour", 8)).toEqual(["one two", "three", "four"]);
  });
});

describe("bench on the threads backend", () => {
  it("measures, checks and reports every operation", async () => {
    const operations = OPERATION_NAMES.filter((name) => name !== "recv");
    for (const op of spread(operations, 5)) {
      const seen: number[] = [];
      const rows = await bench({
        op,
        ranks: 2,
        sizes: [64, 4096],
        iterations: 5,
        warmup: 10,
        check: true,
        // A call that the benchmark itself forgets to wait for is an error.
        backendOptions: { strictWork: true },
        onRow: (r) => seen.push(r.sizeBytes),
      });
      expect(rows.map((r) => r.wrong)).toEqual(op === "barrier" ? [0] : [0, 0]);
      expect(seen).toEqual(rows.map((r) => r.sizeBytes));
      expect(rows.every((r) => r.timeUs > 0 && (r.inPlace?.wrong ?? 0) === 0)).toBe(true);
    }
  });

  it("looks at every call that it has queued", async () => {
    const queued = { ranks: 2, sizes: [64], iterations: 5, warmup: 10, drive: "queue" } as const;
    const [row] = await bench({ op: "all_reduce", ...queued, check: true, backendOptions: { strictWork: true } });
    expect(row?.wrong).toBe(0);
  });

  it("defines bandwidths as nccl-tests does", async () => {
    const [r] = await bench({ op: "all_gather", ranks: 4, sizes: [1 << 16], iterations: 5 });
    expect(r?.sizeBytes).toBe(65536);
    expect(r?.count).toBe(4096);
    expect(r?.wrong).toBeNull();
    expect(r?.algbwGBps).toBeCloseTo(65536 / (r?.timeUs ?? 0) / 1e3, 9);
    expect(r?.busbwGBps).toBeCloseTo(((r?.algbwGBps ?? 0) * 3) / 4, 9);
  });

  it("lets ranks that wait sleep", { timeout: 60_000 }, async () => {
    const result = await measureOversubscribed({ ranks: 8, sleepMs: 1_500, numCalls: 200 });
    expect(result.sleptSeconds).toBeGreaterThan(1.4);
    expect(result.cpuSeconds).toBeLessThan(0.5);
  });
});

describe("chorale bench", () => {
  it("says by its exit code that the machine lacks the memory", async () => {
    const { code, err } = await runCli("bench", "all_reduce", "-n", "2", "-b", "1T", "-e", "1T");
    expect({ code, err }).toEqual({ code: 3, err: expect.stringContaining("1099511627776 bytes asked for") });
  });

  it.each([
    [["bench"], /missing required argument/],
    [["bench", "gossip"], /one of all_reduce/],
    [["bench", "all_reduce", "-n", "0"], /integer of 1 or more/],
    [["bench", "all_reduce", "-b", "lots"], /-b is "lots"/],
    [["bench", "all_reduce", "-b", "0"], /-b is 0/],
    [["bench", "all_reduce", "-b", "2K", "-e", "1K"], /-e is 1024/],
    [["bench", "all_reduce", "-f", "1"], /above 1/],
    [["bench", "all_reduce", "--dtype", "f128"], /one of f32/],
    [["bench", "all_reduce", "--redop", "band"], /bitwise/],
    [["bench", "all_reduce", "--backend", "carrier-pigeon"], /carrier-pigeon.*threads, .*all/],
    [["bench", "all_reduce", "--drive", "poll"], /poll.*wait, await, queue/],
    [["bench", "all_reduce", "--isolation", "process"], /share the memory of one process/],
    [["bench", "all_reduce", "--isolation", "fiber"], /--isolation.*fiber.*thread, process/],
    [["bench", "all_reduce", "-G", "0"], /integer of 1 or more/],
    [["bench", "all_reduce", "--repeats", "0"], /integer of 1 or more/],
    [["bench", "send", "--backend", "nccl", "-G"], /a graph holds collectives/],
    [["bench", "all_reduce", "--backend", "nccl", "-G", "20000"], /1 to 10000/],
    [["bench", "all_reduce", "--redop", "premul"], /one of sum/],
    [["bench", "send", "-n", "1"], /2 or more ranks/],
    [["bench", "all_reduce", "-n", "1000000000"], /-n is 1000000000; expected an integer from 1 to 256/],
    [["bench", "broadcast", "-n", "2", "--root", "2"], /0 to 1/],
    [["bench", "all_reduce", "-n", "2", "--root", "1"], /--root is 1; expected none: all_reduce has no root/],
    [["bench", "all_reduce", "-G"], /captured on devices, by nccl/],
    [["bench", "all_reduce", "--fast"], /unknown option/],
  ])("answers %j with exit code 2", async (argv, message) => {
    const { code, err } = await runCli(...argv);
    expect(code).toBe(2);
    expect(err).toMatch(message);
  });
});
