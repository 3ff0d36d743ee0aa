import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type ArrayOf,
  DTYPE_NAMES,
  DTYPES,
  type DType,
  decodeFloat,
  encodeFloat,
  FLOAT_FORMATS,
  isLegal,
  isSmallFloat,
  sizeOf,
  viewAs,
} from "../../../core/index.ts";
import { ModuleBuilder } from "./assembler.ts";
import { initContext, setParameter } from "./kernel-context.ts";
import { addReduceKernels, CONTEXT, COPY_KERNEL, KERNEL_INDEX, KERNEL_OPS, type KernelOp } from "./reduce-kernels.ts";
import { compileModule, instantiate, newSharedMemory, type WasmFunction } from "./webassembly.ts";

const builder = new ModuleBuilder();
const typeIndex = addReduceKernels(builder);
builder.function(
  { params: ["i32", "i32", "i32", "i32", "i32", "i32", "i32", "i32"], results: [] },
  (f) => {
    for (let i = 1; i < 8; i++) f.get(f.param(i));
    f.get(f.param(0)).callIndirect(typeIndex);
  },
  "reduce",
);
const memory = newSharedMemory(32, 32);
const buffer = memory.buffer;
const { reduce } = instantiate<{ reduce: WasmFunction }>(compileModule(builder.encode()), memory);
const CTX = 1024;
const TABLES = 16384;
const DATA = 65536;
initContext(buffer, CTX);

/** Reads element `i` as a number or bigint. */
function value(dtype: DType, array: ArrayOf<DType>, i: number): number | bigint {
  const raw = array[i] as number | bigint;
  return isSmallFloat(dtype) ? decodeFloat(dtype, Number(raw)) : raw;
}

const WIDTH = { i8: 8, u8: 8, i32: 32, u32: 32, i64: 64, u64: 64 } as const;
const wrap = (dtype: keyof typeof WIDTH, x: bigint) =>
  dtype.startsWith("u") ? BigInt.asUintN(WIDTH[dtype], x) : BigInt.asIntN(WIDTH[dtype], x);

/** One element, by the definitions alone: BigInt for integers, float64 or float32 steps for floats. */
function expected(dtype: DType, op: KernelOp, xs: readonly (number | bigint)[], scalar: number): number | bigint {
  if (!DTYPES[dtype].isFloat) {
    const t = dtype as keyof typeof WIDTH;
    const big = xs.map(BigInt);
    const steps: Record<KernelOp, (a: bigint, b: bigint) => bigint> = {
      sum: (a, b) => a + b,
      avg: (a, b) => a + b,
      preMulSum: (a, b) => a + b,
      prod: (a, b) => a * b,
      min: (a, b) => (a - b < 0n ? a : b),
      max: (a, b) => (a - b > 0n ? a : b),
      band: (a, b) => a & b,
      bor: (a, b) => a | b,
      bxor: (a, b) => a ^ b,
    };
    const inputs = op === "preMulSum" ? big.map((x) => x * BigInt(scalar)) : big;
    const all = wrap(t, inputs.reduce(steps[op]));
    const result = op === "avg" ? all / BigInt(xs.length) : all;
    return t === "i64" || t === "u64" ? result : Number(result);
  }
  const round = dtype === "f64" ? (x: number) => x : Math.fround;
  const inputs = (xs as number[]).map((x) => (op === "preMulSum" ? round(x * round(scalar)) : x));
  const all = inputs.reduce((a, b) => {
    switch (op) {
      case "prod":
        return round(a * b);
      case "min":
        return Math.min(a, b);
      case "max":
        return Math.max(a, b);
      default:
        return round(a + b);
    }
  });
  const result = op === "avg" ? round(all / xs.length) : all;
  return isSmallFloat(dtype) ? decodeFloat(dtype, encodeFloat(dtype, result)) : result;
}

interface Case {
  readonly dtype: DType;
  readonly op: KernelOp;
  readonly ranks: number;
  readonly count: number;
  readonly outputs: number;
  /** Shifts every buffer by this many elements, so that nothing is aligned. */
  readonly shift: number;
  readonly fill: (array: ArrayOf<DType>, rank: number) => void;
}

