/** Kernels that say which strand waits for what, over the stand-in library. */

import { launch } from "chorale/world";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { available, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import { waitReport } from "../../executor/cuda/wait-report.ts";

/** A plan of which rank 0 sends nothing, called or replayed. */
const stuck = () =>
  launch({
    ...worldOf(),
    run: async (world) => {
      const { algorithm } = await import("chorale/algorithms");
      const comm = (await world.comm.split(0)) as import("chorale/nccl").NcclCommunicator;
      const good = algorithm("packet-all-gather").make({ numRanks: 2 }).plan();
      const plan = structuredClone(good) as unknown as { ranks: { strands: { ops: { kind: string }[] }[] }[] };
      for (const strand of plan.ranks[0]?.strands ?? []) strand.ops = strand.ops.filter(({ kind }) => kind !== "put");
      const [x, y] = [world.tensor("f32", [64]), world.tensor("f32", [128])];
      try {
        await comm.allGather(x, { output: y });
        await comm.run(plan as never, { input: x, output: y, force: true });
        // Rank 0 has all that it waits for: its kernel may have ended well.
        await comm.barrier();
        return "done";
      } catch (error) {
        return (error as Error).message;
      }
    },
  });

describe.skipIf(!available)("kernels that give up, on stand-in devices (needs g++)", () => {
  it("say which strand waits for what, to all ranks", { timeout: 120_000 }, async () => {
    vi.stubEnv("CHORALE_CUDA_DEBUG_TURNS", "2000");
    onTestFinished(() => void vi.unstubAllEnvs());
    const [first, second] = await stuck();
    const said =
      /a kernel has waited for too long: packet-all-gather, rank 1: strand 0 at op 2, copy \(unpack\) output\[0\] <- scratch\[0\] \(.*\.[jt]s:\d+:\d+\): it has seen \d+ and wants 1/;
    expect(first).toMatch(said);
    expect(second).toMatch(said);
  });

  it("are refused of what is no number", { timeout: 120_000 }, async () => {
    vi.stubEnv("CHORALE_CUDA_DEBUG_TURNS", "many");
    onTestFinished(() => void vi.unstubAllEnvs());
    await expect(stuck()).rejects.toThrow(/CHORALE_CUDA_DEBUG_TURNS is "many"/);
  });
});

it("names what a launch waits for beside its operations", () => {
  const report = (...words: number[]) => waitReport({ ranks: [], sources: [] } as never, 0, Int32Array.from(words));
  expect(report(0, 1, -1, 0, 2, 3)).toBe(undefined);
  expect(report(1, 4, -2, 0, -1, 3)).toBe(
    "strand 4 waits for all ranks to end the launch: it has seen 4294967295 and wants 3",
  );
});
