import { runInThisContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  AbortedError,
  DTYPE_NAMES,
  FormatError,
  InvalidArgumentError,
  MismatchError,
  RankFailedError,
  REDUCE_OPS,
  TimeoutError,
  tensor,
} from "../../core/index.ts";
import { loadedRoot } from "../world/package-location.ts";
import {
  type Communicator,
  callSite,
  checkArguments,
  collectBatch,
  decodeFailure,
  decodeObject,
  describeWords,
  encodeFailure,
  encodeObject,
  errorOf,
  failureOf,
  hashNumbers,
  inertBatch,
  OpCounters,
  opCode,
  PendingWork,
  packCall,
  SettledWork,
  unpackCall,
  WIRE_OPS,
} from "./index.ts";

class ManualWork<T> extends PendingWork<T> {
  awaited = 0;
  wait(): T {
    return this.result();
  }
  protected onAwaited(): void {
    this.awaited++;
  }
}

describe("work", () => {
  it("resolves those who waited before and after its end, each once", async () => {
    const work = new ManualWork<number>(0, "all_reduce", "world");
    const early = Promise.all([work, work.then((x) => x + 1)]);
    expect(work.awaited).toBe(1);
    work.complete(7);
    work.complete(8);
    work.fail(new Error("too late"));
    expect(await early).toEqual([7, 8]);
    expect(await work).toBe(7);
    expect(work.wait()).toBe(7);
    expect(work.state).toBe("done");
  });

  it("keeps a failure to itself until somebody looks", async () => {
    const rejections: unknown[] = [];
    const listener = (reason: unknown) => rejections.push(reason);
    process.on("unhandledRejection", listener);
    const work = new ManualWork<number>(0, "all_reduce", "world");
    work.fail(new Error("lost"));
    await new Promise((resolve) => setImmediate(resolve));
    expect(rejections).toEqual([]);
    expect(work.seen).toBe(false);
    await expect((async () => await work)()).rejects.toThrow("lost");
    expect(work.seen).toBe(true);
    expect(() => work.wait()).toThrow("lost");
    process.off("unhandledRejection", listener);
  });

  it("chains as promises do, rejections included", async () => {
    const failed = new SettledWork<number>(1, "barrier", "world", { error: new Error("no") });
    expect(await failed.then(undefined, (e) => (e as Error).message)).toBe("no");
    const done = new SettledWork<number>(1, "barrier", "world", { value: 3 });
    expect(await done.then((x) => x * 2)).toBe(6);
    await expect(done.then(() => Promise.reject(new Error("inner")))).rejects.toThrow("inner");
  });
});

describe("fingerprints", () => {
  it("say every call again", () => {
    for (const op of WIRE_OPS) {
      for (const dtype of [...DTYPE_NAMES, undefined]) {
        for (const redop of [...REDUCE_OPS, undefined]) {
          for (const root of [0, 1, 255, 65_535]) {
            const back = unpackCall(packCall(op, dtype, redop, root));
            expect(back).toEqual({ op, dtype, redop, root });
          }
        }
      }
    }
  });

  it("differ when any part of the call differs", () => {
    const words = WIRE_OPS.flatMap((op) =>
      DTYPE_NAMES.flatMap((dtype) => [
        packCall(op, dtype, "sum", 0),
        packCall(op, dtype, "max", 0),
        packCall(op, dtype, "sum", 1),
      ]),
    );
    expect(new Set(words).size).toBe(words.length);
  });

  it("read as a person would write the call", () => {
    expect(describeWords(packCall("all_reduce", "f16", "max", 0), 12)).toBe("all_reduce(f16[12], max)");
    expect(describeWords(packCall("broadcast", "i64", undefined, 3), 1)).toBe("broadcast(i64[1], root 3)");
    expect(describeWords(packCall("barrier", undefined, undefined, 0), 0)).toBe("barrier()");
    expect(describeWords(packCall("all_reduce", "f32", { kind: "preMulSum", scalar: 2 }, 0), 4)).toContain("preMulSum");
  });

  it("hash lists by value and order", () => {
    expect(hashNumbers([1, 2, 3])).toBe(hashNumbers([1, 2, 3]));
    expect(hashNumbers([1, 2, 3])).not.toBe(hashNumbers([1, 3, 2]));
    expect(hashNumbers([5])).not.toBe(hashNumbers([5n]));
    expect(hashNumbers([0])).not.toBe(hashNumbers([-0]));
  });
});

