/**
 * Where the MSCCL++ 0.9 DSL's lowering changes what a program means: each time the compatible plan does something else
 * than the program says, and chorale's plan does not.
 */
import { describe, expect, it } from "vitest";
import { interpret } from "../../../test/support/interpret.ts";
import type { ChunkValue } from "../../collectives/index.ts";
import { type ExecutionPlan, limitViolations, printPlan } from "../plan/index.ts";
import { verifyPlan } from "../verifier/index.ts";
import { allReduce, compile, copied, customCollective, type Program, program, reduced } from "./index.ts";

const sum = (...chunks: number[]): ChunkValue => reduced(chunks.map((chunk) => ({ rank: 0, chunk })));

/** One rank whose input has `chunks` chunks and whose output must be `post`. */
function alone(
  name: string,
  chunks: number,
  post: readonly (ChunkValue | null)[],
  more: { op?: "min"; instances?: number; autoSync?: "none" } = {},
) {
  const { op, ...options } = more;
  return {
    name,
    ...options,
    collective: customCollective(name, 1, {
      inputChunks: () => chunks,
      outputChunks: () => post.length,
      post: (_, chunk) => post[chunk] ?? null,
      ...(op === undefined ? {} : { op }),
    }),
  };
}

/** Both plans: upstream's, and ours, proved by default. */
function both(p: Program, options: { verify?: boolean } = {}): { compat: ExecutionPlan; sound: ExecutionPlan } {
  return { compat: compile(p, { compat: "mscclpp" }), sound: compile(p, options) };
}
const codes = (plan: ExecutionPlan) =>
  new Set(verifyPlan(plan, { lint: false }).findings.map((finding) => finding.code));

