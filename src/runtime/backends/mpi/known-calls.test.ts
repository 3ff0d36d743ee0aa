/** What is kept of a call and what is not; that calls which are made again are right is test/e2e/mpi.test.ts's. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { type Tensor, tensor } from "../../../core/index.ts";
import { checkArguments } from "../../comm/call.ts";
import type { TensorCall } from "../../comm/index.ts";
import { HostAddresses, worldTensor } from "../../memory/index.ts";
import { CallSequence } from "../../progress/index.ts";
import { KnownCalls, type KnownOptions } from "./known-calls.ts";
import { type PrepareContext, prepareCollective } from "./prepare-calls.ts";

type Made = Parameters<typeof checkArguments>[0];

function setUp(size = 2) {
  const sequence = new CallSequence(size);
  const context: PrepareContext = {
    addresses: new HostAddresses(),
    sequence,
    kernels: () => {
      throw new Error("not needed");
    },
    at: undefined,
    plans: undefined,
    rank: 0,
    size,
  };
  const known = new KnownCalls(sequence, 1);
  const term = { generation: 1, closed: undefined as string | undefined };
  const call = (op: Made["op"], data: Made["data"], options: KnownOptions, timeoutMs?: number) => {
    const redop = op === "reduce_scatter" || op === "reduce" ? (options.op ?? "sum") : undefined;
    const more = { ...(redop && { redop }), ...(op === "reduce" && { root: options.root ?? 0 }) };
    const numRanks = context.size;
    const counts = op === "all_to_all_v" ? { sendCounts: [4], recvCounts: [4] } : {};
    const checked = checkArguments({ op, data, options, numRanks, rank: 0, ...more, ...counts });
    const whole: TensorCall = { kind: "tensors", ...checked, timeoutMs, algorithm: undefined };
    const prepared = prepareCollective(context, whole);
    known.keep(whole, prepared);
    return prepared;
  };
  const make = (size: number) => worldTensor(term, "f32", [size]);
  return { known, sequence, term, call, make };
}

describe("a call of the same tensors", () => {
  it("is made from what was kept, with the next number and the same fingerprint", () => {
    const { known, call, make } = setUp();
    const [part, whole] = [make(4), make(8)];
    const first = call("reduce_scatter", whole, { output: part, op: "max" });
    const second = known.again("reduce_scatter", whole, { output: part, op: "max" });
    expect(second?.arrivals).toEqual([{ ...first.arrivals[0], seq: (first.arrivals[0]?.seq ?? 0) + 1 }]);
    expect(second?.activity).not.toBe(first.activity);
    expect(second).toMatchObject({ op: "reduce_scatter", result: part, sizeBytes: 32 });
    expect(second?.regions).toBe(first.regions);
  });

  it("is another where an option or a tensor is, and takes no number then", () => {
    const { known, sequence, call, make } = setUp();
    const [x, y] = [make(4), make(4)];
    call("reduce", x, { output: y, root: 1, op: "max" });
    const { next } = sequence;
    const output = y as Tensor;
    for (const [op, input, options] of [
      ["broadcast", x, { output, root: 1 }],
      ["reduce", y, { output, root: 1, op: "max" }],
      ["reduce", x, { output: x, root: 1, op: "max" }],
      ["reduce", x, { root: 1, op: "max" }],
      ["reduce", x, { output, op: "max" }],
      ["reduce", x, { output, root: 1 }],
      ["reduce", x, { output, root: 1, op: "max", timeoutMs: 5 }],
      ["reduce", x, { output, root: 1, op: "max", signal: new AbortController().signal }],
      ["reduce", x, { output, root: 1, op: "max", dtype: "f32" }],
    ] as const) {
      expect(known.again(op, input, options)).toBeUndefined();
    }
    expect(sequence.next).toBe(next);
    expect(known.again("reduce", x, { output, root: 1, op: "max" })).toBeDefined();
  });

  it("is not kept where its result is fresh, of arrays, or with a deadline of its own", () => {
    const { known, call, make } = setUp();
    const [part, whole] = [make(4), make(8)];
    const array = new Float32Array(4);
    call("all_gather", part, {});
    expect(known.again("all_gather", part, {})).toBeUndefined();
    call("all_gather", array, { output: whole });
    expect(known.again("all_gather", array, { output: whole })).toBeUndefined();
    call("all_gather", part, { output: whole }, 5);
    expect(known.again("all_gather", part, { output: whole })).toBeUndefined();
  });

  it("is kept of large tensors as well, without holding them", async () => {
    const { known, call, make } = setUp();
    const large = make(2 ** 20);
    call("broadcast", large, {});
    expect(known.again("broadcast", large, {})?.result).toBe(large);
    const keep = () => {
      const [input, output] = [make(2 ** 20), make(2 ** 21)];
      call("all_gather", input, { output });
      return [new WeakRef(input), new WeakRef(output)];
    };
    const kept = keep();
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    for (let looks = 0; looks < 20 && kept.some((one) => one.deref() !== undefined); looks++) {
      await new Promise((resolve) => setImmediate(resolve));
      collect();
    }
    expect(kept.map((one) => one.deref())).toEqual([undefined, undefined]);
  });

  it("holds no large tensor of a program that never lets the event loop run", () => {
    const { known, call, make } = setUp();
    const held = () => process.memoryUsage().arrayBuffers / 2 ** 20;
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const before = held();
    // Of 4 MiB each.
    for (let i = 0; i < 20; i++) call("broadcast", make(2 ** 20), {});
    collect();
    collect();
    expect(held() - before).toBeLessThan(40);
    expect(known.again("broadcast", make(2 ** 20), {})).toBeUndefined();
  });

  it("is not kept where it has counts, which the next one may have others of", () => {
    const { known, call, make } = setUp(1);
    const [x, y] = [make(4), make(4)];
    call("all_to_all_v", x, { output: y });
    expect(known.again("all_to_all_v", x, { output: y })).toBeUndefined();
  });

  it("is checked anew where its memory was freed, detached or is of another generation", () => {
    const { known, sequence, call, make, term } = setUp();
    const given = new Float32Array(4);
    const [wrapped, whole] = [tensor("f32", [4], given), make(8)];
    const options = { output: whole };
    call("all_gather", wrapped, options);
    expect(known.again("all_gather", wrapped, options)).toBeDefined();
    const { next } = sequence;
    structuredClone(given.buffer, { transfer: [given.buffer] });
    expect(known.again("all_gather", wrapped, options)).toBeUndefined();
    const part = make(4);
    call("all_gather", part, options);
    term.closed = "was closed";
    expect(known.again("all_gather", part, options)).toBeUndefined();
    expect(sequence.next).toBe(next + 1);
  });
});
