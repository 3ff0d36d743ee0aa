/**
 * The local steps of a quantised all-reduce on CPUs, as WebAssembly SIMD: blocks of f32, f16 or bf16 to 8-bit floats and a scale
 * each, sums of such blocks in f32, and blocks back to elements. Four f32 lanes at a time; the conversions are those of all kernels.
 */
import { FLOAT_FORMATS, type SmallFloat } from "../../core/index.ts";
import {
  compileModule,
  decodeLanes,
  encodeLanes,
  type FunctionBuilder,
  instantiate,
  type Local,
  ModuleBuilder,
  type WasmMemory,
  type WasmModule,
} from "../executor/internal.ts";
import {
  ABOVE_LARGEST,
  QUANTIZED_DTYPES,
  QUANTIZED_FORMATS,
  type QuantizedDType,
  type QuantizedFormat,
  SCALED_FORMATS,
} from "./block-layout.ts";

type Kernel = (...args: number[]) => void;
/**
 * - `quantize_T_F(from, data, scales, blocks, blockSize, spare)`; `spare` holds a block of f32
 * - `place_F` and `add_F(sums, data, scales, blocks, blockSize)`: to f32, and added to f32
 * - `restore_T_F(to, data, scales, blocks, blockSize)`
 * - `divide(sums, count, divisor)`, and `finish_T(to, sums, count)`: from f32 to elements; counts are multiples of 16
 */
export type QuantizeExports = { readonly divide: Kernel } & {
  readonly [K in `place_${QuantizedFormat}` | `add_${QuantizedFormat}`]: Kernel;
} & { readonly [K in `finish_${QuantizedDType}`]: Kernel } & {
  readonly [K in `${"quantize" | "restore"}_${QuantizedDType}_${QuantizedFormat}`]: Kernel;
};

/** Elements of one turn of an inner loop: 16 bytes of an 8-bit float. */
const TURN = 16;
const QUARTERS = [0, 1, 2, 3];
const NAN_BITS = 0x7fc0_0000;
const LARGEST_FINITE_BITS = 0x7f7f_ffff;
/** 2^-127, which has no exponent of its own. */
const LEAST_SCALE_BITS = 0x40_0000;

let compiled: WasmModule | undefined;

/** The kernels over one memory. */
export function quantizeKernels(memory: WasmMemory): QuantizeExports {
  compiled ??= compileModule(assembleQuantize());
  return instantiate<QuantizeExports>(compiled, memory);
}

function assembleQuantize(): Uint8Array<ArrayBuffer> {
  const module = new ModuleBuilder();
  for (const format of QUANTIZED_FORMATS) {
    addSum(module, format, "place");
    addSum(module, format, "add");
    for (const dtype of QUANTIZED_DTYPES) {
      addQuantize(module, dtype, format);
      addRestore(module, dtype, format);
    }
  }
  addDivide(module);
  for (const dtype of QUANTIZED_DTYPES) addFinish(module, dtype);
  return module.encode();
}

const sizeOf = (dtype: QuantizedDType) => (dtype === "f32" ? 4 : 2);

/** Runs `body` until `left` is 0; it counts down. */
function repeat(f: FunctionBuilder, left: Local, by: number, body: () => void): void {
  f.block(() =>
    f.loop(() => {
      f.get(left).op("i32.eqz").brIf(1);
      body();
      f.get(left).i32(by).op("i32.sub").set(left).br(0);
    }),
  );
}

function advance(f: FunctionBuilder, cursor: Local, by: number): void {
  f.get(cursor).i32(by).op("i32.add").set(cursor);
}

/** Four elements at `address + offset`, as f32 on the stack. */
function load(
  f: FunctionBuilder,
  dtype: QuantizedDType,
  address: Local,
  offset: number,
  spare: readonly Local[],
): void {
  if (dtype === "f32") f.get(address).mem("v128.load", offset);
  else {
    f.get(address).mem("v128.load16x4_u", offset);
    decodeLanes(f, dtype, spare[0] as Local, spare[1] as Local);
  }
}