describe("a meaning that upstream changes", () => {
  it("two reductions into one place: the last one wins, not their sum", () => {
    const { compat, sound } = both(
      program(alone("last-wins", 3, [sum(0, 2)]), (p) => {
        const rank = p.rank(0);
        rank.reduce(rank.input.at(0), [rank.input.at(1)], { dst: rank.output.at(0) });
        rank.reduce(rank.input.at(0), [rank.input.at(2)], { dst: rank.output.at(0) });
      }),
    );
    expect(printPlan(compat)).toContain("reduce output[0] <- sum(input[0], input[1], input[2])");
    expect(interpret(compat, 1)).toContain("output 0 is");
    expect(codes(compat)).toEqual(new Set(["misplaced"]));
    expect(interpret(sound, 1)).toBeUndefined();
  });

  it("a reduction that reads what the one before wrote", () => {
    const { compat, sound } = both(
      program(alone("reads-result", 2, [sum(0, 1, 0, 1)]), (p) => {
        const rank = p.rank(0);
        const acc = rank.scratch(1).at(0);
        rank.copy(acc, rank.input.at(0));
        rank.reduce(acc, [rank.input.at(1)]);
        rank.reduce(acc, [acc]);
        rank.copy(rank.output.at(0), acc);
      }),
      // A sum of twice the same is no collective: the verifier would object to both.
      { verify: false },
    );
    expect(printPlan(compat)).toContain("reduce scratch[0] <- sum(scratch[0], input[1], scratch[0])");
    expect(interpret(compat, 1)).toContain("output 0 is");
    expect(interpret(sound, 1)).toBeUndefined();
  });

  const onSwitch = (offset: number) =>
    program(
      {
        name: "switch",
        collective: customCollective("switch", 2, {
          inputChunks: () => 1,
          outputChunks: () => 3,
          post: (_, chunk) =>
            chunk === offset || chunk === 2 ? reduced([0, 1].map((rank) => ({ rank, chunk: 0 }))) : null,
        }),
      },
      (p) => {
        // The two ranks meet before and after, so that only the fusion is at fault.
        const [there, back] = [p.memoryChannel(p.rank(0), p.rank(1)), p.memoryChannel(p.rank(1), p.rank(0))];
        for (const rank of p.ranks) rank.copy(rank.output.at(0), rank.input.at(0));
        const meet = () => {
          there.signal();
          back.wait();
          back.signal();
          there.wait();
        };
        meet();
        const view = p.switchChannel(p.ranks, "output").at(p.rank(0));
        const local = p.rank(0).output.at(2);
        view.reduce(local, 0);
        view.broadcast(local, offset);
        meet();
        // The program's own result is used again.
        there.put(p.rank(1).output.at(2), local);
        there.signal();
        back.wait();
      },
    );

  it("a switch reduction keeps its local result when a broadcast follows", () => {
    const { compat, sound } = both(onSwitch(1));
    expect(printPlan(compat)).toContain("switch-reduce-broadcast");
    expect(interpret(compat, 1)).toContain("is NaN");
    expect(codes(compat).size).toBeGreaterThan(0);
    for (let seed = 1; seed < 20; seed++) expect(interpret(sound, seed)).toBeUndefined();
  });

  it("a switch broadcast goes to its own offset, not to the reduction's", () => {
    const { compat, sound } = both(onSwitch(1));
    expect(printPlan(compat)).toContain("switch-reduce-broadcast switch 0[0] <- sum(switch 0[0])");
    expect(printPlan(sound)).toContain("switch-broadcast switch 0[1] <- output[2]");
  });

  it("puts from different buffers stay apart: the executor would take the first one's base for all", () => {
    const { compat, sound } = both(
      program({ name: "mixed-puts", collective: allReduce(2, { chunks: 2 }), autoSync: "none" }, (p) => {
        const [a, b] = [p.rank(0), p.rank(1)];
        const own = a.scratch(1);
        const inbox = b.scratch(2);
        for (const rank of p.ranks) rank.copy(rank.output.all, rank.input.all, 1);
        const ab = p.memoryChannel(a, b);
        ab.put(inbox.at(0), a.input.at(0));
        ab.put(inbox.at(1), own.at(0));
      }),
      { verify: false },
    );
    const puts = (plan: ExecutionPlan) => plan.ranks[0]?.strands[0]?.ops.filter((op) => op.kind === "put");
    expect(puts(compat)).toMatchObject([{ src: [{ buffer: "input" }, { buffer: "scratch" }] }]);
    expect(puts(sound)).toMatchObject([{ src: [{ buffer: "input" }] }, { src: [{ buffer: "scratch" }] }]);
  });

  it("packet copies of different instances go to different places", () => {
    const { compat, sound } = both(
      program(alone("packet-copies", 2, [sum(0, 1)], { instances: 2 }), (p) => {
        const rank = p.rank(0);
        const [partial, copy] = [rank.scratch(1), rank.scratch(1)];
        rank.copyPackets(partial.at(0), rank.input.at(1));
        rank.reducePackets(rank.input.at(0), [partial.at(0)], { dst: rank.output.at(0), strand: 1 });
        rank.copyPackets(copy.at(0), rank.output.at(0), 1);
        rank.unpackPackets(rank.output.at(0), copy.at(0), 1);
      }),
    );
    const places = (plan: ExecutionPlan) =>
      plan.ranks[0]?.strands.flatMap(({ ops }) =>
        ops.flatMap((op) => (op.kind === "reduce" ? [op.packetDst?.index] : [])),
      );
    expect(places(compat)).toEqual([1, 1]);
    expect(places(sound)).toEqual([2, 3]);
    expect(codes(compat).size).toBeGreaterThan(0);
    for (let seed = 1; seed < 20; seed++) expect(interpret(sound, seed)).toBeUndefined();
  });

  it("a read that a later conflict of the same operation made upstream forget", () => {
    const { compat, sound } = both(
      program(alone("lost-read", 4, [copied(0, 1)]), (p) => {
        const rank = p.rank(0);
        const s = rank.scratch(4);
        rank.copy(s.slice(0, 2), rank.input.slice(0, 2));
        rank.barrier([0]);
        rank.copy(s.slice(2, 4), rank.input.slice(2, 4));
        // Reads s[0:2], then writes s[2:4], which conflicts: upstream forgets the read, and lets s[1] be overwritten.
        rank.copy(s.slice(2, 4), s.slice(0, 2));
        rank.copy(s.at(1), rank.input.at(3));
        rank.copy(rank.output.at(0), s.at(3));
      }),
    );
    expect(codes(compat)).toContain("hazard");
    expect(codes(sound)).toEqual(new Set());
  });

  it("input and output of an in-place collective are one memory", () => {
    const inPlace = program(
      { name: "aliases", collective: allReduce(1, { chunks: 2, inPlace: true }), autoSync: "strand" },
      (p) => {
        const rank = p.rank(0);
        const s = rank.scratch(2);
        rank.copy(s.all, rank.input.all);
        rank.copy(rank.output.slice(0, 1), s.slice(0, 1));
        rank.copy(s.slice(1, 2), rank.input.slice(0, 1));
        rank.copy(rank.output.slice(1, 2), rank.input.slice(1, 2));
      },
    );
    const nops = (plan: ExecutionPlan) => plan.ranks[0]?.strands[0]?.ops.filter((op) => op.kind === "nop").length ?? 0;
    const { compat, sound } = both(inPlace);
    expect(nops(sound)).toBeGreaterThan(nops(compat));
    expect(codes(sound)).toEqual(new Set());
  });

  it("min and max are not sums: the executor's limits name them", () => {
    const p = program(alone("least", 2, [sum(0, 1)], { op: "min" }), (q) => {
      const rank = q.rank(0);
      rank.reduce(rank.input.at(0), [rank.input.at(1)], { dst: rank.output.at(0), op: "min" });
    });
    expect(interpret(compile(p), 1)).toBeUndefined();
    expect(limitViolations(compile(p)).map((v) => v.message)).toEqual([
      "the executor sums whatever the plan says: min would be wrong",
    ]);
    expect(() => compile(p, { target: "mscclpp" })).toThrow(/min would be wrong/);
  });

  it("gets at other offsets and flushes are findings for the MSCCL++ executor only", () => {
    const p = program({ name: "offsets", collective: allReduce(2, { chunks: 2 }), autoSync: "full" }, (q) => {
      for (const rank of q.ranks) rank.copy(rank.output.all, rank.input.all);
      const inboxes = q.ranks.map((rank) => rank.scratch(3));
      const channels = q.ranks.map((rank) => q.memoryChannel(rank, q.rank(1 - rank.id)));
      for (const rank of q.ranks) channels[rank.id]?.get(inboxes[rank.id]!.slice(1, 3), q.rank(1 - rank.id).input.all);
      for (const rank of q.ranks) rank.reduce(rank.output.all, [inboxes[rank.id]!.slice(1, 3)]);
    });
    const sound = compile(p);
    for (let seed = 1; seed < 20; seed++) expect(interpret(sound, seed)).toBeUndefined();
    expect(verifyPlan(sound, { target: "mscclpp" }).findings.map((finding) => finding.code)).toContain("target-defect");
  });
});
