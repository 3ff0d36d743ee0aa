import { describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder, heldByFakeGpu, useFakeGpu } from "../../helpers/fake-gpu.ts";
import { spread } from "../../support/spread.ts";
import type { LeakProgress } from "./leak-rank.ts";
import { compareGauges, measureLeaks } from "./measure-leaks.ts";

const small = { ranks: 2, collectives: 300, splits: 10, inits: 2, rssSlackBytes: 256 * 2 ** 20 } as const;
const clean = { deviceBytes: 0, poolBytes: 0, fds: 0, threads: 0, counters: {}, ok: true };

describe("the leak campaign", () => {
  it("finds nothing kept by worlds of threads", { timeout: 120_000 }, async () => {
    const ends: unknown[] = [];
    const onProgress = ({ phase, count, of }: LeakProgress) => void (count === of && ends.push([phase, count]));
    const { rows, ok } = await measureLeaks({ ...small, onProgress });
    expect(ends).toEqual([
      ["collectives", 300],
      ["splits", 10],
      ["inits", 2],
    ]);
    expect(rows).toMatchObject([
      { phase: "collectives", count: 300, ...clean },
      { phase: "splits", count: 10, ...clean },
      { phase: "inits", count: 2, ...clean },
    ]);
    expect(ok).toBe(true);
  });

  it("says what was kept, and that it is too much", () => {
    const gauge = (more: object = {}) => ({
      rssBytes: 1000,
      heapBytes: 2 ** 20,
      fds: 20,
      threads: 9,
      poolBytes: 0,
      freeBytes: [500, 500],
      ...more,
    });
    const row = (after: object, counters = {}) =>
      compareGauges(
        "splits",
        7,
        [
          { before: gauge(), after: gauge() },
          { before: gauge(), after: gauge(after) },
        ],
        1,
        100,
        counters,
      );
    expect(row({})).toMatchObject({ ...clean, rssBytes: 0 });
    expect(row({ freeBytes: [500, 436] })).toMatchObject({ deviceBytes: 64, ok: false });
    expect(row({ fds: 21 })).toMatchObject({ fds: 1, ok: false });
    expect(row({ threads: 10 })).toMatchObject({ threads: 1, ok: false });
    expect(row({ poolBytes: 512 })).toMatchObject({ poolBytes: 512, ok: false });
    expect(row({ rssBytes: 1100 })).toMatchObject({ rssBytes: 100, ok: true });
    expect(row({ rssBytes: 1101 })).toMatchObject({ ok: false });
    expect(row({ heapBytes: 5 * 2 ** 20 })).toMatchObject({ heapBytes: 2 ** 22, ok: true });
    expect(row({ heapBytes: 5 * 2 ** 20 + 1 })).toMatchObject({ ok: false });
    expect(row({}, { streams: 2 })).toMatchObject({ counters: { streams: 2 }, ok: false });
    // What was given back is no leak.
    expect(row({ fds: 19, freeBytes: [600, 500] })).toMatchObject({ ...clean });
  });

  const library = buildFakeGpu();
  describe.skipIf(library === undefined)("on nccl over a stand-in library (needs g++)", () => {
    useFakeGpu();
    const isolations = spread(["thread", "process"] as const, 2);
    it.runIf(isolations.includes("thread"))(
      "finds nothing kept, and nothing held by the driver",
      { timeout: 120_000 },
      async () => {
        const counters = () => ({ ...heldByFakeGpu(library ?? "") });
        const { rows } = await measureLeaks({ ...small, backend: "nccl", counters });
        expect(rows.map(({ tookMs: _, rssBytes: _rss, heapBytes: _heap, ...row }) => row)).toEqual([
          { phase: "collectives", count: 300, ...clean },
          { phase: "splits", count: 10, ...clean },
          { phase: "inits", count: 2, ...clean },
        ]);
      },
    );

    it.runIf(isolations.includes("process"))(
      "finds nothing kept by ranks that are processes",
      { timeout: 120_000 },
      async () => {
        const folder = fakeGpuFolder();
        process.env["FAKE_GPU_FOLDER"] = folder.path;
        try {
          const { rows } = await measureLeaks({
            ...small,
            backend: "nccl",
            isolation: "process",
          });
          expect(rows.map(({ tookMs: _, rssBytes: _rss, heapBytes: _heap, count: _count, ...row }) => row)).toEqual([
            { phase: "collectives", ...clean },
            { phase: "splits", ...clean },
            { phase: "inits", ...clean },
          ]);
        } finally {
          delete process.env["FAKE_GPU_FOLDER"];
          folder.remove();
        }
      },
    );
  });
});