/** As `encodeLanes`, of what fits the format. */
function encodeScaled(f: FunctionBuilder, small: SmallFloat, x: Local, a: Local): void {
  const { exponentBits, mantissaBits, bias } = FLOAT_FORMATS[small];
  const shift = 23 - mantissaBits;
  // Subnormal results: the adder rounds at the format's smallest step.
  const magic = (127 + 1 - bias + 23 - mantissaBits) << 23;
  f.get(x).splat32(0x7fff_ffff).op("v128.and").tee(a);
  f.splat32(magic).op("f32x4.add").splat32(magic).op("i32x4.sub");
  f.get(a, a).i32(shift).op("i32x4.shr_u").splat32(1).op("v128.and", "i32x4.add");
  f.splat32((1 << (shift - 1)) - 1 - ((127 - bias) << 23))
    .op("i32x4.add")
    .i32(shift)
    .op("i32x4.shr_u");
  f.get(a)
    .splat32((128 - bias) << 23)
    .op("i32x4.lt_s", "v128.bitselect");
  f.get(x)
    .i32(31 - exponentBits - mantissaBits)
    .op("i32x4.shr_u");
  f.splat32(1 << (exponentBits + mantissaBits)).op("v128.and", "v128.or");
}

function addQuantize(module: ModuleBuilder, dtype: QuantizedDType, format: QuantizedFormat): void {
  const { dtype: small, largestExponent, mostBits } = SCALED_FORMATS[format];
  const params = Array.from({ length: 6 }, () => "i32" as const);
  module.function(
    { params, results: [] },
    (f) => {
      const [from, data, scales] = [f.param(0), f.param(1), f.param(2)];
      const [blocks, blockSize, spare] = [f.param(3), f.param(4), f.param(5)];
      const [cursor, left, first, isHard] = f.locals("i32", "i32", "i32", "i32");
      const isF32 = dtype === "f32";
      const [x, a, most, inverse] = f.locals("v128", "v128", "v128", "v128");
      const temporaries = [f.local("v128"), f.local("v128")];
      const codes = [f.local("v128"), f.local("v128"), f.local("v128"), f.local("v128")];
      /** Sets `most` to the largest of its lanes. */
      const acrossLanes = () => {
        for (const by of [8, 4]) {
          f.get(most, most, most).shuffle(Array.from({ length: 16 }, (_, i) => (i + by) % 16));
          f.op("i32x4.max_s").set(most);
        }
      };
      /** Goes through the f32 of the block, which the first pass has left. */
      const eachTurn = (body: (quarter: number) => void, after: () => void = () => {}) => {
        f.get(isF32 ? first : spare)
          .set(cursor)
          .get(blockSize)
          .set(left);
        repeat(f, left, TURN, () => {
          for (const q of QUARTERS) body(q);
          after();
          advance(f, cursor, 4 * TURN);
        });
      };
      /** Stores the codes of the block, which `encodeOne` leaves on the stack of what is in `x`. */
      const put = (encodeOne: () => void) =>
        eachTurn(
          (q) => {
            f.get(cursor)
              .mem("v128.load", 16 * q)
              .set(x);
            encodeOne();
            f.set(codes[q] as Local);
          },
          () => {
            f.get(data);
            for (const half of [0, 2]) f.get(...codes.slice(half, half + 2)).op("i16x8.narrow_i32x4_u");
            f.op("i8x16.narrow_i16x8_u").mem("v128.store");
            advance(f, data, TURN);
          },
        );
      repeat(f, blocks, 1, () => {
        // The block's largest magnitude, by its bits.
        f.get(from).set(first).splat32(0).set(most).get(spare).set(cursor).get(blockSize).set(left);
        repeat(f, left, TURN, () => {
          for (const q of QUARTERS) {
            load(f, dtype, from, 4 * sizeOf(dtype) * q, temporaries);
            if (!isF32)
              f.set(x)
                .get(cursor, x)
                .mem("v128.store", 16 * q)
                .get(x);
            f.splat32(0x7fff_ffff).op("v128.and").get(most).op("i32x4.max_s").set(most);
          }
          advance(f, from, TURN * sizeOf(dtype));
          advance(f, cursor, 4 * TURN);
        });
        acrossLanes();
        f.get(most).splat32(mostBits).op("i32x4.gt_s", "v128.any_true").set(isHard);
        f.get(isHard);
        f.if(() => {
          // The largest finite one.
          f.splat32(0).set(most);
          eachTurn((q) => {
            f.get(cursor)
              .mem("v128.load", 16 * q)
              .tee(x)
              .splat32(0x7fff_ffff)
              .op("v128.and")
              .set(a);
            f.get(a, a)
              .splat32(LARGEST_FINITE_BITS)
              .op("i32x4.gt_s", "v128.andnot")
              .get(most)
              .op("i32x4.max_s")
              .set(most);
          });
          acrossLanes();
        });
        // The scale's exponent, with f32's bias.
        f.get(most).splat32(ABOVE_LARGEST).op("i32x4.add").i32(23).op("i32x4.shr_u");
        f.splat32(largestExponent).op("i32x4.sub").splat32(0).op("i32x4.max_s").set(a);
        f.get(scales, a).lane("i64x2.extract_lane", 0).op("i32.wrap_i64").mem("i32.store8");
        advance(f, scales, 1);
        f.splat32(254).get(a).op("i32x4.sub").i32(23).op("i32x4.shl").set(inverse);
        f.get(isHard);
        f.if(
          () =>
            put(() => {
              // Below what would be rounded up to infinity, with its sign; NaN for what is not finite.
              f.get(x).splat32(0x7fff_ffff).op("v128.and").set(a).splat32(NAN_BITS);
              f.get(a).splat32(mostBits).op("i32x4.min_s").get(x).splat32(0x8000_0000).op("v128.and", "v128.or");
              f.get(a).splat32(LARGEST_FINITE_BITS).op("i32x4.gt_s", "v128.bitselect");
              f.get(inverse).op("f32x4.mul").set(x);
              encodeLanes(f, small, x, a);
            }),
          () =>
            put(() => {
              f.get(x, inverse).op("f32x4.mul").set(x);
              encodeScaled(f, small, x, a);
            }),
        );
      });
    },
    `quantize_${dtype}_${format}`,
  );
}

