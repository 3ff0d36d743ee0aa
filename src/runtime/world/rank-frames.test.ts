import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FormatError } from "../../core/index.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";

function read(chunks: readonly Buffer[]): unknown[] {
  const seen: unknown[] = [];
  const reader = new FrameReader((message) => seen.push(message));
  for (const chunk of chunks) reader.push(chunk);
  return seen;
}

describe("messages of processes", () => {
  it("mean what they mean between threads", () => {
    const shared = new Float32Array([1, 2, 3, 4]);
    const circle: { self?: unknown } = {};
    circle.self = circle;
    const value = {
      typed: new BigInt64Array([-5n]),
      views: [shared.subarray(1), shared],
      bytes: Buffer.from("abc"),
      map: new Map<unknown, unknown>([[1, new Set(["x"])]]),
      date: new Date(5),
      big: 2n ** 70n,
      missing: undefined,
      nan: Number.NaN,
      error: new RangeError("out", { cause: new TypeError("in") }),
      circle,
      class: new (class Point {
        x = 1;
      })(),
    };
    const [copy] = read([encodeFrame(value)]) as [typeof value];
    const reference = structuredClone(value);
    expect(copy).toEqual(reference);
    expect(copy.views[0]?.buffer).toBe(copy.views[1]?.buffer);
    expect(copy.views[1]?.buffer.byteLength).toBe(16);
    expect(copy.circle.self).toBe(copy.circle);
    expect(copy.error).toBeInstanceOf(RangeError);
    expect(copy.error.stack).toBe(value.error.stack);
  });

  it("refuse what structuredClone refuses, and shared memory", () => {
    for (const value of [() => 1, Symbol("x"), new WeakMap(), new SharedArrayBuffer(8), { deep: [() => 1] }]) {
      expect(() => encodeFrame(value)).toThrow(expect.objectContaining({ name: "DataCloneError" }));
    }
  });

  it("come out whole and in order, however they are cut", () => {
    fc.assert(
      fc.property(
        fc.array(fc.anything({ withBigInt: true, withMap: true, withTypedArray: true })),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }),
        (values, cuts) => {
          const all = Buffer.concat(values.map((value) => encodeFrame(value)));
          const chunks: Buffer[] = [];
          for (let at = 0, i = 0; at < all.length; i++) {
            const next = at + (cuts[i % cuts.length] ?? 1);
            chunks.push(all.subarray(at, next));
            at = next;
          }
          expect(read(chunks)).toEqual(values.map((value) => structuredClone(value)));
        },
      ),
    );
  });

  it("are told apart from what a program writes to the descriptor", () => {
    expect(() => read([Buffer.from("hello, launcher")])).toThrow(FormatError);
    const broken = encodeFrame({ a: "b".repeat(100) });
    broken.fill(0xff, 8);
    expect(() => read([broken])).toThrow(FormatError);
  });
});
