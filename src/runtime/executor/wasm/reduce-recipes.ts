/** What the reduction kernels do to one vector, by dtype and operator: load, combine, scale, finish, pack. */
import type { DType, NamedReduceOp } from "../../../core/index.ts";
import type { FunctionBuilder, Local } from "./assembler.ts";
import type { Opcode } from "./opcodes.ts";
import { decode, encode } from "./small-float-lanes.ts";

export type KernelOp = NamedReduceOp | "preMulSum";

/** Accumulators of a 16-byte group, and how they are loaded, combined, finished and packed. */
interface Recipe {
  readonly accumulators: 1 | 2 | 4;
  /** Loads the group at `address + offset` into `into`. */
  load(f: FunctionBuilder, address: Local, offset: number, into: readonly Local[]): void;
  /** acc = acc (op) x */
  combine(f: FunctionBuilder, acc: Local, x: Local): void;
  /** Multiplies a loaded vector by the parameter (preMulSum). */
  scale?: (f: FunctionBuilder, x: Local, parameter: Local) => void;
  /** Applied once to each accumulator at the end (avg). */
  finish?: (f: FunctionBuilder, acc: Local, parameter: Local) => void;
  /** Leaves the 16 bytes to store on the stack. */
  pack(f: FunctionBuilder, from: readonly Local[], temporaries: readonly Local[]): void;
}

type Lanes = "i8x16" | "i32x4" | "i64x2" | "f32x4" | "f64x2";
const LANES: { readonly [D in DType]: Lanes } = {
  f32: "f32x4",
  f64: "f64x2",
  f16: "f32x4",
  bf16: "f32x4",
  f8e4m3: "f32x4",
  f8e5m2: "f32x4",
  i8: "i8x16",
  u8: "i8x16",
  i32: "i32x4",
  u32: "i32x4",
  i64: "i64x2",
  u64: "i64x2",
};

const EVEN_BYTES = Array.from({ length: 16 }, (_, i) => 2 * i);
const HIGH_HALF = Array.from({ length: 16 }, (_, i) => 8 + (i % 8));
const LOW_HALVES = Array.from({ length: 16 }, (_, i) => (i < 8 ? i : 8 + i));

/** x * y of two locals, left on the stack. */
function multiply(f: FunctionBuilder, lanes: Lanes, x: Local, y: Local): void {
  if (lanes !== "i8x16") {
    f.get(x, y).op(`${lanes}.mul`);
    return;
  }
  f.get(x, y).op("i16x8.extmul_low_i8x16_u");
  f.get(x, y).op("i16x8.extmul_high_i8x16_u");
  f.shuffle(EVEN_BYTES);
}

function pick(f: FunctionBuilder, dtype: DType, lanes: Lanes, op: "min" | "max", acc: Local, x: Local): void {
  if (lanes === "f32x4" || lanes === "f64x2") {
    f.get(acc, x).op(`${lanes}.${op}`);
  } else if (lanes !== "i64x2") {
    f.get(acc, x).op(`${lanes}.${op}_${dtype.startsWith("u") ? "u" : "s"}`);
  } else {
    f.get(acc, x);
    for (const local of [acc, x]) {
      f.get(local);
      if (dtype === "u64") f.splat64(0, 0x80000000).op("v128.xor");
    }
    f.op(op === "min" ? "i64x2.lt_s" : "i64x2.gt_s", "v128.bitselect");
  }
}

function combiner(dtype: DType, op: KernelOp): Recipe["combine"] {
  const lanes = LANES[dtype];
  return (f, acc, x) => {
    switch (op) {
      case "sum":
      case "avg":
      case "preMulSum":
        f.get(acc, x).op(`${lanes}.add`);
        break;
      case "prod":
        multiply(f, lanes, acc, x);
        break;
      case "min":
      case "max":
        pick(f, dtype, lanes, op, acc, x);
        break;
      case "band":
      case "bor":
      case "bxor":
        f.get(acc, x).op(`v128.${op.slice(1)}` as Opcode);
    }
    f.set(acc);
  };
}

