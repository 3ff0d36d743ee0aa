import { describe, expect, it } from "vitest";
import { at, copy, planOf, sum } from "../../../test/support/small-plans.ts";
import { allReduce, compile, program } from "../language/index.ts";
import { renderFindings, verifyPlan } from "./index.ts";

/** A ring all-reduce over 4 ranks in which one rank adds the wrong chunk at one step. */
function wrongRing() {
  const n = 4;
  const ring = program({ name: "ring", collective: allReduce(n), autoSync: "full" }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(n - 1));
    const right = (rank: { id: number }) => p.rank((rank.id + 1) % n);
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const c = (rank.id - step + n) % n;
        p.copy(inbox[right(rank).id]!.at(step), step === 0 ? rank.input.at(c) : rank.output.at(c));
      }
      for (const rank of p.ranks) {
        const c = (rank.id - 1 - step + n) % n;
        const own = rank.id === 1 && step === 1 ? (c + 1) % n : c;
        p.reduce(rank.output.at(c), rank.input.at(own), [inbox[rank.id]!.at(step)]);
      }
    }
    for (let step = 0; step < n - 1; step++)
      for (const rank of p.ranks) {
        const c = (rank.id + 1 - step + n) % n;
        p.copy(right(rank).output.at(c), rank.output.at(c));
      }
  });
  return compile(ring, { verify: false });
}

describe("findings for people", () => {
  it("are one entry for one wrong index, with the operation where it began", () => {
    const plan = wrongRing();
    const { findings } = verifyPlan(plan, { lint: false });
    expect(findings.map(({ code }) => code)).toEqual(new Array(4).fill("misplaced"));
    const [first] = findings;
    // The reduction of rank 1, not one of the copies that spread its result.
    expect(first?.cause).toMatchObject({ rank: 1, strand: 0 });
    const text = renderFindings(plan, findings);
    expect(text.match(/^error /gm)).toHaveLength(1);
    expect(text).toContain("it went wrong first at");
    expect(text).toMatch(/> +\d+ {2}reduce output\[3\].* <- sum\(input\[0\], scratch\[1\]\)/);
    expect(text).toContain("the same at output[3] of rank 1, output[3] of rank 2, output[3] of rank 3");
  });

  it("list the first cause first", () => {
    const plan = planOf(
      [
        [
          [
            sum(at("scratch", 0), at("input", 1), at("input", 1)),
            sum(at("scratch", 1), at("input", 0), at("input", 0)),
            copy(at("output", 0), at("scratch", 1)),
            copy(at("output", 1), at("scratch", 0)),
          ].flatMap((op) => [op, { kind: "nop" } as const]),
        ],
      ],
      { input: 2, output: 2, scratch: 2 },
      { operation: "all_reduce", chunksPerPart: 2 },
    );
    const { findings } = verifyPlan(plan, { lint: false });
    expect(findings.map(({ code, cause, chunk }) => [code, cause?.op, chunk?.index])).toEqual([
      ["doubled-contribution", 0, 1],
      ["doubled-contribution", 2, 0],
    ]);
  });

  it("are counted where a large plan is wrong everywhere", () => {
    const chunks = 6000;
    const plan = planOf([[[]]], { input: chunks, output: chunks }, { operation: "all_reduce", chunksPerPart: chunks });
    const { ok, findings, suppressed } = verifyPlan(plan, { lint: false });
    expect(ok).toBe(false);
    expect(findings.length).toBe(16);
    expect(suppressed["undefined-output"]).toBe(chunks - 16);
    expect(renderFindings(plan, findings).match(/^error /gm)).toHaveLength(1);
  });

  it("say which operation read memory that nobody had written", () => {
    const plan = planOf(
      [
        [
          [
            copy(at("scratch", 1), at("scratch", 0)),
            { kind: "nop" },
            sum(at("output", 0), at("input", 0), at("scratch", 1)),
          ],
        ],
      ],
      { input: 1, output: 1, scratch: 2 },
      { operation: "all_reduce" },
    );
    const { findings } = verifyPlan(plan, { lint: false });
    expect(findings).toMatchObject([{ code: "undefined-output", op: 2, cause: { rank: 0, strand: 0, op: 0 } }]);
  });
});
