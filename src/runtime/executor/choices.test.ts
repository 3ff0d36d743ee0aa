import { beforeAll, describe, expect, it, vi } from "vitest";
import { ALGORITHMS } from "../../authoring/algorithms/index.ts";
import { COLLECTIVE_NAMES } from "../../collectives/index.ts";
import { loadLibraryPlans } from "./algorithm-names.ts";
import {
  type ChoiceDocument,
  type ChoicePlace,
  Choices,
  checkChoices,
  choiceNews,
  type KernelNames,
} from "./choices.ts";
import { PLAN_CHOICES } from "./plan-choices.ts";
import { parseServed, SERVED_COLLECTIVES } from "./served.ts";
import { SHIPPED_CHOICES } from "./shipped-choices.ts";

let library: Awaited<ReturnType<typeof loadLibraryPlans>>;
beforeAll(async () => {
  library = await loadLibraryPlans();
});

const kernels = Object.fromEntries(
  COLLECTIVE_NAMES.map((op) => [op, [op === "all_reduce" ? "two-shot-kernel" : "direct-kernel"]]),
) as unknown as KernelNames;
const place = (numRanks: number, topology = "own-cores"): ChoicePlace => ({
  backend: "threads",
  group: "world",
  numRanks,
  topology,
  kernels,
});
const nccl = Object.fromEntries(COLLECTIVE_NAMES.map((op) => [op, ["nccl"]])) as unknown as KernelNames;
/** The shipped choices of the cuda backend. */
const onDevices = (numRanks: number, topology: string) =>
  new Choices({ ...place(numRanks, topology), backend: "cuda", kernels: nccl }, [SHIPPED_CHOICES]);
const table = { backend: "threads", collective: "all_reduce", ranks: [2, 4] } as const;
const document = (...tables: ChoiceDocument["tables"]): ChoiceDocument => ({
  schemaVersion: 1,
  source: "this-machine",
  date: "2026-01-02",
  tables,
});

describe("parseServed", () => {
  it("reads a name, instances and chunks", () => {
    expect(parseServed("chain-broadcast*2/16", [])).toEqual({
      kind: "plan",
      name: "chain-broadcast",
      instances: 2,
      chunks: 16,
      label: "chain-broadcast*2/16",
    });
    expect(parseServed("direct-kernel", ["direct-kernel"])).toMatchObject({ kind: "kernel", instances: 1 });
  });
  it.each([
    "",
    "*2",
    "ring*0",
    "ring*257",
    "ring/0",
    "ring/2000",
    "ring*2*2",
    "ring-all-reduce *2",
    "../x",
    "ring*1e2",
  ])("refuses %j", (label) => {
    expect(() => parseServed(label, [])).toThrow(expect.objectContaining({ argument: "algorithm" }));
  });
  it("gives kernels neither instances nor chunks", () => {
    expect(() => parseServed("direct-kernel*2", ["direct-kernel"])).toThrow(/direct-kernel alone/);
  });
});