/** Divides by the number of ranks; integers through a float type that makes the truncated quotient exact. */
function divide(dtype: DType): NonNullable<Recipe["finish"]> {
  return (f, acc, parameter) => {
    const lanes = LANES[dtype];
    const s = dtype.startsWith("u") ? "u" : "s";
    switch (lanes) {
      case "f32x4":
      case "f64x2":
        f.get(acc, parameter).op(`${lanes}.div`);
        break;
      case "i64x2":
        f.get(acc);
        for (const lane of [0, 1]) {
          f.get(acc).lane("i64x2.extract_lane", lane).get(parameter).lane("i64x2.extract_lane", lane);
          f.op(`i64.div_${s}`).lane("i64x2.replace_lane", lane);
        }
        break;
      case "i32x4": {
        const quotient = () =>
          f.op(`f64x2.convert_low_i32x4_${s}`).get(parameter).op("f64x2.div", `i32x4.trunc_sat_f64x2_${s}_zero`);
        f.get(acc);
        quotient();
        f.get(acc, acc).shuffle(HIGH_HALF);
        quotient();
        f.shuffle(LOW_HALVES);
        break;
      }
      case "i8x16": {
        for (const half of ["low", "high"] as const) {
          for (const quarter of ["low", "high"] as const) {
            f.get(acc).op(`i16x8.extend_${half}_i8x16_${s}`, `i32x4.extend_${quarter}_i16x8_${s}`);
            f.op("f32x4.convert_i32x4_s").get(parameter).op("f32x4.div", "i32x4.trunc_sat_f32x4_s");
          }
          f.op("i16x8.narrow_i32x4_s");
        }
        f.op(`i8x16.narrow_i16x8_${s}`);
      }
    }
    f.set(acc);
  };
}

/** How the kernel of a dtype and operator does its work. @param scratch locals that it may use */
export function recipe(dtype: DType, op: KernelOp, scratch: readonly [Local, Local, Local]): Recipe {
  const combine = combiner(dtype, op);
  const shared = {
    combine,
    ...(op === "avg" ? { finish: divide(dtype) } : {}),
    ...(op === "preMulSum"
      ? {
          scale: (f: FunctionBuilder, x: Local, parameter: Local) => {
            multiply(f, LANES[dtype], x, parameter);
            f.set(x);
          },
        }
      : {}),
  };
  const [h, em, wide] = scratch;
  switch (dtype) {
    case "f16":
    case "bf16":
      return {
        ...shared,
        accumulators: 2,
        load(f, address, offset, into) {
          into.forEach((local, i) => {
            f.get(address).mem("v128.load16x4_u", offset + 8 * i);
            decode(f, dtype, h, em);
            f.set(local);
          });
        },
        pack(f, from) {
          for (const local of from) encode(f, dtype, local, em);
          f.op("i16x8.narrow_i32x4_u");
        },
      };
    case "f8e4m3":
    case "f8e5m2":
      return {
        ...shared,
        accumulators: 4,
        load(f, address, offset, into) {
          into.forEach((local, i) => {
            if (i % 2 === 0)
              f.get(address)
                .mem("v128.load8x8_u", offset + 4 * i)
                .tee(wide);
            else f.get(wide);
            f.op(i % 2 === 0 ? "i32x4.extend_low_i16x8_u" : "i32x4.extend_high_i16x8_u");
            decode(f, dtype, h, em);
            f.set(local);
          });
        },
        pack(f, from) {
          from.forEach((local, i) => {
            encode(f, dtype, local, em);
            if (i % 2 === 1) f.op("i16x8.narrow_i32x4_u");
          });
          f.op("i8x16.narrow_i16x8_u");
        },
      };
    default:
      return {
        ...shared,
        accumulators: 1,
        load: (f, address, offset, into) => {
          for (const local of into) f.get(address).mem("v128.load", offset).set(local);
        },
        pack: (f, from) => {
          f.get(...from);
        },
      };
  }
}