function run({ dtype, op, ranks, count, outputs, shift, fill }: Case): void {
  const size = sizeOf(dtype);
  const stride = Math.ceil(((count + shift + 2) * size) / 64) * 64;
  const tables = new Int32Array(buffer, TABLES, 1024);
  const at = (slot: number) => DATA + slot * stride + shift * size;
  const inputs = Array.from({ length: ranks }, (_, r) => {
    const array = viewAs(dtype, buffer, at(r), count);
    fill(array, r);
    tables[r] = at(r);
    return array;
  });
  const guard = 0x5a;
  new Uint8Array(buffer, DATA + ranks * stride, outputs * stride).fill(guard);
  for (let m = 0; m < outputs; m++) tables[256 + m] = at(ranks + m);
  const scalar = 3;
  if (op === "avg") setParameter(buffer, CTX, dtype, op, ranks);
  if (op === "preMulSum") setParameter(buffer, CTX, dtype, op, scalar);
  const index = KERNEL_INDEX[dtype][op];
  if (index === undefined) throw new Error(`no kernel for ${dtype} ${op}`);
  reduce(index, TABLES, ranks, TABLES + 1024, outputs, 0, count * size, CTX);
  for (let m = 0; m < outputs; m++) {
    const got = viewAs(dtype, buffer, at(ranks + m), count);
    for (let i = 0; i < count; i++) {
      const xs = inputs.map((array) => value(dtype, array, i));
      const want = expected(dtype, op, xs, scalar);
      if (!Object.is(value(dtype, got, i), want)) {
        expect.fail(
          `${dtype} ${op} of ${ranks}, element ${i} of ${count}: [${xs}] gave ${value(dtype, got, i)}, not ${want}`,
        );
      }
    }
    const bytes = new Uint8Array(buffer, DATA + (ranks + m) * stride, stride);
    const [start, end] = [shift * size, (shift + count) * size];
    expect(bytes.every((byte, i) => (i >= start && i < end) || byte === guard)).toBe(true);
  }
}

/** A repeatable stream of random bytes: small exponents included, so that rounding and overflow both happen. */
function randomBits(seed: number): (array: ArrayOf<DType>, rank: number) => void {
  return (array, rank) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    let state = (seed * 2654435761 + rank * 40503 + 12345) >>> 0;
    for (let i = 0; i < bytes.length; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      bytes[i] = state >>> 24;
    }
  };
}

const legal = DTYPE_NAMES.flatMap((dtype) =>
  KERNEL_OPS.filter((op) => op === "preMulSum" || isLegal(op, dtype)).map((op) => ({ dtype, op })),
);

