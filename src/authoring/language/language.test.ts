import { describe, expect, it } from "vitest";
import { planFromJson, planToJson } from "../interchange/index.ts";
import { type ExecutionPlan, formatOp, hashPlan } from "../plan/index.ts";
import {
  allReduce,
  type Builder,
  broadcast,
  compile,
  copied,
  customCollective,
  type ProgramOptions,
  program,
  testCollective,
  writeMscclpp,
} from "./index.ts";

const BARE = { name: "p", collective: testCollective(2, 4, 4), autoSync: "none", fusion: false } as const;

/** The operations of one strand of rank 0, as text, as they were written. */
function ops(build: (p: Builder<"p">) => void, options: Partial<ProgramOptions> = {}, rank = 0, strand = 0): string[] {
  const plan = compile(program({ ...BARE, ...options, name: "p" }, build), { verify: false });
  return plan.ranks[rank]?.strands[strand]?.ops.filter((op) => op.kind !== "nop").map(formatOp) ?? [];
}
const text = (plan: ExecutionPlan): string => planToJson(plan);

describe("buffers and chunks", () => {
  it("are taken by slice", () => {
    program(BARE, (p) => {
      const rank = p.rank(0);
      const scratch = [rank.scratch(2), rank.scratch(3)] as const;
      expect(scratch[1].at(1)).toMatchObject({ rank: 0, index: 3, size: 1 });
      expect(scratch[1].slice(1)).toMatchObject({ index: 3, size: 2 });
      expect(rank.input.all).toMatchObject({ rank: 0, buffer: 0, index: 0, size: 4 });
      expect(`${rank.output.slice(1, 3)}`).toBe("rank 0 output[1:3]");
      expect(rank.output.buffer).toBe("output");
    });
  });

  it("refuse slices that are not within, naming the line", () => {
    expect(() => program(BARE, (p) => void p.rank(0).input.slice(2, 5))).toThrow(
      /input of rank 0 is \[2,5\]; expected 0 <= start <= end <= 4 \(.*language\.test\.ts:\d+:\d+\)/,
    );
    expect(() => program(BARE, (p) => void p.rank(0).input.slice(3, 2))).toThrow(/start <= end/);
    expect(() => program(BARE, (p) => void p.rank(2))).toThrow(/rank is 2; expected 0 to 1/);
    expect(() => compile({ ranks: [] } as never)).toThrow(/program is .*; expected a Program, such as program\(/);
  });

  it("of another program are refused at the call", () => {
    program({ ...BARE, name: "outer" as string }, (p) => {
      expect(() =>
        program({ ...BARE, name: "inner" as string }, (q) =>
          q.rank(0).copy(q.rank(0).output.at(0), p.rank(0).input.at(0)),
        ),
      ).toThrow(/another program/);
      expect(() =>
        program({ ...BARE, name: "inner" as string }, (q) => void q.memoryChannel(q.rank(0), p.rank(1))),
      ).toThrow(/another program/);
    });
  });
});

describe("programs that cannot be", () => {
  it("are refused: a callback that is async, a mode that there is not", () => {
    expect(() => program(BARE, (async () => {}) as (p: Builder<"p">) => void)).toThrow(/a callback that is not async/);
    expect(() => program({ ...BARE, autoSync: "ful" as "full" }, () => undefined)).toThrow(
      /autoSync is "ful"; expected none, strand, full/,
    );
  });

  it("are refused: custom collectives of impossible sizes, or that ask for chunks of nobody", () => {
    const sizes = { inputChunks: () => 1, outputChunks: () => 1, post: () => null };
    expect(() => customCollective("c", 2, { ...sizes, outputChunks: () => 1.5 })).toThrow(
      /outputChunks\(0\) of c is 1.5/,
    );
    expect(() => customCollective("c", 2, { ...sizes, inputChunks: () => -1 })).toThrow(/inputChunks\(0\) of c is -1/);
    expect(() => customCollective("c", 2, { ...sizes, post: () => copied(0, 1) })).toThrow(
      /post\(0, 0\) of c is input\[1\] of rank 0; expected a chunk below 1/,
    );
    expect(() => customCollective("c", 2, { ...sizes, post: () => copied(9, 0) })).toThrow(/a rank that has input/);
  });
});

describe("operations of a rank", () => {
  it("copy, copyPackets and unpackPackets", () => {
    expect(
      ops((p) => {
        const rank = p.rank(0);
        const s = rank.scratch(2);
        rank.copy(rank.output.at(0), rank.input.at(0));
        rank.copyPackets(s.at(0), rank.input.at(0));
        rank.unpackPackets(rank.output.slice(1, 3), s.all);
      }),
    ).toEqual([
      "copy output[0] <- input[0]",
      "copy (pack) scratch[0] <- input[0]",
      "copy (unpack) output[1:3] <- scratch[0:2]",
    ]);
  });

  it("reduce, with a destination and an operator, and reducePackets", () => {
    expect(
      ops((p) => {
        const rank = p.rank(0);
        const s = rank.scratch(2);
        rank.reduce(rank.input.at(0), [rank.input.at(1)]);
        rank.reduce(rank.input.at(0), [rank.input.at(1), rank.input.at(2)], { dst: rank.output.at(0), op: "max" });
        rank.reducePackets(rank.input.at(0), [s.at(0), s.at(1)]);
      }),
    ).toEqual([
      "reduce input[0] <- sum(input[0], input[1])",
      "reduce output[0] <- max(input[0], input[1], input[2])",
      "reduce (packets) input[0] <- sum(input[0], scratch[0], scratch[1])",
    ]);
  });

  it("barrier of strands, and a block's own", () => {
    const build = (p: Builder<"p">) => {
      p.rank(0).barrier([0, 2]);
      p.rank(0).barrier([2, 0]);
      p.rank(0).barrier([0, 2]);
      p.rank(0).barrier([0]);
    };
    // The same strands in the same order meet at the same barrier.
    expect(ops(build)).toEqual(["barrier 0 of 2 strands", "barrier 1 of 2 strands", "barrier 0 of 2 strands"]);
    expect(ops(build, {}, 0, 2)).toEqual([
      "barrier 0 of 2 strands",
      "barrier 1 of 2 strands",
      "barrier 0 of 2 strands",
    ]);
    const plan = compile(
      program(BARE, (p) => p.rank(0).barrier([1])),
      { verify: false },
    );
    expect(plan.ranks[0]?.strands[1]?.ops.map((op) => op.kind)).toEqual(["nop"]);
  });

  it("semaphores with an initial value, acquired and released", () => {
    const build = (p: Builder<"p">) => {
      const [free, full] = [p.rank(0).semaphore(2), p.rank(0).semaphore()];
      free.acquire();
      full.release({ strand: 0, sync: "before" });
    };
    expect(ops(build)).toEqual(["acquire semaphore 0", "release semaphore 1"]);
    expect(compile(program(BARE, build), { verify: false }).ranks[0]?.semaphores).toEqual([
      { initialValue: 2 },
      { initialValue: 0 },
    ]);
  });

  it("shared by a strand group, each with its slice", () => {
    const build = (p: Builder<"p">) => p.rank(0).copy(p.rank(0).output.all, p.rank(0).input.all, p.strandGroup([1, 3]));
    expect(ops(build, {}, 0, 1)).toEqual(["copy output[0:4] <- input[0:4] (part 0 of 2)"]);
    expect(ops(build, {}, 0, 3)).toEqual(["copy output[0:4] <- input[0:4] (part 1 of 2)"]);
    expect(() => ops((p) => p.strandGroup([1, 1]))).toThrow(/different strands/);
  });

  it("are refused with other ranks' chunks and other sizes", () => {
    expect(() => ops((p) => p.rank(0).copy(p.rank(1).output.at(0), p.rank(0).input.at(0)))).toThrow(
      /ranks of a copy is \[1,0\]; expected both 0/,
    );
    expect(() => ops((p) => p.rank(0).copy(p.rank(0).output.at(0), p.rank(0).input.all))).toThrow(
      /equal numbers of chunks/,
    );
    expect(() => ops((p) => p.rank(0).reduce(p.rank(0).output.at(0), []))).toThrow(/at least one chunk/);
    expect(() => ops((p) => p.rank(0).copy(p.rank(0).output.at(0), p.rank(0).input.at(0), -1))).toThrow(/strand is -1/);
    expect(() => ops((p) => p.rank(0).barrier([]))).toThrow(/at least one/);
    expect(() => ops((p) => void p.rank(0).semaphore(-1))).toThrow(/0 or more/);
  });
});

describe("channels", () => {
  it("of memory: put, get, reduce, packets, signal and wait, relaxed too", () => {
    expect(
      ops((p) => {
        const [a, b] = [p.rank(0), p.rank(1)];
        const [sa, sb] = [a.scratch(2), b.scratch(2)];
        const [ab, ba] = [p.memoryChannel(a, b), p.memoryChannel(b, a)];
        expect([ab.from, ab.to]).toEqual([0, 1]);
        ab.put(b.output.at(0), a.input.at(0));
        ab.get(sa.at(0), b.input.at(0));
        ab.reduce(a.input.at(0), [b.input.at(0), b.input.at(1)], { dst: a.output.at(0) });
        ab.putPackets(sb.at(0), a.input.at(0));
        ab.readPutPackets(sb.at(1), sa.at(1));
        ab.signal();
        ab.signal({ relaxed: true });
        ab.wait();
        ab.wait({ relaxed: true, sync: "none" });
        for (const relaxed of [false, true]) {
          ba.wait({ relaxed });
          ba.signal({ relaxed });
        }
      }),
    ).toEqual([
      "put rank 1 output[0] <- input[0] via memory 0",
      "get scratch[0] <- rank 1 input[0] via memory 0",
      "reduce output[0] <- sum(input[0], rank 1 input[0], rank 1 input[1]) via memory 0,0",
      "put (pack) rank 1 scratch[0] <- input[0] via memory 0",
      "put (forward) rank 1 scratch[1] <- scratch[1] via memory 0",
      "signal memory 0",
      "signal (relaxed) memory 0",
      "wait memory 0",
      "wait (relaxed) memory 0",
    ]);
  });

  it("of ports: put, with signal, with signal and flush, packets, flush", () => {
    expect(
      ops((p) => {
        const [a, b] = [p.rank(0), p.rank(1)];
        const [sa, sb] = [a.scratch(2), b.scratch(2)];
        const [ab, ba] = [p.portChannel(a, b), p.portChannel(b, a)];
        ab.put(b.output.at(0), a.input.at(0));
        ab.putWithSignal(b.output.at(1), a.input.at(1));
        ab.putWithSignalAndFlush(b.output.at(2), a.input.at(2));
        ab.putPackets(sb.at(0), sa.at(0));
        ab.readPutPackets(sb.at(1), sa.at(1));
        ab.signal();
        ab.flush();
        for (let i = 0; i < 3; i++) ba.wait();
      }),
    ).toEqual([
      "put rank 1 output[0] <- input[0] via port 0",
      "put + signal rank 1 output[1] <- input[1] via port 0",
      "put + signal-flush rank 1 output[2] <- input[2] via port 0",
      "put (pack) rank 1 scratch[0] <- scratch[0] via port 0",
      "put (forward) rank 1 scratch[1] <- scratch[1] via port 0",
      "signal port 0",
      "flush port 0",
    ]);
  });

  it("of switches: a view for each rank reduces and broadcasts", () => {
    expect(
      ops((p) => {
        const scratch = p.ranks.map((rank) => rank.scratch(2));
        const channel = p.switchChannel(p.ranks, "scratch");
        const view = channel.at(p.rank(0));
        view.reduce(p.rank(0).output.at(0), 1, { op: "max" });
        view.broadcast(p.rank(0).output.at(0), 0);
        view.broadcastPackets(scratch[0]!.at(0), 1);
        expect(() => view.broadcast(p.rank(0).output.all, 0)).toThrow(/at most 2/);
        expect(() => p.switchChannel([p.rank(1)], "output").at(p.rank(0))).toThrow(/one of its members 1/);
      }),
    ).toEqual([
      "switch-reduce output[0] <- max(switch 0[1])",
      "switch-broadcast switch 0[0] <- output[0]",
      "switch-broadcast (forward) switch 0[1] <- scratch[0]",
    ]);
  });

  it("are refused to oneself, and with chunks of the wrong end", () => {
    expect(() => ops((p) => p.memoryChannel(p.rank(0), p.rank(0)))).toThrow(/another rank/);
    expect(() =>
      ops((p) => p.memoryChannel(p.rank(0), p.rank(1)).put(p.rank(0).output.at(0), p.rank(0).input.at(0))),
    ).toThrow(/far end/);
    expect(() =>
      ops((p) => p.memoryChannel(p.rank(0), p.rank(1)).get(p.rank(0).output.all, p.rank(1).input.at(0))),
    ).toThrow(/equal numbers/);
  });

  it("are checked one by one: a signal on one channel is not a wait on another", () => {
    const wrong = program({ ...BARE, collective: testCollective(2, 0, 0) }, (p) => {
      const there = [p.memoryChannel(p.rank(0), p.rank(1)), p.memoryChannel(p.rank(0), p.rank(1))] as const;
      const back = [p.memoryChannel(p.rank(1), p.rank(0)), p.memoryChannel(p.rank(1), p.rank(0))] as const;
      there[0].signal();
      back[1].wait();
    });
    expect(() => compile(wrong)).toThrow(
      /memory channel 0 from rank 0 to rank 1 is 1 more signals than waits.*last signal: .*language\.test\.ts:\d+/,
    );
    // Upstream counts by pair of ranks only.
    expect(() => compile(wrong, { compat: "mscclpp" })).not.toThrow();
  });
});

describe("loops", () => {
  it("gather what they hold by strand", () => {
    const build = (p: Builder<"p">) => {
      p.loop({ unitBytes: 1024, numChunks: 1 }, () => {
        p.rank(0).copy(p.rank(0).output.at(0), p.rank(0).input.at(0));
        p.rank(0).copy(p.rank(0).output.at(1), p.rank(0).input.at(1), 1);
        p.rank(0).copy(p.rank(0).output.at(2), p.rank(0).input.at(2));
      });
    };
    expect(ops(build)).toEqual([
      "pipeline 1 chunks by 1024 B { copy output[0] <- input[0], copy output[2] <- input[2] }",
    ]);
    expect(() =>
      ops((p) => p.loop({ unitBytes: 1, numChunks: 1 }, () => p.loop({ unitBytes: 1, numChunks: 1 }, () => undefined))),
    ).toThrow(/loop is within another loop/);
  });
});

describe("across ranks", () => {
  it("copy and reduce find their channels", () => {
    expect(
      ops((p) => {
        p.copy(p.rank(1).output.at(0), p.rank(0).input.at(0));
        p.copy(p.rank(0).output.at(0), p.rank(0).input.at(0));
        p.reduce(p.rank(0).output.at(0), p.rank(0).input.at(0), [p.rank(0).input.at(1), p.rank(1).input.at(0)]);
      }),
    ).toEqual([
      "put rank 1 output[0] <- input[0] via memory 0",
      "copy output[0] <- input[0]",
      "reduce output[0] <- sum(input[0], input[1])",
      "reduce output[0] <- sum(output[0], rank 1 input[0]) via memory 0",
    ]);
  });

  it("autoSync full inserts what the order of the program needs, and nothing when nothing is shared", () => {
    const kinds = (plan: ExecutionPlan) =>
      plan.ranks.flatMap((rank) => rank.strands.flatMap((s) => s.ops.map((op) => op.kind)));
    const give = compile(
      program({ name: "give", collective: broadcast(2), autoSync: "full" }, (p) => {
        p.copy(p.rank(0).output.all, p.rank(0).input.all);
        p.copy(p.rank(1).output.all, p.rank(0).input.all);
      }),
    );
    expect(kinds(give).filter((kind) => kind === "signal" || kind === "wait")).toEqual(["signal", "wait"]);
    const apart = compile(
      program({ name: "apart", collective: testCollective(2, 1, 1), autoSync: "full" }, (p) => {
        for (const rank of p.ranks) rank.copy(rank.output.all, rank.input.all);
      }),
    );
    expect(kinds(apart)).toEqual(["copy", "copy"]);
    const strands = compile(
      program({ name: "strands", collective: testCollective(1, 1, 1), autoSync: "full" }, (p) => {
        const inner = p.rank(0).scratch(1).all;
        p.rank(0).copy(inner, p.rank(0).input.all, 0);
        p.rank(0).copy(p.rank(0).output.all, inner, 1);
      }),
    );
    expect(strands.ranks[0]?.strands.map(({ ops: list }) => list.map((op) => op.kind))).toEqual([
      ["copy", "nop", "release"],
      ["acquire", "nop", "copy"],
    ]);
  });
});

function everywhere<P>(p: Builder<P>): void {
  for (const rank of p.ranks) p.copy(rank.output.all, p.rank(0).input.all);
}

describe("programs", () => {
  it("carry every option into the plan", () => {
    const plan = compile(
      program(
        {
          ...BARE,
          instances: 2,
          protocol: "LL",
          reuseResources: true,
          numThreadsPerBlock: 512,
          useDoubleScratchBuffer: true,
          bufferAlignment: 32,
          minMessageSizeBytes: 1024,
          maxMessageSizeBytes: 2n ** 40n,
          tags: { owner: "me" },
          ranksPerNode: 1,
        },
        () => undefined,
      ),
    );
    expect(plan.options).toEqual({
      instances: 2,
      protocol: "LL",
      reuseResources: true,
      numThreadsPerBlock: 512,
      useDoubleScratchBuffer: true,
      bufferAlignment: 32,
      minMessageSizeBytes: 1024n,
      maxMessageSizeBytes: 2n ** 40n,
    });
    expect(() => program({ ...BARE, minMessageSizeBytes: -1 }, () => undefined)).toThrow(/minMessageSizeBytes/);
    expect(() => program({ ...BARE, instances: 0 }, () => undefined)).toThrow(/instances/);
  });

  it("may be many at once, and none is global", () => {
    const outer = program({ ...BARE, name: "outer" }, (p) => {
      p.rank(0).copy(p.rank(0).output.at(0), p.rank(0).input.at(0));
      const inner = program({ ...BARE, name: "inner" }, (q) =>
        q.rank(1).copy(q.rank(1).output.at(0), q.rank(1).input.at(0)),
      );
      expect(compile(inner, { verify: false }).ranks.map((rank) => rank.strands.length)).toEqual([0, 1]);
      p.rank(0).copy(p.rank(0).output.at(1), p.rank(0).input.at(1));
    });
    expect(compile(outer, { verify: false }).ranks[0]?.strands[0]?.ops).toHaveLength(2);
  });

  it("are finished when the callback ends", () => {
    let escaped: Builder<"p"> | undefined;
    program(BARE, (p) => {
      escaped = p;
    });
    expect(() => escaped?.rank(0).copy(escaped.rank(0).output.at(0), escaped.rank(0).input.at(0))).toThrow(/finished/);
  });

  it("compute custom collectives with conditions of their own", () => {
    const swap = customCollective("swap", 2, {
      inputChunks: () => 1,
      outputChunks: () => 1,
      post: (rank) => copied(1 - rank, 0),
    });
    const right = program({ name: "swap", collective: swap, autoSync: "full" }, (p) => {
      for (const rank of p.ranks) p.copy(p.rank(1 - rank.id).output.all, rank.input.all);
    });
    expect(compile(right).collective.custom?.name).toBe("swap");
    const wrong = program({ name: "stay", collective: swap, autoSync: "full" }, (p) => {
      for (const rank of p.ranks) rank.copy(rank.output.all, rank.input.all);
    });
    expect(() => compile(wrong)).toThrow(/stay: misplaced|stay: missing-contribution/);
  });

  it("write MSCCL++'s JSON in pieces, the same as in one", () => {
    const p = program({ name: "p", collective: allReduce(2, { chunks: 1 }), autoSync: "full" }, (q) => {
      for (const rank of q.ranks) q.reduce(rank.output.all, rank.input.all, [q.rank(1 - rank.id).input.all]);
    });
    const pieces: string[] = [];
    writeMscclpp(p, (piece) => pieces.push(piece));
    const parsed = JSON.parse(pieces.join("").replace(/\d{17,}/, "0")) as {
      collective: string;
      gpus: { threadblocks: { ops: { name: string }[] }[] }[];
    };
    expect(parsed.collective).toBe("allreduce");
    expect(parsed.gpus[0]?.threadblocks[0]?.ops.map((op) => op.name)).toContain("rre");
  });

  it("give plans that survive their own file, and hashes that ignore names and lines", () => {
    const make = (name: string) => program({ name, collective: broadcast(2), autoSync: "full" }, (p) => everywhere(p));
    const plan = compile(make("one"));
    const back = planFromJson(text(plan));
    expect(text(back)).toBe(text(plan));
    expect(hashPlan(back)).toBe(hashPlan(plan));
    expect(Object.isFrozen(back.ranks[0]?.strands[0]?.ops)).toBe(true);
    expect(hashPlan(compile(make("two")))).toBe(hashPlan(plan));
    expect(
      hashPlan(
        compile(
          program({ name: "one", collective: broadcast(2, { chunks: 2 }), autoSync: "full" }, (p) => everywhere(p)),
        ),
      ),
    ).not.toBe(hashPlan(plan));
    expect(() => planFromJson("{")).toThrow(/is not JSON/);
    expect(() => planFromJson({ ...JSON.parse(text(plan)), mode: "fast" })).toThrow(/mode/);
  });
});

describe("operators", () => {
  it("of a collective are those of its reductions, wherever they are done", () => {
    const least = { collective: allReduce(2, { chunks: 4, op: "min" }) } as const;
    expect(
      ops((p) => {
        const [a, b] = [p.rank(0), p.rank(1)];
        a.reduce(a.input.at(0), [a.input.at(1)]);
        p.memoryChannel(a, b).reduce(a.input.at(0), [b.input.at(0)]);
        p.switchChannel(p.ranks, "input").at(a).reduce(a.output.at(0), 0);
        p.reduce(a.output.at(0), a.input.at(0), [a.input.at(1)]);
      }, least),
    ).toEqual([
      "reduce input[0] <- min(input[0], input[1])",
      "reduce input[0] <- min(input[0], rank 1 input[0]) via memory 0",
      "switch-reduce output[0] <- min(switch 0[0])",
      "reduce output[0] <- min(input[0], input[1])",
    ]);
  });

  it("of an average are sums: it is divided once, by whoever runs the plan", () => {
    const mean = { collective: allReduce(2, { chunks: 4, op: "avg" }) } as const;
    expect(ops((p) => p.rank(0).reduce(p.rank(0).input.at(0), [p.rank(0).input.at(1)]), mean)).toEqual([
      "reduce input[0] <- sum(input[0], input[1])",
    ]);
  });
});
