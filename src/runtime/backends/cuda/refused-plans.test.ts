/** Plans that no member can open, and members that make their next calls before or after they know that (needs g++). */
import { expect, it, onTestFinished } from "vitest";
import { available, choicesAlone, worldOf } from "../../../../test/helpers/cuda-worlds.ts";
import type { ChoiceDocument } from "../../executor/index.ts";
import { launch } from "../../world/index.ts";

const served = choicesAlone({ all_reduce: "one-shot-packet-all-reduce@32.lines" }, [2, 2]);
/** NCCL serves direct calls, a plan captured ones. */
const captured: ChoiceDocument = {
  ...served,
  tables: served.tables.map((table) => ({
    ...table,
    rows: [{ fromBytes: 0, use: "nccl", captured: "two-phase-all-reduce@32" }],
  })),
};

it.skipIf(!available).each([
  ["named", served],
  ["table", served],
  ["table", captured],
  ["run", served],
  ["epilogue", served],
] as const)("have all ranks go on alike, whenever they hear of it: %s", { timeout: 60_000 }, async (by, choices) => {
  process.env["FAKE_CUDA_NO_PEER_ACCESS"] = "1";
  onTestFinished(() => void delete process.env["FAKE_CUDA_NO_PEER_ACCESS"]);
  const told = await launch({
    ...worldOf(),
    timeoutMs: 10_000,
    backendOptions: { choices },
    data: { by, isIssued: new Int32Array(new SharedArrayBuffer(4)) },
    run: async (world, { by, isIssued }) => {
      const { algorithm } = await import("chorale/algorithms");
      const { allReduceResidualRmsNorm } = await import("chorale/extensions");
      const comm = world.comm as import("chorale/nccl").NcclCommunicator;
      const plan = algorithm("one-shot-packet-all-reduce").make({ numRanks: 2 });
      const filled = (count: number, value: number) => {
        const made = world.tensor("f32", [count]);
        world.upload(made, new Float32Array(count).fill(value));
        return made;
      };
      const inputs = [64, 1024, 64].map((count) => filled(count, 1));
      const outputs = inputs.map(({ size }) => filled(size, 0));
      const [residual, weight] = [filled(64, 0), filled(32, 1)];
      const calls = inputs.map((input, i) => async () => {
        const output = outputs[i] as typeof input;
        if (by === "run") await comm.run(plan, { input, output });
        else if (by === "named") await comm.allReduce(input, { output, algorithm: "one-shot-packet-all-reduce@32" });
        else if (by === "table") await comm.allReduce(input, { output });
        // The second call has another size: of a plan's class of sizes, but not of NCCL's.
        else if (i === 1) await comm.allReduce(input, { output });
        else await allReduceResidualRmsNorm(comm, { input, residual, weight, output });
      });
      const hear = (made: Promise<unknown>) =>
        made.then(
          () => "made",
          (error: Error & { code: string }) => error.code,
        );
      const said: string[] = [];
      // Rank 0 makes all its calls before any plan is tried, rank 1 each when it knows of the last.
      if (world.rank === 0) {
        const made = calls.map((call) => hear(call()));
        Atomics.store(isIssued, 0, 1);
        Atomics.notify(isIssued, 0);
        said.push(...(await Promise.all(made)));
      } else {
        Atomics.wait(isIssued, 0, 0, 10_000);
        for (const call of calls) said.push(await hear(call()));
      }
      const [input, output] = [inputs[0], outputs[0]] as [(typeof inputs)[0], (typeof inputs)[0]];
      const values = outputs.map((one) => Math.round(world.download(one)[0] as number));
      // The next number is the same on all.
      await comm.allReduce(input, { output, op: "max", algorithm: "nccl" });
      if (by !== "run" && by !== "epilogue") {
        const again = by === "named" ? { algorithm: "one-shot-packet-all-reduce@32" } : {};
        const graph = comm.capture((one) => void one.allReduce(input, { output, ...again }));
        await comm.replay(graph);
        graph.close();
      }
      return { said, values, last: world.download(output)[0] };
    },
  });
  const expected = {
    run: { said: ["UNSUPPORTED", "UNSUPPORTED", "UNSUPPORTED"], values: [0, 0, 0], last: 1 },
    epilogue: { said: ["made", "made", "made"], values: [1, 2, 1], last: 1 },
    named: { said: ["made", "made", "made"], values: [2, 2, 2], last: 2 },
    table: { said: ["made", "made", "made"], values: [2, 2, 2], last: 2 },
  }[by];
  expect(told).toEqual([expected, expected]);
});
