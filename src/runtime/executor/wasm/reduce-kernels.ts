/**
 * The reduction kernels: one WebAssembly SIMD function per (dtype, operator). A kernel reads any number of inputs and
 * stores the result to any number of outputs in one pass, so that it is also the copy kernel (one input) and the push
 * of a result to every rank. Inputs are combined in the order of the table, for every element alike, so a result does
 * not depend on how the work is cut up.
 *
 * Meanings: integers wrap; integer `avg` divides the wrapped sum, truncating towards zero; min and max propagate NaN
 * and order -0 before +0; 16- and 8-bit floats accumulate in f32 and are rounded once, f8 saturating (core/float-formats).
 *
 * A kernel is `(inTable, numIn, outTable, numOut, start, end, context)`: tables of addresses, a range in bytes, and a
 * context block (see `CONTEXT`) with the divisor of `avg` or the scalar of `preMulSum`, and room for the last bytes
 * that fill no vector.
 */
import { DTYPE_NAMES, type DType, isLegal, REDUCE_OPS } from "../../../core/index.ts";
import type { FunctionBuilder, Local, ModuleBuilder, Signature } from "./assembler.ts";
import { type KernelOp, recipe } from "./reduce-recipes.ts";

export type { KernelOp };
export const KERNEL_OPS: readonly KernelOp[] = [...REDUCE_OPS, "preMulSum"];
/** Most ranks of one reduction: bounds the context block. */
export const MAX_INPUTS = 256;

/** Layout of a context block, in bytes. */
export const CONTEXT = {
  /** 16 bytes: divisor of `avg` or scalar of `preMulSum`, repeated, in the accumulator's type. */
  parameter: 0,
  /** One address, that of `tailOut`. */
  tailOutTable: 16,
  tailOut: 32,
  /** Addresses of `tailIn`, 16 bytes apart. */
  tailInTable: 48,
  tailIn: 48 + 4 * MAX_INPUTS,
  sizeBytes: 48 + 4 * MAX_INPUTS + 16 * MAX_INPUTS,
} as const;

/** How a kernel of this dtype holds its parameter. */
type ParameterType = "f32" | "f64" | "i8" | "u8" | "i32" | "u32" | "i64" | "u64";
export function parameterType(dtype: DType, op: KernelOp): ParameterType {
  if (op === "avg") {
    if (dtype === "i8" || dtype === "u8") return "f32";
    if (dtype === "i32" || dtype === "u32") return "f64";
  }
  switch (dtype) {
    case "f16":
    case "bf16":
    case "f8e4m3":
    case "f8e5m2":
      return "f32";
    default:
      return dtype;
  }
}

/**
 * Bytes that go to one output after the other: a store, and copies of what the first cache still holds, are faster than as many
 * streams of stores at once. So it is up to so many bytes over all inputs, while all buffers fit the second cache; beyond it the
 * streams are faster (bench/results/plans-two-cores-2026-11-28.md).
 */
const TILE_BYTES = 8192;
const MOST_TILED_BYTES = 512 * 1024;
/** The same over all outputs: a copy of 512 KiB to eight places leaves the second cache, to two it does not. */
const MOST_TILED_OUT_BYTES = 1024 * 1024;
/** Sums of more go to all outputs at once, too. */
const MOST_TILED_INPUTS = 4;
/** Shorter sums of two go to two outputs at once, by a loop of their own: another pass costs more than it saves. */
const LEAST_TILED_BYTES = 8192;

const KERNEL: Signature = { params: ["i32", "i32", "i32", "i32", "i32", "i32", "i32"], results: [] };

