import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ALGORITHMS, algorithm } from "../algorithms/index.ts";
import { IntervalMap } from "../compiler/interval-map.ts";
import { planFromJson, planSchema, planToJson, readMscclpp, writeMscclppPieces } from "../interchange/index.ts";
import { compile } from "../language/index.ts";
import { diffPlans, printDiff } from "./diff-plans.ts";
import { channelOrdinal, countOps, type ExecutionPlan, OP_KINDS, type SimpleOp } from "./execution-plan.ts";
import { limitViolations } from "./executor-limits.ts";
import { hashPlan } from "./hash-plan.ts";
import { placeOf } from "./plan-conditions.ts";
import { layoutPlan, pieces } from "./plan-layout.ts";
import { printPlan } from "./print-plan.ts";
import { withTables } from "./strand-tables.ts";

const ring = compile(algorithm("ring-all-reduce").make({ numRanks: 3 }));
const gather = (inPlace: boolean) => compile(algorithm("ring-all-gather").make({ numRanks: 3, inPlace }));

describe("layout", () => {
  it("is MSCCL++'s formula where sizes divide", () => {
    const [rank] = layoutPlan(ring, new Array(3).fill({ input: 48, output: 48 }), 16);
    expect(pieces(rank!.input, 1, 2)).toEqual([{ offset: 16, length: 32, skew: 0 }]);
    expect(pieces(rank!.scratch, 1, 1)).toEqual([{ offset: 16, length: 16, skew: 0 }]);
  });

  it("leaves the last chunk short, and chunks beyond the end empty", () => {
    const [rank] = layoutPlan(ring, new Array(3).fill({ input: 20, output: 20 }), 4);
    expect([0, 1, 2].map((i) => pieces(rank!.input, i, 1)[0]?.length)).toEqual([8, 8, 4]);
    const [tiny] = layoutPlan(ring, new Array(3).fill({ input: 4, output: 4 }), 4);
    expect([0, 1, 2].map((i) => pieces(tiny!.input, i, 1).length)).toEqual([1, 0, 0]);
  });

  it("cuts each part of an all-gather on its own", () => {
    const plan = compile(algorithm("direct-all-gather").make({ numRanks: 3, instances: 2 }));
    const [rank] = layoutPlan(plan, new Array(3).fill({ input: 10, output: 30 }), 2);
    // Two chunks a part: 6 and 4 bytes; a range over two parts is one piece only where nothing is cut off between.
    expect(pieces(rank!.output, 0, 6)).toEqual([
      { offset: 0, length: 10, skew: 0 },
      { offset: 10, length: 10, skew: 12 },
      { offset: 20, length: 10, skew: 24 },
    ]);
    expect(() => layoutPlan(plan, new Array(3).fill({ input: 10, output: 31 }), 2)).toThrow(/a multiple of 3/);
  });

  it("says where in-place buffers lie", () => {
    expect(placeOf(gather(true), 2, "input", 0)).toEqual({ buffer: "output", index: 2 });
    expect(placeOf(gather(false), 2, "input", 0)).toEqual({ buffer: "input", index: 0 });
  });
});

/** MSCCL++'s files name no channels for memory access; the reader takes one of several to a peer: here always the first. */
function anyChannel(plan: ExecutionPlan): ExecutionPlan {
  const simple = (op: SimpleOp, memory: readonly number[]): SimpleOp =>
    (op.kind === "put" || op.kind === "reduce") && op.channelKind === "memory"
      ? { ...op, channels: op.channels.map((id) => memory.indexOf(memory[id] ?? -1)) }
      : op;
  const ranks = plan.ranks.map((rank) => ({
    ...rank,
    strands: rank.strands.map((strand) => ({
      ...strand,
      ops: strand.ops.map((op) =>
        op.kind === "pipeline"
          ? { ...op, body: op.body.map((inner) => simple(inner, rank.channels.memory)) }
          : simple(op, rank.channels.memory),
      ),
    })),
  }));
  return { ...plan, ranks };
}

