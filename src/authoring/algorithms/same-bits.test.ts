import { describe, expect, it } from "vitest";
import { f32Outputs } from "../../../test/support/interpret.ts";
import { spread } from "../../../test/support/spread.ts";
import { compile } from "../language/index.ts";
import { ALGORITHMS, algorithm } from "./index.ts";

/** Magnitudes from 1 to 2^20: nearly every change of the order of a sum shows in its last bits. */
const input = (rank: number, chunk: number) => {
  const mixed = Math.imul(rank * 64 + chunk + 1, 0x9e3779b1) >>> 0;
  return (1 + mixed / 2 ** 32) * 2 ** (mixed % 21) * (mixed & 32 ? -1 : 1);
};

describe.each(ALGORITHMS.filter((entry) => entry.collective === "all_reduce"))("$name", (entry) => {
  it("gives the same bits on all ranks, though sums of f32 depend on their order", () => {
    for (const numRanks of spread([2, 3, 4, 5, 6, 7, 8].filter(entry.legal), 3, ALGORITHMS.indexOf(entry))) {
      for (const inPlace of entry.inPlace ? [false, true] : [false]) {
        for (const instances of numRanks <= 4 ? [1, 2] : [1]) {
          const plan = compile(entry.make({ numRanks, inPlace, instances }), { verify: false });
          const outputs = f32Outputs(plan, numRanks, input);
          for (const output of outputs)
            expect(output, `${numRanks} ranks, in place ${inPlace}, ${instances} instances`).toEqual(outputs[0]);
        }
      }
    }
  });
});

it("other orders would show: rings begin at another rank than direct algorithms do", () => {
  const sums = ["ring-all-reduce", "one-shot-all-reduce"].map(
    (name) => f32Outputs(compile(algorithm(name).make({ numRanks: 5 }), { verify: false }), 1, input)[0],
  );
  expect(sums[0]).not.toEqual(sums[1]);
});