describe("failures", () => {
  const ranks = [
    { rank: 0, arrived: true, lastOp: "barrier", lastSeq: 4 },
    { rank: 1, arrived: false },
  ];
  const sides = [
    { rank: 0, call: "barrier()", callSite: "main.ts:3" },
    { rank: 1, call: "all_reduce(f32[4], sum)" },
  ];

  it.each([
    new AbortedError("enough"),
    new TimeoutError("barrier() #3", 50, ranks),
    new MismatchError("they differ", sides),
    new RankFailedError(3, 2, new Error("out of cheese")),
  ])("$name is the same error on another rank", (error) => {
    const copy = errorOf(decodeFailure(encodeFailure(failureOf(error), 4000)));
    expect(copy).toBeInstanceOf(error.constructor);
    expect(copy.message).toBe(error.message);
    expect(copy.code).toBe(error.code);
  });

  it("fit their space whatever they say", () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 5000 }), fc.integer({ min: 1, max: 400 }), (text, n) => {
        const many = Array.from({ length: n }, (_, rank) => ({ rank, call: text }));
        for (const error of [
          new AbortedError(text),
          new MismatchError(text.slice(0, 50), many),
          new TimeoutError(
            "x",
            1,
            many.map(({ rank }) => ({ rank, arrived: false })),
          ),
          new RankFailedError(1, 1, new Error(text)),
        ]) {
          const bytes = encodeFailure(failureOf(error), 3840);
          expect(bytes.length).toBeLessThanOrEqual(3840);
          expect(decodeFailure(bytes).code).toBeTypeOf("string");
        }
      }),
      { numRuns: 100 },
    );
    expect(decodeFailure(Uint8Array.of(1, 2, 3)).code).toBe("ABORTED");
  });

  it("point at the caller", () => {
    const whereAmI = () => callSite();
    expect(whereAmI()).toMatch(/^whereAmI \(.*comm\.test\.ts:\d+:\d+\)$/);
    // Frames of chorale's runtime are passed over, whoever called it.
    const inRuntime = runInThisContext("(fn) => fn()", new URL("runtime/comm/call.js", loadedRoot).href);
    expect((inRuntime as (fn: () => unknown) => unknown)(callSite)).toMatch(/comm\.test\.ts/);
  });
});

describe("arguments", () => {
  const base = { numRanks: 2, rank: 0, options: {} };

  it("take their dtype from the tensor, the array, or the option", () => {
    expect(checkArguments({ ...base, op: "all_reduce", data: tensor("f16", [4]) }).call.dtype).toBe("f16");
    expect(checkArguments({ ...base, op: "all_reduce", data: new BigInt64Array(2) }).call.dtype).toBe("i64");
    const options = { dtype: "bf16" } as const;
    expect(checkArguments({ ...base, options, op: "all_reduce", data: new Uint16Array(3) }).call.dtype).toBe("bf16");
    const output = new Uint16Array(3);
    expect(
      checkArguments({ ...base, op: "all_reduce", data: tensor("f16", [3]), options: { output } }).output?.dtype,
    ).toBe("f16");
  });

  it.each([
    ["an array that may be two types", { op: "all_reduce", data: new Uint16Array(3) }],
    ["what is no data", { op: "all_reduce", data: [1, 2, 3] }],
    ["a dtype the array cannot hold", { op: "all_reduce", data: new Float32Array(1), options: { dtype: "f64" } }],
    [
      "an output of another dtype",
      { op: "all_reduce", data: new Float32Array(2), options: { output: new Int32Array(2) } },
    ],
    [
      "an output of another length",
      { op: "all_reduce", data: new Float32Array(2), options: { output: new Float32Array(3) } },
    ],
    ["an overlap", overlap()],
    ["a length that has no two equal parts", { op: "reduce_scatter", data: new Float32Array(3) }],
    ["a root outside the group", { op: "broadcast", data: new Float32Array(3), root: 2 }],
    ["itself as peer", { op: "send", data: new Float32Array(3), peer: 0 }],
    ["a deadline of 0", { op: "all_reduce", data: new Float32Array(1), options: { timeoutMs: 0 } }],
  ] as const)("refuse %s", (_, args) => {
    expect(() => checkArguments({ ...base, ...args } as never)).toThrow(InvalidArgumentError);
  });

  it("refuse arrays whose memory is gone, or may become smaller under way", () => {
    const said = (data: Float32Array) => () => checkArguments({ ...base, op: "all_reduce", data });
    const gone = new Float32Array(4);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    expect(said(gone)).toThrow(/input is an array whose buffer was transferred; expected an array that has its memory/);
    const Resizable = ArrayBuffer as new (bytes: number, options: { readonly maxByteLength: number }) => ArrayBuffer;
    const buffer = new Resizable(16, { maxByteLength: 64 });
    expect(said(new Float32Array(buffer))).toThrow(/input is a view of a resizable buffer; expected memory of a fixed/);
    expect(said(new Float32Array(0))).not.toThrow();
  });

  it("refuse a signal that was raised before", () => {
    const signal = AbortSignal.abort(new Error("stop"));
    expect(() => checkArguments({ ...base, options: { signal }, op: "all_reduce", data: new Float32Array(1) })).toThrow(
      "stop",
    );
  });

  function overlap() {
    const buffer = new Float32Array(6);
    return { op: "all_reduce", data: buffer.subarray(0, 4), options: { output: buffer.subarray(2, 6) } } as const;
  }
});

