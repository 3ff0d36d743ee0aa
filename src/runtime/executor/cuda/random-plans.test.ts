import { afterAll, describe, expect, it } from "vitest";
import { runAndLook } from "../../../../test/oracle/interpreter.ts";
import { isShapeless } from "../../../../test/oracle/judge.ts";
import { randomPlan } from "../../../../test/oracle/random-plans.ts";
import { contentsAfter, prepareContents } from "../../../../test/support/contents-after.ts";
import { HostKernels, HostRanks, hasHostCompiler } from "../../../../test/support/host-cuda/host-kernels.ts";
import { type VerifyOptions, verifyPlan } from "../../../authoring/verifier/index.ts";

/** Plans of one compilation. */
const TOGETHER = 40;

describe.skipIf(!hasHostCompiler())("random plans as CUDA, compiled by g++ for the host", () => {
  const open: HostKernels[] = [];
  afterAll(() => {
    for (const kernels of open) kernels.close();
  });

  it("end as the oracle's runs do, bit for bit (6 verified ones here; EXECUTOR_PLANS=500 for more)", {
    timeout: 3_600_000,
  }, () => {
    const wanted = Number(process.env["EXECUTOR_PLANS"] ?? 6);
    let seed = Number(process.env["CHORALE_SEED"] ?? 1) * 1_000_000;
    const wrong: string[] = [];
    for (let verified = 0; verified < wanted; ) {
      const kernels = new HostKernels();
      open.push(kernels);
      const batch: { seed: number; ranks: HostRanks }[] = [];
      for (; batch.length < TOGETHER && verified < wanted; seed++) {
        const plan = randomPlan(seed);
        const verdict = verifyPlan(plan, { lint: false });
        if (!verdict.ok || isShapeless(verdict)) continue;
        verified++;
        const holds = (promises: VerifyOptions["promises"]) =>
          verifyPlan(plan, { lint: false, ...(promises !== undefined && { promises }) }).ok;
        const endsAlone = holds({ outputAtRankEnd: true, reuseAtRankEnd: true });
        const promises = endsAlone ? { endsAlone, relaunches: holds({ relaunch: true }) } : {};
        const blocksPerStrand = seed % 3 === 0 ? 2 : 1;
        const options = { dtype: "u32", seed, blocksPerStrand, ...promises } as const;
        batch.push({ seed, ranks: new HostRanks(plan, kernels, options) });
      }
      for (const { seed, ranks } of batch) {
        const oracle = runAndLook(ranks.plan, { seed, contents: 7 });
        // Twice the same size, then another: counters and packets go on from launch to launch.
        for (const perChunk of [1, 37, 37]) {
          const ours = contentsAfter(ranks, 7, perChunk);
          if (oracle.contents !== ours)
            wrong.push(`seed ${seed}, ${perChunk} per chunk: ${ours}, oracle: ${oracle.contents}`);
        }
        // Launches with nothing between them.
        const row = [7, 8, 9, 10, 11, 12].map((contents, i) => {
          const perChunk = 1 + ((seed + i) % 3);
          return { contents, partBytes: 4 * perChunk, ...prepareContents(ranks, contents, perChunk) };
        });
        const stuck = ranks.launchAll(row);
        if (stuck !== undefined) wrong.push(`seed ${seed}, launches in a row: ${stuck}`);
        else
          for (const [i, { contents, read }] of row.entries()) {
            const expected = runAndLook(ranks.plan, { seed, contents }).contents;
            if (read() !== expected) wrong.push(`seed ${seed}, launch ${i} in a row: ${read()}, oracle: ${expected}`);
          }
      }
    }
    expect(wrong).toEqual([]);
  });
});