/** Sets `scale` to that of the block whose exponent is at `scales`. */
function loadScale(f: FunctionBuilder, scales: Local, scale: Local): void {
  f.get(scales).mem("i32.load8_u").op("i32x4.splat").i32(23).op("i32x4.shl");
  f.splat32(LEAST_SCALE_BITS).op("i32x4.max_s").set(scale);
  advance(f, scales, 1);
}

/** Four quantised elements at `data + offset`, as f32 on the stack. */
function loadQuantized(
  f: FunctionBuilder,
  format: QuantizedFormat,
  [data, offset]: readonly [Local, number],
  scale: Local,
  [h, em]: readonly [Local, Local],
): void {
  f.get(data).mem("v128.load32_zero", offset).op("i16x8.extend_low_i8x16_u", "i32x4.extend_low_i16x8_u");
  decodeLanes(f, SCALED_FORMATS[format].dtype, h, em);
  f.get(scale).op("f32x4.mul");
}

function addSum(module: ModuleBuilder, format: QuantizedFormat, how: "place" | "add"): void {
  const params = Array.from({ length: 5 }, () => "i32" as const);
  module.function(
    { params, results: [] },
    (f) => {
      const [sums, data, scales, blocks, blockSize] = [f.param(0), f.param(1), f.param(2), f.param(3), f.param(4)];
      const left = f.local("i32");
      const [scale, h, em] = f.locals("v128", "v128", "v128");
      repeat(f, blocks, 1, () => {
        loadScale(f, scales, scale);
        f.get(blockSize).set(left);
        repeat(f, left, TURN, () => {
          for (const q of QUARTERS) {
            f.get(sums);
            if (how === "add") f.get(sums).mem("v128.load", 16 * q);
            loadQuantized(f, format, [data, 4 * q], scale, [h, em]);
            if (how === "add") f.op("f32x4.add");
            f.mem("v128.store", 16 * q);
          }
          advance(f, sums, 4 * TURN);
          advance(f, data, TURN);
        });
      });
    },
    `${how}_${format}`,
  );
}