describe("plans", () => {
  it("of the whole library survive their own format, and MSCCL++'s where it can say them", () => {
    for (const entry of ALGORITHMS) {
      const plan = compile(entry.make({ numRanks: 4 }), { verify: false });
      expect(diffPlans(planFromJson(planToJson(plan)), plan), entry.name).toEqual([]);
      const written: string[] = [];
      const header = {
        name: plan.name,
        collective: plan.collective.operation.replaceAll("_", ""),
        inPlace: plan.collective.inPlace,
        options: plan.options,
      };
      writeMscclppPieces(header, plan.ranks.map(withTables), (piece) => written.push(piece));
      const back = readMscclpp(written.join(""), entry.name);
      expect(
        diffPlans(anyChannel(back), anyChannel(plan)).filter((d) => d.where !== "collective"),
        entry.name,
      ).toEqual([]);
    }
  });

  it("have a JSON schema", () => {
    const schema = z.toJSONSchema(planSchema, { io: "input" }) as { properties: Record<string, unknown> };
    expect(Object.keys(schema.properties)).toContain("ranks");
  });

  it("print themselves, and count their operations", () => {
    const text = printPlan(ring, [1]);
    expect(text.split("\n").filter((line) => line.startsWith("rank "))).toEqual([
      "rank 1: input 3, output 3, scratch 2 chunks",
    ]);
    expect(text.match(/^ {4}\S/gm)).toHaveLength(countOps(ring) / 3);
    expect(OP_KINDS).toHaveLength(15);
  });

  it("differ in words", () => {
    const other = compile(algorithm("ring-all-reduce").make({ numRanks: 3, numThreadsPerBlock: 32 }));
    expect(printDiff(diffPlans(ring, other))).toMatch(
      /^@ options\n- .*"numThreadsPerBlock":1024.*\n\+ .*"numThreadsPerBlock":32/,
    );
    expect(diffPlans(ring, ring)).toEqual([]);
  });

  it("are refused when a field is wrong, by its path", () => {
    const broken = JSON.parse(planToJson(ring)) as {
      ranks: { rank: number; strands: { ops: { kind: string }[] }[] }[];
    };
    broken.ranks[1]!.rank = 5;
    expect(() => planFromJson(broken)).toThrow(/ranks\.1\.rank: is 5, expected 1/);
    broken.ranks[1]!.rank = 1;
    broken.ranks[0]!.strands[0]!.ops[0]!.kind = "teleport";
    expect(() => planFromJson(broken)).toThrow(/ranks\.0\.strands\.0\.ops\.0/);
    expect(() => planFromJson({ ...broken, ranks: [] })).toThrow(/ranks: is empty; a plan has one rank or more/);
  });
});