describe("reduction kernels", () => {
  it("exist for every legal dtype and operator", () => {
    expect(legal).toHaveLength(6 * 6 + 6 * 9);
    for (const { dtype, op } of legal) expect(KERNEL_INDEX[dtype][op]).toBeTypeOf("number");
  });

  it.each(legal)(
    "$dtype $op equals the definition on random bits, any count, rank count and alignment",
    ({ dtype, op }) => {
      fc.assert(
        fc.property(
          fc.constantFrom(1, 2, 3, 4, 5, 8),
          fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constantFrom(128, 129, 1023)),
          fc.integer({ min: 1, max: 3 }),
          fc.integer({ min: 0, max: 3 }),
          fc.integer({ min: 0, max: 1 << 30 }),
          (ranks, count, outputs, shift, seed) =>
            run({ dtype, op, ranks, count, outputs, shift, fill: randomBits(seed) }),
        ),
        { numRuns: 15 },
      );
    },
  );

  it.each(legal.filter(({ dtype }) => sizeOf(dtype) === 1))(
    "$dtype $op is right for every pair of bit patterns",
    ({ dtype, op }) => {
      for (let high = 0; high < 256; high += 8) {
        run({
          dtype,
          op,
          ranks: 2,
          count: 2048,
          outputs: 1,
          shift: 0,
          fill: (array, rank) => {
            const bytes = new Uint8Array(array.buffer, array.byteOffset, 2048);
            for (let i = 0; i < 2048; i++) bytes[i] = rank === 0 ? high + (i >> 8) : i & 255;
          },
        });
      }
    },
  );

  it.each(["f16", "bf16", "f8e4m3", "f8e5m2"] as const)(
    "%s keeps every bit pattern through decode and encode",
    (dtype) => {
      const count = 2 ** (8 * sizeOf(dtype));
      const { hasInfinity } = FLOAT_FORMATS[dtype];
      expect(hasInfinity).toBe(dtype !== "f8e4m3");
      run({
        dtype,
        op: "max",
        ranks: 1,
        count,
        outputs: 1,
        shift: 0,
        fill: (array) => {
          for (let i = 0; i < count; i++) array[i] = i;
        },
      });
    },
  );

  const SPECIALS = [
    0,
    -0,
    1,
    -1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    1e-45,
    -1e-45,
    3.4e38,
    -3.4e38,
    65504,
    448.5,
  ];
  it.each(legal.filter(({ dtype }) => DTYPES[dtype].isFloat))(
    "$dtype $op is right for every pair of special values",
    ({ dtype, op }) => {
      const n = SPECIALS.length;
      run({
        dtype,
        op,
        ranks: 2,
        count: n * n,
        outputs: 2,
        shift: 1,
        fill: (array, rank) => {
          for (let i = 0; i < n * n; i++) {
            const x = SPECIALS[rank === 0 ? Math.floor(i / n) : i % n] as number;
            array[i] = isSmallFloat(dtype) ? encodeFloat(dtype, x) : x;
          }
        },
      });
    },
  );

  it.each(["i32", "u32", "i64", "u64"] as const)("%s handles the ends of its range with every operator", (dtype) => {
    const bits = BigInt(8 * sizeOf(dtype));
    const ends = [0n, 1n, 2n ** (bits - 1n) - 1n, 2n ** (bits - 1n), 2n ** bits - 1n, 2n ** bits - 2n, 7n];
    for (const op of KERNEL_OPS) {
      run({
        dtype,
        op,
        ranks: 3,
        count: ends.length ** 3,
        outputs: 1,
        shift: 0,
        fill: (array, rank) => {
          for (let i = 0; i < ends.length ** 3; i++) {
            const x = ends[Math.floor(i / ends.length ** rank) % ends.length] as bigint;
            (array as BigUint64Array)[i] = (bits === 64n ? x : Number(x)) as bigint;
          }
        },
      });
    }
  });

  it.each([
    { dtype: "u8", op: "bor", ranks: 1 },
    { dtype: "f32", op: "avg", ranks: 2 },
    { dtype: "bf16", op: "sum", ranks: 2 },
    { dtype: "i64", op: "preMulSum", ranks: 2, longest: 256 * 1024 },
    { dtype: "f32", op: "sum", ranks: 4, longest: 128 * 1024 },
    { dtype: "i32", op: "max", ranks: 3 },
  ] as const satisfies readonly Partial<Case & { longest: number }>[])(
    "$dtype $op gives several outputs the same, however long they are",
    ({ dtype, op, ranks, ...more }) => {
      // Beyond `longest` it is no longer done tile by tile.
      const long = "longest" in more ? [more.longest - 8, more.longest + 8] : [];
      for (const bytes of [2048, 4096 + 24, 8192, 8192 + 8, 3 * 8192 - 8, 3 * 8192 + 24, ...long]) {
        const count = bytes / sizeOf(dtype);
        for (const outputs of [2, 3]) run({ dtype, op, ranks, count, outputs, shift: 1, fill: randomBits(bytes) });
      }
    },
  );

  it("copies bytes of any length", () => {
    for (const count of [1, 15, 16, 17, 127, 128, 129, 1000]) {
      run({ dtype: "u8", op: "bor", ranks: 1, count, outputs: 2, shift: 3, fill: randomBits(count) });
    }
    expect(COPY_KERNEL).toBe(KERNEL_INDEX.u8.sum);
    expect(CONTEXT.sizeBytes % 16).toBe(0);
  });
});
