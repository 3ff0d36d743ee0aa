import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { withoutNotices } from "../helpers/notices.ts";
import { spread } from "../support/spread.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const library = buildFakeGpu();
const script = fileURLToPath(new URL("../campaigns/pretended-hosts.mjs", import.meta.url));
const dist = fileURLToPath(new URL("../../.cache/dev", import.meta.url));

/** On GPUs: `node test/campaigns/pretended-hosts.mjs --ranks 1` with two of them. */
describe.skipIf(library === undefined)("nccl backend on two hosts, over a stand-in library (needs g++)", () => {
  const folder = fakeGpuFolder();
  afterAll(() => folder.remove());

  // By turns with the data of nccl-processes.test.ts.
  const [storage] = spread(["tensor", undefined, "array", undefined], 4);
  it.runIf(storage !== undefined)("moves and reduces as the reference says", { timeout: 600_000 }, () => {
    const words = [
      "--dist",
      dist,
      "--seed",
      `${seed}`,
      "--only",
      "data",
      "--filter",
      `count=uneven output=none ${storage}`,
    ];
    const env = { ...process.env, FAKE_GPU_FOLDER: folder.path };
    const { stdout, stderr, status } = spawnSync(process.execPath, [script, ...words], {
      env: { ...env, CHORALE_CUDA_LIBRARY: library, CHORALE_NCCL_LIBRARY: library },
      encoding: "utf8",
    });
    expect([status, withoutNotices(stderr)]).toEqual([0, ""]);
    const result = JSON.parse(stdout) as { numPassed: number; skipped: { why: string }[] };
    expect(result.numPassed).toBeGreaterThan(15);
    expect(result.skipped.map(({ why }) => why)).toContain("no sendOutsideBatch");
  });
});
