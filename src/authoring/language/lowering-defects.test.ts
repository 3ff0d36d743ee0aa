/** Programs that were once compiled wrongly, refused though right, or accepted though they mean nothing. */
import { describe, expect, it } from "vitest";
import { interpret } from "../../../test/support/interpret.ts";
import { verifyPlan } from "../verifier/index.ts";
import { allReduce, barrier, compile, customCollective, program, reduced } from "./index.ts";

describe("long reductions", () => {
  /** The sum of 12 input chunks, the last of which lies where the result goes. */
  const long = (inPlace: boolean) =>
    program(
      {
        name: "long",
        collective: customCollective("sum", 1, {
          inputChunks: () => 12,
          outputChunks: () => 1,
          post: () => reduced(Array.from({ length: 12 }, (_, chunk) => ({ rank: 0, chunk }))),
          ...(inPlace ? { aliases: [{ rank: 0, output: 0, input: 11 }] } : {}),
        }),
      },
      (p) => {
        const [rank] = p.ranks as [(typeof p.ranks)[number]];
        const inputs = Array.from({ length: 12 }, (_, i) => rank.input.at(i));
        if (inPlace) p.reduce(rank.output.at(0), inputs[0]!, inputs.slice(1));
        else {
          p.copy(rank.output.at(0), inputs[11]!);
          p.reduce(rank.output.at(0), inputs[0]!, [...inputs.slice(1, 11), rank.output.at(0)]);
        }
      },
    );

  it("read operands that lie where the result goes before that is written, in place too", () => {
    for (const inPlace of [false, true]) {
      const plan = compile(long(inPlace));
      expect(plan.ranks[0]!.strands[0]!.ops.filter((op) => op.kind === "reduce").length).toBeGreaterThan(1);
      expect(interpret(plan, 1)).toBeUndefined();
    }
  });

  it("need an operand", () => {
    const empty = (packets: boolean) => () =>
      program({ name: "empty", collective: allReduce(1) }, (p) => {
        const [rank] = p.ranks as [(typeof p.ranks)[number]];
        if (packets) p.reducePackets(rank.output.at(0), rank.input.at(0), []);
        else p.reduce(rank.output.at(0), rank.input.at(0), []);
      });
    expect(empty(false)).toThrow(/at least one chunk to reduce with/);
    expect(empty(true)).toThrow(/at least one chunk to reduce with/);
  });
});

describe("instances", () => {
  it("cut ranges that overlap only because input and output share memory", () => {
    // Output as one range of four, input as four of one: the same memory.
    const make = (inPlace: boolean) =>
      program({ name: "overlap", instances: 2, collective: allReduce(1, { chunks: 4, inPlace }) }, (p) => {
        const [rank] = p.ranks as [(typeof p.ranks)[number]];
        const scratch = rank.scratch(4);
        rank.copy(scratch.all, rank.input.all);
        for (let i = 0; i < 4; i++) rank.copy(rank.output.at(i), scratch.at(i));
      });
    for (const inPlace of [false, true]) expect(verifyPlan(compile(make(inPlace))).ok).toBe(true);
    const aliased = program(
      { name: "aliased", instances: 2, collective: allReduce(1, { chunks: 2, inPlace: true }) },
      (p) => {
        const [rank] = p.ranks as [(typeof p.ranks)[number]];
        const scratch = rank.scratch(2);
        rank.copy(scratch.at(0), rank.input.at(0));
        rank.copy(scratch.at(1), rank.input.at(1));
        rank.copy(rank.output.all, scratch.all);
      },
    );
    expect(verifyPlan(compile(aliased)).ok).toBe(true);
  });
});

describe("barriers", () => {
  it("are proved: nobody leaves before everybody has come", () => {
    const codes = (plan: Parameters<typeof verifyPlan>[0]) =>
      verifyPlan(plan, { lint: false }).findings.map((f) => f.code);
    const empty = program({ name: "empty", collective: barrier(2) }, () => undefined);
    expect(codes(compile(empty, { verify: false }))).toEqual(["early-leave", "early-leave"]);
    const oneWay = program({ name: "one way", collective: barrier(2) }, (p) => {
      p.memoryChannel(p.rank(1), p.rank(0)).signal();
      p.memoryChannel(p.rank(0), p.rank(1)).wait();
    });
    expect(codes(compile(oneWay, { verify: false }))).toEqual(["early-leave"]);
    const both = program({ name: "both", collective: barrier(3) }, (p) => {
      const channels = p.ranks.map((from) =>
        p.ranks.filter((to) => to !== from).map((to) => p.memoryChannel(to, from)),
      );
      for (const own of channels) for (const channel of own) channel.signal();
      for (const own of channels) for (const channel of own) channel.wait();
    });
    expect(codes(compile(both, { verify: false }))).toEqual([]);
    expect(verifyPlan(compile(both), { promises: { relaunch: true } }).ok).toBe(true);
  });
});

describe("options", () => {
  it("refuse an operator that there is not", () => {
    expect(() => allReduce(2, { op: "plus" as "sum" })).toThrow(/op.*sum/);
  });

  it("insert nothing with autoSync none but what the masks say", () => {
    const make = (sync: "none" | "both") =>
      program({ name: "as written", autoSync: "none", collective: allReduce(2, { chunks: 1 }) }, (p) => {
        for (const [a, b] of [
          [0, 1],
          [1, 0],
        ] as const) {
          const rank = p.rank(a);
          const channel = p.memoryChannel(rank, p.rank(b));
          channel.put(p.rank(b).scratch(1).at(0), rank.input.at(0));
          channel.signal({ sync });
          channel.wait({ sync });
          rank.copy(rank.output.at(0), rank.input.at(0));
        }
      });
    const kinds = (sync: "none" | "both") =>
      compile(make(sync), { verify: false }).ranks[0]!.strands[0]!.ops.map((op) => op.kind);
    expect(kinds("none")).toEqual(["put", "signal", "wait", "copy"]);
    expect(kinds("both")).toEqual(["put", "nop", "signal", "nop", "wait", "nop", "copy"]);
  });
});
