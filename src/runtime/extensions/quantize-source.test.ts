/** The kernels as nvcc takes them. What they do: device-reduction.test.ts, over the stand-in. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { isFull, spread } from "../../../test/support/spread.ts";
import { blocksAtOnce, quantizeSource } from "./quantize-source.ts";

describe.skipIf(spawnSync("nvcc", ["--version"]).status !== 0)("nvcc", () => {
  const folder = mkdtempSync(join(tmpdir(), "chorale-nvcc-"));
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });

  const kernels = [
    { dtype: "f32", format: "e4m3", blockSize: 128, op: "sum", numRanks: 2 },
    { dtype: "bf16", format: "e5m2", blockSize: 32, op: "avg", numRanks: 8 },
    { dtype: "f16", format: "e4m3", blockSize: 64, op: "sum", numRanks: 5 },
    { dtype: "f32", format: "e5m2", blockSize: 1024, op: "avg", numRanks: 4 },
  ] as const;
  it.each(spread(kernels, 4).map((kernel, index) => [index, kernel] as const))(
    `compiles source %i, %j, without a warning for ${isFull ? "sm_80, sm_90 and sm_100" : "one of sm_80, sm_90 and sm_100"}`,
    { timeout: 600_000 },
    (index, kernel) => {
      writeFileSync(join(folder, "quantize.cu"), quantizeSource(kernel));
      const targets = spread([80, 90, 100], 3, index).map((sm) => `-gencode=arch=compute_${sm},code=sm_${sm}`);
      const { status, stderr } = spawnSync("nvcc", [...targets, "-fatbin", "-o", "quantize.fatbin", "quantize.cu"], {
        cwd: folder,
        encoding: "utf8",
      });
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    },
  );
});

it("gives a warp as many blocks at once as its registers hold", () => {
  const blocks = (dtype: "f32" | "bf16") =>
    ([32, 128, 1024] as const).map((blockSize) => blocksAtOnce({ dtype, blockSize }));
  expect(blocks("f32")).toEqual([16, 4, 1]);
  expect(blocks("bf16")).toEqual([32, 8, 1]);
});
