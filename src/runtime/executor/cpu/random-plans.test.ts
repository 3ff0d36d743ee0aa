import { describe, expect, it } from "vitest";
import { runAndLook } from "../../../../test/oracle/interpreter.ts";
import { isShapeless } from "../../../../test/oracle/judge.ts";
import { Places } from "../../../../test/oracle/places.ts";
import { Random } from "../../../../test/oracle/random.ts";
import { randomPlan } from "../../../../test/oracle/random-plans.ts";
import { LocalRanks } from "../../../../test/support/local-ranks.ts";
import { verifyPlan } from "../../../authoring/verifier/index.ts";

/** Inputs and outputs of a plan at the end of a run of the executor, as the oracle writes them, or where it is stuck. */
function executed(seed: number, contents: number, perChunk: number): string {
  const plan = randomPlan(seed);
  const places = new Places(plan, 1, 1);
  const random = new Random(contents);
  const initial = Array.from({ length: places.size }, () => (random.u32() | 1) >>> 0);
  const local = new LocalRanks(plan, { dtype: "u32", seed });
  const buffers = plan.ranks.map((rank) => {
    const inputBytes = 4 * perChunk * rank.input.chunks;
    const outputBytes = 4 * perChunk * rank.output.chunks;
    const [input, output] = [local.memory.allocate(inputBytes), local.memory.allocate(outputBytes, false)];
    const values = local.view("u32", input, inputBytes);
    // Output begins as the oracle has it: nobody writes all of it in every plan.
    const before = local.view("u32", output, outputBytes);
    for (let i = 0; i < values.length; i++)
      values[i] = initial[places.place(0, rank.rank, "input", Math.floor(i / perChunk), 0)]!;
    for (let i = 0; i < before.length; i++)
      before[i] = initial[places.place(0, rank.rank, "output", Math.floor(i / perChunk), 0)]!;
    return { input, inputBytes, output, outputBytes };
  });
  const stuck = local.launch(4 * perChunk, buffers);
  if (stuck !== undefined) return stuck;
  const first = (address: number, bytes: number) => {
    const values = local.view("u32", address, bytes);
    for (let i = 0; i < values.length; i++)
      if (values[i] !== values[i - (i % perChunk)]) return [`element ${i} differs from the first of its chunk`];
    return Array.from({ length: values.length / perChunk }, (_, chunk) => values[chunk * perChunk]);
  };
  return buffers.flatMap((b) => [...first(b.input, b.inputBytes), ...first(b.output, b.outputBytes)]).join();
}

describe("random plans on the CPU", () => {
  it("end as the oracle's runs do, bit for bit (150 verified ones here; EXECUTOR_PLANS=2000 for more)", {
    timeout: 3_600_000,
  }, () => {
    const wanted = Number(process.env["EXECUTOR_PLANS"] ?? 150);
    const first = Number(process.env["CHORALE_SEED"] ?? 1) * 1_000_000;
    const wrong: string[] = [];
    let verified = 0;
    for (let seed = first; verified < wanted; seed++) {
      const plan = randomPlan(seed);
      const verdict = verifyPlan(plan, { lint: false });
      if (!verdict.ok || isShapeless(verdict)) continue;
      verified++;
      const oracle = runAndLook(plan, { seed, contents: 7 });
      for (const perChunk of [1, 37]) {
        const ours = executed(seed, 7, perChunk);
        if (oracle.contents !== ours)
          wrong.push(`seed ${seed}, ${perChunk} per chunk: ${ours}, oracle: ${oracle.contents}`);
      }
    }
    expect(wrong).toEqual([]);
  });
});