/** Stores sixteen elements, which `element` leaves on the stack as f32 by four. What is not finite is one NaN, on all processors. */
function store(
  f: FunctionBuilder,
  dtype: QuantizedDType,
  to: Local,
  element: (quarter: number) => void,
  [x, a]: readonly [Local, Local],
): void {
  const finite = (q: number) => {
    element(q);
    f.set(x).splat32(NAN_BITS).get(x).get(x).splat32(0x7fff_ffff).op("v128.and");
    f.splat32(LARGEST_FINITE_BITS).op("i32x4.gt_s", "v128.bitselect");
  };
  if (dtype === "f32") {
    for (const q of QUARTERS) {
      f.get(to);
      finite(q);
      f.mem("v128.store", 16 * q);
    }
    return;
  }
  for (const half of [0, 1]) {
    f.get(to);
    for (const q of [2 * half, 2 * half + 1]) {
      finite(q);
      f.set(x);
      encodeLanes(f, dtype, x, a);
    }
    f.op("i16x8.narrow_i32x4_u").mem("v128.store", 16 * half);
  }
}

function addFinish(module: ModuleBuilder, dtype: QuantizedDType): void {
  module.function(
    { params: ["i32", "i32", "i32"], results: [] },
    (f) => {
      const [to, sums, count] = [f.param(0), f.param(1), f.param(2)];
      const [x, a] = f.locals("v128", "v128");
      repeat(f, count, TURN, () => {
        store(f, dtype, to, (q) => f.get(sums).mem("v128.load", 16 * q), [x, a]);
        advance(f, to, TURN * sizeOf(dtype));
        advance(f, sums, 4 * TURN);
      });
    },
    `finish_${dtype}`,
  );
}

function addRestore(module: ModuleBuilder, dtype: QuantizedDType, format: QuantizedFormat): void {
  const params = Array.from({ length: 5 }, () => "i32" as const);
  module.function(
    { params, results: [] },
    (f) => {
      const [to, data, scales, blocks, blockSize] = [f.param(0), f.param(1), f.param(2), f.param(3), f.param(4)];
      const left = f.local("i32");
      const [scale, h, em, x] = f.locals("v128", "v128", "v128", "v128");
      const element = (q: number) => loadQuantized(f, format, [data, 4 * q], scale, [h, em]);
      repeat(f, blocks, 1, () => {
        loadScale(f, scales, scale);
        f.get(blockSize).set(left);
        repeat(f, left, TURN, () => {
          store(f, dtype, to, element, [x, h]);
          advance(f, to, TURN * sizeOf(dtype));
          advance(f, data, TURN);
        });
      });
    },
    `restore_${dtype}_${format}`,
  );
}

function addDivide(module: ModuleBuilder): void {
  module.function(
    { params: ["i32", "i32", "i32"], results: [] },
    (f) => {
      const [sums, count, divisor] = [f.param(0), f.param(1), f.param(2)];
      const by = f.local("v128");
      f.get(divisor).op("i32x4.splat", "f32x4.convert_i32x4_s").set(by);
      repeat(f, count, 4, () => {
        f.get(sums, sums).mem("v128.load").get(by).op("f32x4.div").mem("v128.store");
        advance(f, sums, 16);
      });
    },
    "divide",
  );
}