/** Copies fewer than 16 bytes: `(to, from, length)`. */
function addCopyTail(module: ModuleBuilder): FunctionBuilder {
  return module.function({ params: ["i32", "i32", "i32"], results: [] }, (f) => {
    const [to, from, length] = [f.param(0), f.param(1), f.param(2)];
    const steps = [
      [8, "i64.load", "i64.store"],
      [4, "i32.load", "i32.store"],
      [2, "i32.load16_u", "i32.store16"],
      [1, "i32.load8_u", "i32.store8"],
    ] as const;
    for (const [size, load, store] of steps) {
      f.get(length).i32(size).op("i32.and");
      f.if(() => {
        f.get(to, from).mem(load).mem(store);
        f.get(to).i32(size).op("i32.add").set(to).get(from).i32(size).op("i32.add").set(from);
      });
    }
  });
}

function addKernel(module: ModuleBuilder, copyTail: FunctionBuilder, dtype: DType, op: KernelOp): FunctionBuilder {
  const kernelType = module.typeIndex(KERNEL);
  return module.function(KERNEL, (f) => {
    const [inTable, numIn, outTable, numOut] = [f.param(0), f.param(1), f.param(2), f.param(3)];
    const [start, end, context] = [f.param(4), f.param(5), f.param(6)];
    const i = start;
    const [cursor, inEnd, outEnd, address] = f.locals("i32", "i32", "i32", "i32");
    const parameter = f.local("v128");
    const made = recipe(dtype, op, [f.local("v128"), f.local("v128"), f.local("v128")]);
    const accumulators = Array.from({ length: 8 }, () => f.local("v128"));
    const loaded = Array.from({ length: made.accumulators }, () => f.local("v128"));
    const pointers = Array.from({ length: 9 }, () => f.local("i32"));
    const usesParameter = made.scale !== undefined || made.finish !== undefined;

    if (usesParameter) f.get(context).mem("v128.load", CONTEXT.parameter).set(parameter);
    f.get(inTable, numIn).i32(2).op("i32.shl", "i32.add").set(inEnd);
    f.get(outTable, numOut).i32(2).op("i32.shl", "i32.add").set(outEnd);

    const addressAt = () => f.get(cursor).mem("i32.load").get(i).op("i32.add").set(address);
    const advance = () => f.get(cursor).i32(4).op("i32.add").set(cursor);
    const accOf = (group: number) => accumulators.slice(group * made.accumulators, (group + 1) * made.accumulators);

    /** A few inputs to several outputs: to the first one, then on from there, tile by tile. */
    const tileByTile = () => {
      const tileEnd = f.local("i32");
      const bytes = f.local("i32");
      f.get(end, start).op("i32.sub").set(bytes);
      f.get(numIn).i32(MOST_TILED_INPUTS).op("i32.le_u").get(numOut).i32(2).op("i32.ge_u", "i32.and");
      f.get(bytes).i32(LEAST_TILED_BYTES).op("i32.ge_u").get(numIn).i32(1).op("i32.eq", "i32.or", "i32.and");
      // Inputs lie apart in a memory of 4 GiB: the product does not overflow.
      f.get(bytes, numIn).op("i32.mul").i32(MOST_TILED_BYTES).op("i32.le_u", "i32.and");
      f.get(bytes, numOut).op("i32.mul").i32(MOST_TILED_OUT_BYTES).op("i32.le_u", "i32.and");
      f.if(() => {
        f.block(() =>
          f.loop(() => {
            f.get(i, end).op("i32.ge_u").brIf(1);
            f.get(end).set(tileEnd).get(end, i).op("i32.sub").i32(TILE_BYTES).op("i32.gt_u");
            f.if(() => f.get(i).i32(TILE_BYTES).op("i32.add").set(tileEnd));
            f.get(inTable, numIn, outTable).i32(1).get(i, tileEnd, context).call(f);
            f.get(outTable).set(cursor);
            advance();
            f.loop(() => {
              f.get(outTable).i32(1).get(cursor).i32(1).get(i, tileEnd, context);
              f.i32(COPY_KERNEL).callIndirect(kernelType);
              advance();
              f.get(cursor, outEnd).op("i32.lt_u").brIf(0);
            });
            f.get(tileEnd).set(i).br(0);
          }),
        );
        f.op("return");
      });
    };

    /**
     * The loop for a fixed number of inputs and outputs, with their addresses in registers. With one output it stores 16 bytes
     * of the sum before it loads the next 16 of every input: sums take a third less time than with 128 bytes of one input
     * after the other (bench/results/threads-moves-2026-11-28.md). What fills no turn is left to the loops below.
     */
    const fixed = (numInputs: number, numOutputs: number) => {
      f.get(numIn).i32(numInputs).op("i32.eq").get(numOut).i32(numOutputs).op("i32.eq", "i32.and");
      f.if(() => {
        const inputs = pointers.slice(0, numInputs);
        const outputs = pointers.slice(numInputs, numInputs + numOutputs);
        for (const [table, list] of [[inTable, inputs] as const, [outTable, outputs] as const]) {
          list.forEach((pointer, k) => {
            f.get(table)
              .mem("i32.load", 4 * k)
              .get(i)
              .op("i32.add")
              .set(pointer);
          });
        }
        const add = (input: number, k: number) => {
          const into = input === 0 ? (accumulators[k] as Local) : (loaded[0] as Local);
          made.load(f, inputs[input] as Local, 16 * k, [into]);
          made.scale?.(f, into, parameter);
          if (input > 0) made.combine(f, accumulators[k] as Local, into);
        };
        const store = (output: Local, k: number) => {
          f.get(output, accumulators[k] as Local).mem("v128.store", 16 * k);
        };
        const [own, shared] = numOutputs === 1 ? [outputs, []] : [[], outputs];
        const steps = (vectors: number) => {
          const bytes = 16 * vectors;
          f.block(() =>
            f.loop(() => {
              f.get(i).i32(bytes).op("i32.add").get(end).op("i32.gt_u").brIf(1);
              for (let k = 0; k < vectors; k++) {
                for (let input = 0; input < numInputs; input++) add(input, k);
                made.finish?.(f, accumulators[k] as Local, parameter);
                for (const output of own) store(output, k);
              }
              for (const output of shared) for (let k = 0; k < vectors; k++) store(output, k);
              for (const moved of [...inputs, ...outputs, i]) f.get(moved).i32(bytes).op("i32.add").set(moved);
              f.br(0);
            }),
          );
        };
        steps(accumulators.length);
        // Messages are short: the loops below take three times as long for 64 bytes, most of them around what they load.
        if (numInputs > 1 && numOutputs === 1) {
          steps(1);
          f.get(i, end).op("i32.ge_u");
          f.if(() => f.op("return"));
        }
      });
    };

    /** Handles `groups` x 16 bytes a turn, as long as they fit. */
    const tiles = (groups: number) => {
      const bytes = 16 * groups;
      const all = Array.from({ length: groups }, (_, group) => group);
      f.block(() =>
        f.loop(() => {
          f.get(i).i32(bytes).op("i32.add").get(end).op("i32.gt_u").brIf(1);
          f.get(inTable).set(cursor);
          addressAt();
          for (const group of all) {
            made.load(f, address, 16 * group, accOf(group));
            if (made.scale !== undefined) for (const acc of accOf(group)) made.scale(f, acc, parameter);
          }
          advance();
          f.block(() =>
            f.loop(() => {
              f.get(cursor, inEnd).op("i32.ge_u").brIf(1);
              addressAt();
              for (const group of all) {
                made.load(f, address, 16 * group, loaded);
                accOf(group).forEach((acc, k) => {
                  const x = loaded[k] as Local;
                  made.scale?.(f, x, parameter);
                  made.combine(f, acc, x);
                });
              }
              advance();
              f.br(0);
            }),
          );
          if (made.finish !== undefined)
            for (const group of all) for (const acc of accOf(group)) made.finish(f, acc, parameter);
          if (made.accumulators > 1) {
            for (const group of all) {
              made.pack(f, accOf(group), loaded);
              f.set(accOf(group)[0] as Local);
            }
          }
          f.get(outTable).set(cursor);
          f.loop(() => {
            addressAt();
            for (const group of all) f.get(address, accOf(group)[0] as Local).mem("v128.store", 16 * group);
            advance();
            f.get(cursor, outEnd).op("i32.lt_u").brIf(0);
          });
          f.get(i).i32(bytes).op("i32.add").set(i).br(0);
        }),
      );
    };
    if (made.accumulators === 1) {
      tileByTile();
      fixed(1, 1);
      for (const ranks of op === "sum" ? [2, 4, 8] : [2]) fixed(ranks, 1);
      fixed(2, 2);
    }
    tiles(8 / made.accumulators);
    tiles(1);

    // The last bytes go through the context block, as one whole vector.
    f.get(i, end).op("i32.lt_u");
    f.if(() => {
      const [length, to] = f.locals("i32", "i32");
      f.get(end, i).op("i32.sub").set(length);
      f.get(inTable).set(cursor).get(context).i32(CONTEXT.tailIn).op("i32.add").set(to);
      f.loop(() => {
        addressAt();
        f.get(to, address, length).call(copyTail);
        f.get(to).i32(16).op("i32.add").set(to);
        advance();
        f.get(cursor, inEnd).op("i32.lt_u").brIf(0);
      });
      f.get(context).i32(CONTEXT.tailInTable).op("i32.add").get(numIn);
      f.get(context).i32(CONTEXT.tailOutTable).op("i32.add").i32(1).i32(0).i32(16).get(context).call(f);
      f.get(outTable).set(cursor);
      f.loop(() => {
        addressAt();
        f.get(address).get(context).i32(CONTEXT.tailOut).op("i32.add").get(length).call(copyTail);
        advance();
        f.get(cursor, outEnd).op("i32.lt_u").brIf(0);
      });
    });
  });
}

