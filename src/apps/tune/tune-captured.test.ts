/** What a tuning world of processes tells of captured and of direct calls, over the stand-in library. */
import { expect, it } from "vitest";
import { available, choicesAlone, worldOf } from "../../../test/helpers/cuda-worlds.ts";
import { HOW_MEASURED, measured } from "./measuring-world.ts";

it.skipIf(!available)(
  "calls are timed in graphs, and what looks faster directly too (needs g++)",
  {
    timeout: 120_000,
  },
  async () => {
    const { tables, ...rest } = choicesAlone({ all_gather: "nccl" }, [2, 2]);
    const captured = "streaming-all-gather*16@32.unit1K";
    const choices = { ...rest, tables: [{ ...tables[0]!, rows: [{ fromBytes: 0, use: "nccl", captured }] }] };
    process.env["FAKE_GPU_FOLDER"] = worldOf("process").env["FAKE_GPU_FOLDER"];
    try {
      const report = await measured(
        {
          op: "all_gather",
          dtype: "f32",
          redop: "sum",
          root: 0,
          isolation: "process",
          base: { kind: "choice", name: "shipped" },
          beside: [],
          servesInPlace: true,
          sizes: [{ sizeBytes: 4096, labels: ["packet-all-gather@32", "nccl"], graphCalls: 2 }],
          numRanks: 2,
          mayRefuse: true,
          asksDirect: true,
          ...HOW_MEASURED,
          repeats: 1,
          secondRepeats: 3,
          iterations: 2,
          warmup: 1,
          budgetMs: 60_000,
        },
        { ranks: 2, backend: "cuda", choices, onProgress: () => {} },
      );
      const [reading] = report?.readings ?? [];
      expect(reading?.base).toMatchObject({ label: "nccl", captured, wrong: 0 });
      expect(reading?.others.map(({ label, wrong }) => [label, wrong])).toEqual([
        ["packet-all-gather@32", 0],
        ["nccl", 0],
      ]);
      // Sixteen blocks, of fibers here, take longer than anything else.
      const lengths = reading?.second.map(({ ratios, directRatios }) => [ratios.length, directRatios.length]);
      expect(lengths).toContainEqual([3, 3]);
    } finally {
      delete process.env["FAKE_GPU_FOLDER"];
    }
  },
);