describe("objects", () => {
  it("come back as they were, and are bounded", () => {
    const values = [
      undefined,
      null,
      -0,
      "x",
      [1, { a: "é" }],
      [1, undefined],
      1n,
      new Map([[{ k: 1 }, new Set([2])]]),
      /x/g,
    ];
    const views = [
      new Float32Array([Number.NaN]),
      Buffer.from("ab"),
      new DataView(new ArrayBuffer(3)),
      new ArrayBuffer(2),
    ];
    for (const value of [...values, ...views, new RangeError("no"), Object.create(null), new Date(5)]) {
      const copy = decodeObject(encodeObject(value, 10_000));
      expect(copy).toEqual(value);
      if (typeof value === "object" && value !== null) {
        expect(Object.prototype.toString.call(copy)).toBe(Object.prototype.toString.call(value));
      }
    }
    expect(() => encodeObject("x".repeat(2000), 1000)).toThrow(/value is 2005 bytes; expected at most 1000/);
    expect(decodeObject(undefined)).toBeUndefined();
    expect(() => decodeObject(new Uint8Array(3))).toThrow(FormatError);
  });

  it("are refused when they would arrive as something else, however deep", () => {
    class Map2 extends Map {}
    const late = { a: [new Map([[1, { b: new Map2() }]])] };
    for (const value of [
      () => 1,
      Symbol("x"),
      late,
      Promise.resolve(),
      new URL("http://a"),
      new WeakSet(),
      tensor("f32", [1]),
      Object.assign(new Date(0), { zone: "UTC" }),
      Object.assign(new Map(), { size2: 1 }),
      Object.assign(new Error("gone"), { code: "ENOENT" }),
      Object.assign(new Error("gone"), { name: "Mine" }),
      new Error("gone", { cause: new Map2() }),
    ]) {
      expect(() => encodeObject(value, 1000)).toThrow(InvalidArgumentError);
    }
    let deep: unknown = 1;
    for (let i = 0; i < 100_000; i++) deep = [deep];
    expect(() => encodeObject(deep, 1000)).toThrow(InvalidArgumentError);
  });
});

describe("a batch", () => {
  it("can be filled without sending anything", () => {
    const calls = inertBatch(
      (group) => {
        for (let peer = 0; peer < group.size; peer++) if (peer !== group.rank) group.send(new Int32Array(2), peer);
        group.barrier().wait();
      },
      { rank: 1, size: 3 },
    );
    expect(calls.map(({ method, args }) => [method, args[1]])).toEqual([
      ["send", 0],
      ["send", 2],
      ["barrier", undefined],
    ]);
  });

  it("is taken back when its function throws or returns a promise", () => {
    const reasons: string[] = [];
    const group = {} as Communicator;
    const fail = () => {
      throw new RangeError("mine");
    };
    expect(() => collectBatch(fail, group, (reason) => reasons.push(reason))).toThrow(RangeError);
    const later = (async () => {}) as () => void;
    expect(() => collectBatch(later, group, (reason) => reasons.push(reason))).toThrow(InvalidArgumentError);
    expect(() => inertBatch(later)).toThrow(InvalidArgumentError);
    expect(reasons).toHaveLength(2);
    collectBatch(
      () => {},
      group,
      (reason) => reasons.push(reason),
    );
    expect(reasons).toHaveLength(2);
  });
});

describe("statistics", () => {
  it("count all calls and scale the timed ones up", () => {
    const counters = new OpCounters();
    const counter = counters.byCode[opCode("all_reduce")];
    if (counter === undefined) throw new Error("no counter");
    counter.calls = 100;
    counter.bytes = 400;
    counter.time(2);
    counter.time(4);
    expect(counters.snapshot()).toEqual({
      all_reduce: { calls: 100, failures: 0, bytes: 400, totalUs: 300, maxUs: 4 },
    });
  });
});