describe("choices", () => {
  it("have a shipped table for every collective, for any number of ranks, that names what exists", () => {
    expect(checkChoices(JSON.parse(JSON.stringify(SHIPPED_CHOICES)), "shipped")).toEqual(SHIPPED_CHOICES);
    expect(checkChoices(JSON.parse(JSON.stringify(PLAN_CHOICES)), "plans")).toEqual(PLAN_CHOICES);
    expect(PLAN_CHOICES.tables.map(({ collective }) => collective)).toEqual(SERVED_COLLECTIVES);
    for (const n of [1, 2, 7, 256]) {
      const choices = new Choices(place(n), [SHIPPED_CHOICES]);
      for (const op of COLLECTIVE_NAMES) expect(choices.choose(op, "f32", 0).source).toMatch(/^shipped 2026/);
    }
  });

  it.each([
    ["processes", "all_gather", 2 ** 24, "staged-all-gather*88@512.unit64K"],
    ["processes", "all_reduce", 2 ** 30, "streaming-all-reduce*66@512.unit256K"],
    ["processes", "all_reduce", 2 ** 30 + 1, "nccl"],
    ["processes", "all_to_all", 2 ** 26, "staged-all-to-all*66@512.unit128K"],
    ["processes", "broadcast", 2 ** 28, "direct-broadcast*16@copies.512"],
    ["threads", "all_gather", 2 ** 30, "direct-all-gather*16@copies.512"],
    ["processes", "broadcast", 2 ** 28, "nccl", "nvidia-h100-80gb-hbm3"],
    ["processes", "reduce", 2 ** 22, "packet-reduce*128@512.lines"],
    ["processes", "gather", 2 ** 24, "nccl"],
    ["threads", "gather", 2 ** 28, "direct-gather*16@copies.512"],
    ["processes", "scatter", 2 ** 24, "staged-scatter*66@512.unit64K"],
    ["threads", "all_reduce", 2 ** 18, "one-shot-packet-all-reduce*64@512.lines"],
    ["processes", "all_reduce", 2 ** 20, "one-shot-packet-all-reduce*64@512.sheets"],
    ["threads", "all_reduce", 2 ** 28, "streaming-all-reduce*66@512.unit256K"],
    ["threads", "all_reduce", 2 ** 26, "streaming-all-reduce*66@512.unit128K"],
    ["threads", "broadcast", 1024, "packet-broadcast*4@256.lines"],
    ["threads", "broadcast", 2 ** 14, "packet-broadcast*8@256.lines", "nvidia-h100-80gb-hbm3"],
    ["processes", "gather", 2 ** 26, "staged-gather*66@512.unit256K", "nvidia-h100-80gb-hbm3"],
    ["processes", "all_gather", 2 ** 24, "staged-all-gather*88@512.unit64K", "nvidia-h100-80gb-hbm3"],
  ] as const)(
    "of two GPUs have for %s and %s of %d bytes %s",
    (how, collective, bytes, label, gpu: string = "nvidia-h200") => {
      expect(onDevices(2, `${gpu} ${how}`).choose(collective, "f32", bytes).served.label).toBe(label);
    },
  );

  it.each([
    [2, "all_reduce", 2 ** 24, "streaming-all-reduce*100@512.unit64K", "two-phase-all-reduce*64@256"],
    [2, "all_reduce", 2 ** 26, "streaming-all-reduce*66@512.unit128K", undefined],
    [2, "all_gather", 2 ** 24, "staged-all-gather*88@512.unit64K", "streaming-all-gather*66@512"],
    [2, "all_gather", 2 ** 26, "staged-all-gather*66@512.unit128K", "streaming-all-gather*66@512"],
    [2, "all_gather", 2 ** 28, "direct-all-gather*16@copies.512", undefined],
    [4, "all_reduce", 2 ** 24, "two-phase-packet-all-reduce*128@1024.sheets", "two-phase-push-all-reduce*128@256"],
    [4, "all_reduce", 2 ** 26, "nccl", "two-phase-push-all-reduce*128@512.u8"],
    [4, "all_reduce", 2 ** 28, "nccl", undefined],
    [4, "all_gather", 2 ** 24, "packet-all-gather*128@512.lines", "one-pass-all-gather*128@256"],
    [4, "reduce_scatter", 2 ** 26, "streaming-reduce-scatter*100@512.unit64K", "read-reduce-scatter*64@256.u8"],
  ] as const)(
    "of %d GPUs have for captured calls of processes, %s of %d bytes, beside %s %s",
    (ranks, op, bytes, use, captured) => {
      const found = onDevices(ranks, "nvidia-h200 processes").choose(op, "f32", bytes);
      expect([found.served.label, found.captured?.served.label]).toEqual([use, captured]);
      expect(onDevices(ranks, "nvidia-h200 threads").choose(op, "f32", bytes).captured).toBeUndefined();
    },
  );

  it.each(["threads", "processes"])("of devices name what the library has, ranks as %s", (how) => {
    const tables = SHIPPED_CHOICES.tables.filter(({ topology }) => topology?.endsWith(` ${how}`));
    expect([...new Set(tables.map(({ ranks }) => ranks[0]))].sort()).toEqual([2, 4]);
    for (const { collective, ranks, topology = "", rows } of tables) {
      const choices = onDevices(ranks[0], topology);
      for (const { fromBytes, use, captured } of rows) {
        const found = choices.choose(collective, "f32", fromBytes);
        const labels = [found.served.label, found.captured?.served.label];
        expect([topology, ranks, ...labels]).toEqual([topology, ranks, use, captured]);
      }
    }
  });

  it("come from the first document with a table that fits ranks, dtype and topology, by size", () => {
    const own = document(
      { ...table, topology: "shared-cores", rows: [{ fromBytes: 0, use: "binomial-all-reduce" }] },
      { ...table, dtypes: ["f64"], rows: [{ fromBytes: 0, use: "ring-all-reduce" }] },
      {
        ...table,
        rows: [
          { fromBytes: 0, use: "two-shot-kernel" },
          { fromBytes: 1024, use: "ring-all-reduce*2" },
          { fromBytes: 65_536, use: "two-shot-read-all-reduce" },
        ],
      },
    );
    const label = (choices: Choices, bytes: number, dtype: "f32" | "f64" = "f32") =>
      choices.choose("all_reduce", dtype, bytes).served.label;
    const four = new Choices(place(4), [own, SHIPPED_CHOICES]);
    expect([0, 1023, 1024, 65_535, 65_536, 1e12].map((bytes) => label(four, bytes))).toEqual([
      "two-shot-kernel",
      "two-shot-kernel",
      "ring-all-reduce*2",
      "ring-all-reduce*2",
      "two-shot-read-all-reduce",
      "two-shot-read-all-reduce",
    ]);
    expect(label(four, 5, "f64")).toBe("ring-all-reduce");
    expect(four.choose("all_reduce", "f32", 2000)).toMatchObject({
      fromBytes: 1024,
      toBytes: 65_536,
      source: "this-machine 2026-01-02",
    });
    expect(label(new Choices(place(4, "shared-cores"), [own, SHIPPED_CHOICES]), 5)).toBe("binomial-all-reduce");
    expect(label(new Choices(place(5), [own, SHIPPED_CHOICES]), 5)).toBe("two-shot-kernel");
    expect(new Choices(place(9), [own, SHIPPED_CHOICES]).firstPlanBytes("all_reduce")).toBe(Infinity);
    expect(four.firstPlanBytes("broadcast")).toBe(32_768);
    expect(new Choices(place(2), [SHIPPED_CHOICES]).firstPlanBytes("broadcast")).toBe(4096);
    expect(four.firstPlanBytes("barrier")).toBe(Infinity);
    expect(four.firstPlanBytes("all_reduce")).toBe(0);
  });

  it("pass over a table that names what this version does not have, or not for so many ranks", () => {
    for (const use of ["best-of-all", "ring-all-gather", "ring-all-reduce/4"]) {
      const own = document({ ...table, rows: [{ fromBytes: 0, use }] });
      const choice = new Choices(place(2), [own, SHIPPED_CHOICES]).choose("all_reduce", "f32", 1);
      expect(choice.served.label, use).toBe("two-shot-kernel");
    }
  });

  it("answer a wrong name with those that the collective takes here", () => {
    const choices = new Choices(place(3), [SHIPPED_CHOICES]);
    const named = (label: unknown) => () => choices.named("all_gather", "f32", 4, label as string);
    expect(named("ring-all-gather*2")()).toMatchObject({ served: { instances: 2 }, source: "algorithm:" });
    for (const wrong of ["ring-all-reduce", "nothing", 5, "switch-all-gather", "recursive-doubling-all-gather"]) {
      expect(named(wrong)).toThrow(/expected one of direct-kernel, direct-all-gather, .*bruck-all-gather/);
    }
    expect(choices.accepted("all_gather_v")).toEqual(["direct-kernel"]);
  });

  it("answer a shape of devices on a backend that has none", () => {
    const named = (backend: string) => () =>
      new Choices({ ...place(2), backend }, [SHIPPED_CHOICES]).named("all_reduce", "f32", 4, "ring-all-reduce@512");
    for (const backend of ["threads", "tcp"]) {
      expect(named(backend)).toThrow(
        `algorithm is "ring-all-reduce@512"; expected ring-all-reduce alone: on ${backend} nothing has a device's shapes`,
      );
    }
    expect(named("cuda")()).toMatchObject({ served: { shape: { threads: 512 } } });
  });

  it("tell of each choice once, and count their calls", () => {
    const lines: string[] = [];
    const own = document({ ...table, rows: [{ fromBytes: 0, use: "ring-all-reduce" }] });
    const choices = new Choices(place(2), [own, SHIPPED_CHOICES], {
      ...choiceNews(0)!,
      selected: (line) => lines.push(line),
    });
    for (let i = 0; i < 3; i++) choices.choose("all_reduce", "f32", 100 + i).calls++;
    expect(choices.knownName("all_reduce", "two-shot-kernel")).toBeUndefined();
    const named = choices.named("all_reduce", "f32", 5, "two-shot-kernel");
    named.calls++;
    expect(choices.knownName("all_reduce", "two-shot-kernel")).toBe(named);
    expect(choices.knownName("broadcast", "two-shot-kernel")).toBeUndefined();
    expect(choices.named("all_reduce", "f64", 9, "two-shot-kernel")).toBe(named);
    choices.choose("broadcast", "f32", 1 << 20);
    expect(lines).toEqual([
      "chorale select: all_reduce of f32, 100 B, group world of 2 ranks on threads (own-cores): ring-all-reduce, a plan, from 0 B; this-machine 2026-01-02",
      "chorale select: all_reduce of f32, 5 B, group world of 2 ranks on threads (own-cores): two-shot-kernel, a kernel, from 0 B; algorithm:",
      "chorale select: broadcast of f32, 1 MiB, group world of 2 ranks on threads (own-cores): one-pass-broadcast, a plan, from 4 KiB; shipped 2026-11-29",
    ]);
    expect(choices.counts()).toEqual({ "all_reduce ring-all-reduce": 3, "all_reduce two-shot-kernel": 1 });
  });

  it("tell and count what serves captured calls beside the rest, and pass over a table that names what is no algorithm", () => {
    const lines: string[] = [];
    const of = (captured: string) => {
      const rows = [
        { fromBytes: 0, use: "nccl" },
        { fromBytes: 4096, use: "packet-all-gather", captured },
      ];
      const own = document({ backend: "cuda", collective: "all_gather", ranks: [2, 2], rows });
      const news = { passedOver: () => {}, selected: (line: string) => void lines.push(line) };
      const at = { ...place(2, "gpu processes"), backend: "cuda", kernels: nccl };
      return new Choices(at, [own, SHIPPED_CHOICES], news);
    };
    const choices = of("streaming-all-gather*8@512");
    expect(choices.choose("all_gather", "f32", 4095).captured).toBeUndefined();
    const found = choices.choose("all_gather", "f32", 4096);
    expect(found.captured).toMatchObject({ fromBytes: 4096, toBytes: Number.POSITIVE_INFINITY, source: found.source });
    found.calls += 2;
    found.captured!.calls++;
    expect(choices.counts()).toEqual({
      "all_gather packet-all-gather": 2,
      "all_gather streaming-all-gather*8@512": 1,
    });
    expect(lines.at(-1)).toMatch(
      /: packet-all-gather, a plan, in graphs streaming-all-gather\*8@512, from 4 KiB; this-machine/,
    );
    for (const wrong of ["long-gone-all-gather", "ring-all-reduce"]) {
      expect(of(wrong).choose("all_gather", "f32", 4096).served.label).toBe("nccl");
    }
  });

  it.each([
    ["must be a text", {}, 5],
    ["must be absent: only cuda captures calls", { backend: "threads" }, "one-pass-all-gather"],
    ["must be absent: runs of a program are served alike, captured or not", { program: "0123456789abcdef" }, "ring-x4"],
    ["must differ from use, or be absent", {}, "packet-all-gather"],
    ["must name an algorithm: calls of nccl connect ranks first, which only a direct call can", {}, "nccl"],
    [/a name such as ring-all-reduce/, {}, "packet*0"],
  ])("refuse a row's captured: %s", (problem, changes, captured) => {
    const rows = [{ fromBytes: 0, use: "packet-all-gather", captured }];
    const tables = [{ backend: "cuda", collective: "all_gather", ranks: [2, 2], rows, ...changes }];
    const check = () => checkChoices({ ...document(), tables }, "file.json");
    expect(check).toThrow(
      expect.objectContaining({
        code: "INVALID_FORMAT",
        where: "file.json",
        field: "choices.tables[0].rows[0].captured",
      }),
    );
    expect(check).toThrow(problem);
  });

  it("warns, once, of words that CHORALE_LOG does not know", () => {
    const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    try {
      vi.stubEnv("CHORALE_LOG", "select,");
      expect(choiceNews(0)?.selected).toBeDefined();
      expect(warned).not.toHaveBeenCalled();
      vi.stubEnv("CHORALE_LOG", "selects, debug");
      expect(choiceNews(1)).toBeUndefined();
      for (let i = 0; i < 2; i++) expect(choiceNews(0)?.selected).toBeUndefined();
      expect(warned.mock.calls).toEqual([
        [
          'CHORALE_LOG lists "selects", "debug"; only select is known',
          { type: "ChoraleWarning", code: "CHORALE_UNKNOWN_LOG" },
        ],
      ]);
    } finally {
      warned.mockRestore();
      vi.unstubAllEnvs();
    }
  });

  it("warns, once, of a table that names what is no algorithm here: the next table serves", () => {
    const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    try {
      const old = document({ ...table, rows: [{ fromBytes: 0, use: "long-gone-all-reduce*2" }] });
      const shipped = document({ ...table, rows: [{ fromBytes: 0, use: "two-shot-kernel" }] });
      const make = (member: number) => new Choices(place(2), [old, shipped], choiceNews(member));
      const choices = make(0);
      for (const dtype of ["f32", "f16", "f32"] as const) {
        expect(choices.choose("all_reduce", dtype, 4).served.label).toBe("two-shot-kernel");
      }
      make(1).choose("all_reduce", "f32", 4);
      expect(warned).toHaveBeenCalledTimes(1);
      expect(warned).toHaveBeenCalledWith(
        expect.stringMatching(/"this-machine 2026-01-02".* names long-gone-all-reduce\*2, .*another table serves/),
        { type: "ChoraleWarning", code: "CHORALE_UNKNOWN_ALGORITHM" },
      );
    } finally {
      warned.mockRestore();
    }
  });

  it.each<[string, (d: Record<string, unknown>) => void]>([
    ["choices.schemaVersion", (d) => Object.assign(d, { schemaVersion: 2 })],
    ["choices.source", (d) => Object.assign(d, { source: 5 })],
    ["choices.tables", (d) => Object.assign(d, { tables: {} })],
    ["choices.tables[0].collective", (d) => Object.assign(d, { tables: [{ ...table, collective: "send", rows: [] }] })],
    ["choices.tables[0].ranks", (d) => Object.assign(d, { tables: [{ ...table, ranks: [3, 2], rows: [] }] })],
    ["choices.tables[0].rows", (d) => Object.assign(d, { tables: [{ ...table, rows: [] }] })],
    ["choices.tables[0].dtypes", (d) => Object.assign(d, { tables: [{ ...table, dtypes: ["f33"], rows: [] }] })],
    [
      "choices.tables[0].rows[0].fromBytes",
      (d) => Object.assign(d, { tables: [{ ...table, rows: [{ fromBytes: 1, use: "a" }] }] }),
    ],
    [
      "choices.tables[0].rows[1].fromBytes",
      (d) =>
        Object.assign(d, {
          tables: [
            {
              ...table,
              rows: [
                { fromBytes: 0, use: "a" },
                { fromBytes: 0, use: "b" },
              ],
            },
          ],
        }),
    ],
    [
      "choices.tables[0].rows[0].use",
      (d) => Object.assign(d, { tables: [{ ...table, rows: [{ fromBytes: 0, use: "a*0" }] }] }),
    ],
  ])("refuse a document whose %s is wrong, and name it", (field, change) => {
    const broken = { ...document() } as Record<string, unknown>;
    change(broken);
    expect(() => checkChoices(broken, "file.json")).toThrow(
      expect.objectContaining({ code: "INVALID_FORMAT", where: "file.json", field }),
    );
  });
});

