/** What the short way takes, makes again and refuses; that it reduces rightly is test/e2e/mpi.test.ts's and conformance's. */
import { describe, expect, it } from "vitest";
import { tensor } from "../../../core/index.ts";
import { HostAddresses, worldTensor } from "../../memory/index.ts";
import { CallSequence } from "../../progress/index.ts";
import type { MpiProcess } from "./mpi-process.ts";
import type { PrepareContext } from "./prepare-calls.ts";
import { QuickCalls } from "./quick-calls.ts";

/** ES2024, which every supported Node has. */
type Resizable = ArrayBuffer & { resize(byteLength: number): void };

function setUp() {
  const context: PrepareContext = {
    addresses: new HostAddresses(),
    sequence: new CallSequence(2),
    kernels: () => {
      throw new Error("not needed");
    },
    at: undefined,
    plans: undefined,
    rank: 0,
    size: 2,
  };
  const handles = { dtypes: { f32: 11, i32: 12 }, ops: { sum: 21, prod: 22 } };
  const term = { generation: 1, closed: undefined as string | undefined };
  const quick = new QuickCalls(context, { library: { handles } } as unknown as MpiProcess, 1);
  return { quick, term, sequence: context.sequence };
}

describe("the short way of an all-reduce on mpi", () => {
  it("makes a call of the same tensors again, with the next number and the same fingerprint", () => {
    const { quick, term } = setUp();
    const [input, output] = [worldTensor(term, "f32", [4]), worldTensor(term, "f32", [4])];
    const first = quick.allReduce(input, { output });
    const second = quick.allReduce(input, { output });
    expect(second?.activities).toBe(first?.activities);
    expect(second?.arrivals[0]?.seq).toBe((first?.arrivals[0]?.seq ?? 0) + 1);
    expect(second?.arrivals[0]?.print).toEqual(first?.arrivals[0]?.print);
    expect(second).toMatchObject({ op: "all_reduce", result: output, sizeBytes: 16 });
  });

  it("makes another call where the operator, a tensor or the output differs", () => {
    const { quick, term } = setUp();
    const make = () => worldTensor(term, "f32", [4]);
    const [a, b, c] = [make(), make(), make()];
    const calls = [
      quick.allReduce(a, { output: b }),
      quick.allReduce(a, { output: b, op: "prod" }),
      quick.allReduce(c, { output: b, op: "prod" }),
      quick.allReduce(c, { output: a, op: "prod" }),
      quick.allReduce(a, { output: b }),
    ];
    expect(new Set(calls.map((call) => call?.activities?.[0])).size).toBe(5);
    const prints = calls.map((call) => call?.arrivals[0]?.print.call);
    expect(prints[0]).toBe(prints[4]);
    expect(prints[0]).not.toBe(prints[1]);
  });

  it("leaves to the long way what is freed, detached, made smaller or of another generation, and takes no number for it", () => {
    const { quick, term, sequence } = setUp();
    const good = worldTensor(term, "f32", [4]);
    const given = new Float32Array(4);
    const buffer: Resizable = Reflect.construct(ArrayBuffer, [16, { maxByteLength: 32 }]);
    const shrinking = tensor("f32", [4], new Float32Array(buffer, 0, 4));
    const wrapped = tensor("f32", [4], given);
    for (const input of [wrapped, shrinking]) {
      expect(quick.allReduce(input, { output: good })).toBeDefined();
      expect(quick.allReduce(good, { output: input })).toBeDefined();
    }
    const taken = sequence.next;
    structuredClone(given.buffer, { transfer: [given.buffer] });
    buffer.resize(8);
    const other = worldTensor({ generation: 2, closed: undefined }, "f32", [4]);
    for (const input of [wrapped, shrinking, other]) {
      expect(quick.allReduce(input, { output: good })).toBeUndefined();
      expect(quick.allReduce(good, { output: input })).toBeUndefined();
    }
    term.closed = "was closed";
    expect(quick.allReduce(shrinking, { output: good })).toBeUndefined();
    expect(sequence.next).toBe(taken);
  });
});