describe("MSCCL++ files", () => {
  const good = () => ({
    name: "x",
    collective: "allreduce",
    protocol: "Simple",
    inplace: true,
    gpus: [
      {
        id: 0,
        input_chunks: 1,
        output_chunks: 1,
        scratch_chunks: 0,
        threadblocks: [{ id: 0, ops: [{ name: "nop" } as Record<string, unknown>] }],
        channels: [],
        remote_buffers: [],
      },
    ],
  });

  it("are read with the executor's defaults", () => {
    expect(readMscclpp(good()).options).toMatchObject({
      numThreadsPerBlock: 1024,
      bufferAlignment: 16,
      maxMessageSizeBytes: 2n ** 64n - 1n,
    });
    expect(
      readMscclpp(
        JSON.stringify({ ...good(), max_message_size: 0 }).replace(
          '"max_message_size":0',
          '"max_message_size":18446744073709551614',
        ),
      ).options.maxMessageSizeBytes,
    ).toBe(2n ** 64n - 2n);
  });

  it.each([
    ["no list of ranks", (f: ReturnType<typeof good>) => Object.assign(f, { gpus: 3 }), /gpus: is not a list/],
    ["a rank out of order", (f: ReturnType<typeof good>) => (f.gpus[0]!.id = 4), /gpus\[0\]\.id: is 4; expected 0/],
    [
      "an unknown operation",
      (f: ReturnType<typeof good>) => (f.gpus[0]!.threadblocks[0]!.ops[0] = { name: "warp" }),
      /ops\[0\]\.name: is "warp"/,
    ],
    [
      "a channel that is not there",
      (f: ReturnType<typeof good>) =>
        (f.gpus[0]!.threadblocks[0]!.ops[0] = { name: "signal", channel_type: "memory", channel_ids: [3] }),
      /names memory channel 3 of 0/,
    ],
    [
      "a negative index",
      (f: ReturnType<typeof good>) =>
        (f.gpus[0]!.threadblocks[0]!.ops[0] = {
          name: "copy",
          src_buff: [{ type: "i", index: -1, size: 1 }],
          dst_buff: [],
        }),
      /index: is not a whole number/,
    ],
    [
      "no source",
      (f: ReturnType<typeof good>) =>
        (f.gpus[0]!.threadblocks[0]!.ops[0] = { name: "copy", src_buff: [], dst_buff: [] }),
      /has no source/,
    ],
    [
      "a loop within a loop",
      (f: ReturnType<typeof good>) => {
        const loop = { name: "pipeline", iter_context: { unit_size: 1, num_chunks: 1 }, ops: [] as unknown[] };
        f.gpus[0]!.threadblocks[0]!.ops[0] = { ...loop, ops: [loop] };
      },
      /pipeline within a pipeline/,
    ],
    [
      "a flush of memory channels",
      (f: ReturnType<typeof good>) =>
        (f.gpus[0]!.threadblocks[0]!.ops[0] = { name: "flush", channel_type: "memory", channel_ids: [] }),
      /ops\[0\]\.channel_type: is "memory"; expected port/,
    ],
    [
      "a switch operation over memory channels",
      (f: ReturnType<typeof good>) =>
        (f.gpus[0]!.threadblocks[0]!.ops[0] = { name: "gstore", channel_type: "memory", src_buff: [], dst_buff: [] }),
      /channel_type: is "memory"; expected switch/,
    ],
    [
      "a group of another size than its ranks",
      (f: ReturnType<typeof good>) =>
        Object.assign(f.gpus[0]!, {
          channels: [{ channel_type: "switch", buffer_type: "i", rank_groups: [{ size: 2, ranks: [0] }] }],
        }),
      /rank_groups\[0\]\.size: is 2, but 1 ranks are listed/,
    ],
    [
      "a table of channels that are not there",
      (f: ReturnType<typeof good>) =>
        Object.assign(f.gpus[0]!.threadblocks[0]!, { channels: [{ channel_type: "port", channel_ids: [0] }] }),
      /channels\[0\]\.channel_ids\[0\]: is 0, but the rank has 0 port channels/,
    ],
    [
      "a remote buffer that is not reachable that way",
      (f: ReturnType<typeof good>) => {
        Object.assign(f.gpus[0]!, { remote_buffers: [{ rank: 0, type: "o", access_channel_types: ["memory"] }] });
        Object.assign(f.gpus[0]!.threadblocks[0]!, {
          remote_buffer_refs: [{ access_channel_type: "port", remote_buffer_ids: [0] }],
        });
      },
      /remote_buffer_ids\[0\]: is remote buffer 0, whose access_channel_types \(memory\) do not include port/,
    ],
    [
      "a switch reduction of another buffer than its channel's",
      (f: ReturnType<typeof good>) => {
        Object.assign(f.gpus[0]!, {
          channels: [{ channel_type: "switch", buffer_type: "i", rank_groups: [{ size: 1, ranks: [0] }] }],
        });
        const to = { rank: 0, type: "o", index: 0, size: 1 };
        const glre = { name: "glre", buffer_type: "s", buffer_offset: 0, size: 1, dst_chunk: to, channel_ids: [0] };
        Object.assign(f.gpus[0]!.threadblocks[0]!, {
          channels: [{ channel_type: "switch", channel_ids: [0] }],
          ops: [glre],
        });
      },
      /buffer_type: is the scratch, but the switch channel spans the input/,
    ],
  ])("are refused with %s", (_, spoil, message) => {
    const file = good();
    spoil(file);
    expect(() => readMscclpp(file)).toThrow(message);
  });

  it("are refused without a rank", () => {
    expect(() => readMscclpp({ ...good(), gpus: [] })).toThrow(/gpus: is empty; a plan has one rank or more/);
  });

  it.each(["__proto__", "constructor"])("are refused with a buffer named %s, and freeze nothing of others", (word) => {
    const file = good();
    const to = { type: "o", index: 0, size: 1 };
    file.gpus[0]!.threadblocks[0]!.ops[0] = { name: "copy", src_buff: [{ ...to, type: word }], dst_buff: [to] };
    expect(() => readMscclpp(file)).toThrow(/src_buff\[0\]\.type: is not a buffer/);
    expect(Object.isFrozen(Object.prototype)).toBe(false);
  });

  it("are within the executor's limits, or it is said where not", () => {
    const big = compile(algorithm("ring-all-reduce").make({ numRanks: 16 }), { verify: false });
    expect(limitViolations(big)[0]).toMatchObject({
      rank: 0,
      strand: 0,
      limit: "opsPerStrand",
      message: "149 operations in a strand, the executor holds 64",
    });
    expect(limitViolations(ring)).toEqual([]);
  });
});