/** The dtype whose kernel also serves `dtype`: signedness does not matter to wrapping sums, nor width to bits. */
function canonical(dtype: DType, op: KernelOp): DType {
  if (op === "band" || op === "bor" || op === "bxor") return "i8";
  if (op === "sum" || op === "prod" || op === "preMulSum") {
    if (dtype === "u8") return "i8";
    if (dtype === "u32") return "i32";
    if (dtype === "u64") return "i64";
  }
  return dtype;
}

/** Where each kernel is in the module's table: `index[dtype][op]`, absent where the operator is not defined. */
type KernelIndex = { readonly [D in DType]: { readonly [O in KernelOp]?: number } };

interface KernelList {
  readonly index: KernelIndex;
  /** The kernels to build, in the order of the table. */
  readonly entries: readonly { readonly dtype: DType; readonly op: KernelOp }[];
}

const KERNELS = ((): KernelList => {
  const entries: { dtype: DType; op: KernelOp }[] = [];
  const place = (dtype: DType, op: KernelOp): number => {
    const serving = canonical(dtype, op);
    const known = entries.findIndex((entry) => entry.dtype === serving && entry.op === op);
    return known >= 0 ? known : entries.push({ dtype: serving, op }) - 1;
  };
  const index = Object.fromEntries(
    DTYPE_NAMES.map((dtype) => [
      dtype,
      Object.fromEntries(
        KERNEL_OPS.filter((op) => op === "preMulSum" || isLegal(op, dtype)).map((op) => [op, place(dtype, op)]),
      ),
    ]),
  ) as KernelIndex;
  return { index, entries };
})();

/** The kernels' places in the table of a module to which `addReduceKernels` was applied first. */
export const KERNEL_INDEX: KernelIndex = KERNELS.index;

/** Adds every kernel to `module` and, from entry 0, to its table. @returns their type, for `call_indirect` */
export function addReduceKernels(module: ModuleBuilder): number {
  const copyTail = addCopyTail(module);
  for (const { dtype, op } of KERNELS.entries) module.tableEntry(addKernel(module, copyTail, dtype, op));
  return module.typeIndex(KERNEL);
}

/** The table entry that moves bytes: any sum of one input is a copy. */
export const COPY_KERNEL: number = KERNEL_INDEX.i8.sum as number;