describe("serving plans", () => {
  it("are proved and out of place, and say whether a result on top of the input is right too", () => {
    const of = (label: string, collective: "all_reduce" | "all_gather" | "reduce_scatter") =>
      library.servingPlan({ served: parseServed(label, []), collective, numRanks: 2, root: 0 }, undefined);
    const fused = of("two-shot-fused-read-all-reduce", "all_reduce");
    expect(fused.plan.collective.inPlace).toBe(false);
    expect(fused.hash).toMatch(/^[0-9a-f]{16}$/);
    expect(of("two-shot-fused-read-all-reduce", "all_reduce")).toBe(fused);
    const harmless = ALGORITHMS.filter((a) => a.collective === "all_reduce" && a.legal(2) && !a.needsSwitch).filter(
      (a) => of(a.name, "all_reduce").worksInPlace(),
    );
    expect(harmless.map((a) => a.name)).toMatchInlineSnapshot(`
      [
        "two-shot-all-reduce",
        "two-shot-read-all-reduce",
        "two-shot-fused-read-all-reduce",
        "one-pass-all-reduce",
        "two-phase-all-reduce",
        "two-phase-read-all-reduce",
        "two-phase-push-all-reduce",
        "streaming-two-phase-all-reduce",
        "staged-all-reduce",
        "ring-all-reduce",
        "bidirectional-ring-all-reduce",
        "multi-ring-all-reduce",
        "mesh-all-reduce",
        "recursive-doubling-all-reduce",
        "halving-doubling-all-reduce",
        "double-binary-tree-all-reduce",
        "binomial-all-reduce",
      ]
    `);
    expect(of("direct-all-gather", "all_gather").worksInPlace()).toBe(true);
    expect(of("one-shot-read-all-reduce", "all_reduce").worksInPlace()).toBe(false);
  });
});
