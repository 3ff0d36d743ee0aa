/** Records that ranks spare which have met, and whose strands one thread runs. */
import { describe, expect, it } from "vitest";
import { onePassAllGather, twoShotFusedReadAllReduce } from "../../../authoring/algorithms/index.ts";
import { allReduce, compile, type Program, program } from "../../../authoring/language/index.ts";
import { leadingSync } from "./leading-sync.ts";
import { lowerRank } from "./lower.ts";

const codes = (made: Program, met: boolean) =>
  lowerRank(compile(made, { verify: false }), 0, { met }).strands.map((records) =>
    records.map(({ record }) => ("outs" in record ? `${record.code} to ${record.outs.length}` : record.code)),
  );

describe("the records of a rank", () => {
  it("begin with the data where the ranks have met, and with the plan's own meeting elsewhere", () => {
    const made = twoShotFusedReadAllReduce({ numRanks: 3 });
    expect(codes(made, true)).toEqual([["move to 3", "signal", "wait", "end"]]);
    expect(codes(made, false)).toEqual([["signal", "wait", "move to 3", "signal", "wait", "end"]]);
  });

  it("read once what goes to several places", () => {
    const made = onePassAllGather({ numRanks: 3 });
    expect(codes(made, true)).toEqual([["move to 3", "signal", "wait", "end"]]);
    expect(codes(made, false)[0]?.filter((code) => code === "copy to 1")).toHaveLength(3);
  });

  it("keep a first signal that somebody waits for after data", () => {
    const made = program({ name: "late wait", collective: allReduce(2) }, (p) => {
      const pairs = [0, 1].map((id) => p.memoryChannel(p.rank(id), p.rank(1 - id)));
      for (const pair of pairs) pair.signal({ strand: 0, relaxed: true });
      for (const rank of p.ranks) rank.copy(rank.output.at(0), rank.input.at(0), 0);
      for (const pair of pairs) pair.wait(0);
    });
    expect(leadingSync(compile(made, { verify: false }))).toEqual([[0], [0]]);
    expect(codes(made, true)[0]).toEqual(codes(made, false)[0]);
  });
});