describe("IntervalMap", () => {
  it("keeps pieces that a naive array of values confirms", () => {
    const map = new IntervalMap<number>();
    const naive = new Array<number | undefined>(40).fill(undefined);
    let seed = 7;
    const next = (n: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % n;
    };
    for (let i = 0; i < 2000; i++) {
      const start = next(40);
      const end = Math.min(40, start + next(12));
      const add = next(5);
      map.update(start, end, (old) => (old ?? 0) + add);
      for (let k = start; k < end; k++) naive[k] = (naive[k] ?? 0) + add;
      const from = next(40);
      const to = Math.min(40, from + 1 + next(6));
      const seen = new Set<number>();
      map.visit(from, to, (value) => seen.add(value));
      expect(seen).toEqual(new Set(naive.slice(from, to).filter((v) => v !== undefined)));
    }
  });
});

describe("a channel's place among those to its peer", () => {
  it("is the same in a plan and in a draft, which still changes", () => {
    const draft = [3, 1, 3, 2, 1, 3];
    const expected = [0, 0, 1, 0, 1, 2];
    const frozen = Object.freeze([...draft]);
    // Twice, as the second answer of a frozen list is remembered.
    for (const peers of [draft, frozen, frozen]) {
      expect(peers.map((_, id) => channelOrdinal(peers, id))).toEqual(expected);
    }
    draft[0] = 1;
    expect(draft.map((_, id) => channelOrdinal(draft, id))).toEqual([0, 1, 0, 0, 2, 1]);
    expect([channelOrdinal(frozen, 6), channelOrdinal(draft, 6)]).toEqual([0, 0]);
  });
});

describe("a plan's hash", () => {
  /** The same plan with the fields of every object the other way round. */
  const turned = (value: unknown): unknown => {
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map(turned);
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .map(([name, field]) => [name, turned(field)]),
    );
  };

  it("is what it was when plans in files were named by it", () => {
    expect(hashPlan(ring)).toBe("df4d37bdd1aa2fe8");
    expect(hashPlan(compile(algorithm("one-shot-packet-all-reduce").make({ numRanks: 3 })))).toBe("a3aa8d303c96f2a5");
  });

  it("takes no notice of the order of fields, and of what says where a plan comes from", () => {
    expect(hashPlan(turned(ring) as ExecutionPlan)).toBe(hashPlan(ring));
    expect(hashPlan({ ...ring, name: "another", sources: [] })).toBe(hashPlan(ring));
    const [first, ...others] = ring.ranks;
    const one = { ...first!, output: { ...first!.output, chunks: 7 } };
    expect(hashPlan({ ...ring, ranks: [one, ...others] })).not.toBe(hashPlan(ring));
  });
});
