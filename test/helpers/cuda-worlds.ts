/** Worlds of the cuda backend over the stand-in library, which runs the kernels of plans on the host (needs g++). */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, onTestFinished } from "vitest";
import type { ChoiceDocument } from "../../src/runtime/executor/index.ts";
import { buildFakeGpu, fakeGpuFolder, heldByFakeGpu, NOTHING_HELD, useFakeGpu } from "./fake-gpu.ts";

export const library = buildFakeGpu() ?? "";
export const available = library !== "" && useFakeGpu();

type Collective = ChoiceDocument["tables"][number]["collective"];

/** Tables of the cuda backend by which each of the collectives goes one way, whatever its size. */
export const choicesAlone = (
  uses: { readonly [C in Collective]?: string },
  ranks: readonly [fewest: number, most: number],
): ChoiceDocument => ({
  schemaVersion: 1,
  source: "test",
  date: "2026-11-29",
  tables: Object.entries(uses).map(([collective, use]) => ({
    backend: "cuda",
    collective: collective as Collective,
    ranks,
    rows: [{ fromBytes: 0, use }],
  })),
});

/** Small blocks: every thread is a fiber here. */
const rows = (...list: readonly (readonly [number, string])[]) => list.map(([fromBytes, use]) => ({ fromBytes, use }));
export const choices: ChoiceDocument = {
  schemaVersion: 1,
  source: "test",
  date: "2026-11-23",
  tables: [
    {
      backend: "cuda",
      collective: "all_reduce",
      ranks: [2, 2],
      rows: rows([0, "one-shot-packet-all-reduce@32.lines"], [2048, "streaming-all-reduce@32.unit1K"], [65536, "nccl"]),
    },
    {
      backend: "cuda",
      collective: "all_gather",
      ranks: [2, 2],
      rows: rows([0, "packet-all-gather@32"], [65536, "nccl"]),
    },
    {
      backend: "cuda",
      collective: "reduce_scatter",
      ranks: [2, 2],
      rows: rows([0, "packet-reduce-scatter@32.words"], [65536, "nccl"]),
    },
    { backend: "cuda", collective: "broadcast", ranks: [2, 2], rows: rows([0, "packet-broadcast@32.lines"]) },
    { backend: "cuda", collective: "reduce", ranks: [2, 2], rows: rows([0, "staged-reduce@32.unit1K"]) },
    { backend: "cuda", collective: "gather", ranks: [2, 2], rows: rows([0, "staged-gather@32.unit1K"]) },
  ],
};
/** Two ranks on stand-in devices of their own, those of processes in a folder of this file's. */
export const worldOf = (isolation: "thread" | "process" = "thread") => ({
  ranks: 2,
  backend: "cuda" as const,
  backendOptions: { choices },
  timeoutMs: 110_000,
  isolation,
  env: isolation === "process" ? { FAKE_GPU_FOLDER: folder.path } : {},
});

/** Makes kernels of a stand-in device slow for one test: they go on only every few milliseconds. */
export function slowDown(device: number, everyMs = 5): void {
  process.env["FAKE_CUDA_SLOW_DEVICE"] = String(device);
  process.env["FAKE_CUDA_SLOW_MS"] = String(everyMs);
  onTestFinished(() => {
    delete process.env["FAKE_CUDA_SLOW_DEVICE"];
    delete process.env["FAKE_CUDA_SLOW_MS"];
  });
}

const cache = mkdtempSync(join(tmpdir(), "chorale-cuda-"));
const folder = fakeGpuFolder();
process.env["XDG_CACHE_HOME"] = cache;
process.env["CHORALE_NVRTC_LIBRARY"] = library;
afterAll(() => {
  rmSync(cache, { recursive: true });
  folder.remove();
  if (available) expect(heldByFakeGpu(library)).toEqual(NOTHING_HELD);
});
