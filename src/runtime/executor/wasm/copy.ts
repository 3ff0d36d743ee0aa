/** The copy between two stretches of memory: SIMD loads and stores, because `memory.copy` is slow on shared memories. */
import type { FunctionBuilder, ModuleBuilder } from "./assembler.ts";

/** From so many bytes on, the host's own move is faster (bench/results/threads-moves-2026-11-28.md). */
export const LEAST_LARGE_BYTES = 512 * 1024;

/**
 * Adds `(to, from, bytes)`. What is aligned to 8 bytes on both sides is never stored in smaller pieces: packets may be
 * copied while their reader polls.
 * @param moveLarge the same from `LEAST_LARGE_BYTES` on
 */
export function addCopy(module: ModuleBuilder, exportName?: string, moveLarge?: FunctionBuilder): FunctionBuilder {
  return module.function(
    { params: ["i32", "i32", "i32"], results: [] },
    (f) => {
      const [to, from, bytes] = [f.param(0), f.param(1), f.param(2)];
      const step = (width: number, move: () => void) =>
        f.block(() =>
          f.loop(() => {
            f.get(bytes).i32(width).op("i32.lt_u").brIf(1);
            move();
            for (const local of [to, from]) f.get(local).i32(width).op("i32.add").set(local);
            f.get(bytes).i32(width).op("i32.sub").set(bytes).br(0);
          }),
        );
      if (moveLarge !== undefined) {
        f.get(bytes).i32(LEAST_LARGE_BYTES).op("i32.ge_u");
        f.if(() => f.get(to, from, bytes).call(moveLarge).op("return"));
      }
      step(128, () => {
        for (let i = 0; i < 128; i += 16) f.get(to, from).mem("v128.load", i).mem("v128.store", i);
      });
      step(16, () => f.get(to, from).mem("v128.load").mem("v128.store"));
      step(8, () => f.get(to, from).mem("i64.load").mem("i64.store"));
      step(4, () => f.get(to, from).mem("i32.load").mem("i32.store"));
      step(1, () => f.get(to, from).mem("i32.load8_u").mem("i32.store8"));
    },
    exportName,
  );
}

/**
 * Adds `(to, from, bytes)`, which stores the last bytes first: for messages whose first line is polled. A reader that polls takes
 * that line away again at each store to it, and has the others on the way when the flag comes.
 */
export function addCopyBackwards(module: ModuleBuilder, exportName?: string): FunctionBuilder {
  return module.function(
    { params: ["i32", "i32", "i32"], results: [] },
    (f) => {
      const [to, from, left] = [f.param(0), f.param(1), f.param(2)];
      const [toEnd, fromEnd] = f.locals("i32", "i32");
      f.get(to, left).op("i32.add").set(toEnd).get(from, left).op("i32.add").set(fromEnd);
      const step = (width: number, move: () => void) =>
        f.block(() =>
          f.loop(() => {
            f.get(left).i32(width).op("i32.lt_u").brIf(1);
            for (const local of [toEnd, fromEnd]) f.get(local).i32(width).op("i32.sub").set(local);
            move();
            f.get(left).i32(width).op("i32.sub").set(left).br(0);
          }),
        );
      step(128, () => {
        for (let i = 112; i >= 0; i -= 16) f.get(toEnd, fromEnd).mem("v128.load", i).mem("v128.store", i);
      });
      step(16, () => f.get(toEnd, fromEnd).mem("v128.load").mem("v128.store"));
      step(8, () => f.get(toEnd, fromEnd).mem("i64.load").mem("i64.store"));
      step(1, () => f.get(toEnd, fromEnd).mem("i32.load8_u").mem("i32.store8"));
    },
    exportName,
  );
}
