/**
 * 16- and 8-bit floats to f32 and back, rounded once: for plans that combine what was combined before, whose values are
 * carried in f32 between.
 */
import type { FunctionBuilder, ModuleBuilder } from "./assembler.ts";
import { recipe } from "./reduce-recipes.ts";
import type { SmallFloat } from "./small-float-lanes.ts";

const SMALL_FLOATS: readonly SmallFloat[] = ["f16", "bf16", "f8e4m3", "f8e5m2"];
/** Bytes of small floats that one turn converts. The rest, up to 15 bytes, is the caller's. */
export const WIDEN_BYTES = 16;

/** (to, from, turns): converts `turns` times 16 bytes of small floats, with their f32 on the other side. */
export type WidenExports = { readonly [F in SmallFloat as `widen_${F}` | `narrow_${F}`]: (...args: number[]) => void };

export function addWiden(module: ModuleBuilder): void {
  for (const dtype of SMALL_FLOATS) {
    addTurns(module, `widen_${dtype}`, (f, to, from) => {
      const made = recipe(dtype, "sum", [f.local("v128"), f.local("v128"), f.local("v128")]);
      const lanes = Array.from({ length: made.accumulators }, () => f.local("v128"));
      return {
        body: () => {
          made.load(f, from, 0, lanes);
          lanes.forEach((lane, i) => {
            f.get(to, lane).mem("v128.store", 16 * i);
          });
        },
        steps: [16 * made.accumulators, 16],
      };
    });
    addTurns(module, `narrow_${dtype}`, (f, to, from) => {
      const temporaries = f.locals("v128", "v128", "v128");
      const made = recipe(dtype, "sum", temporaries);
      const lanes = Array.from({ length: made.accumulators }, () => f.local("v128"));
      return {
        body: () => {
          lanes.forEach((lane, i) => {
            f.get(from)
              .mem("v128.load", 16 * i)
              .set(lane);
          });
          f.get(to);
          made.pack(f, lanes, temporaries);
          f.mem("v128.store");
        },
        steps: [16, 16 * made.accumulators],
      };
    });
  }
}

type Local = ReturnType<FunctionBuilder["param"]>;

function addTurns(
  module: ModuleBuilder,
  name: string,
  make: (
    f: FunctionBuilder,
    to: Local,
    from: Local,
  ) => { readonly body: () => void; readonly steps: readonly [number, number] },
): void {
  module.function(
    { params: ["i32", "i32", "i32"], results: [] },
    (f) => {
      const [to, from, turns] = [f.param(0), f.param(1), f.param(2)];
      const { body, steps } = make(f, to, from);
      f.block(() =>
        f.loop(() => {
          f.get(turns).op("i32.eqz").brIf(1);
          body();
          f.get(to).i32(steps[0]).op("i32.add").set(to).get(from).i32(steps[1]).op("i32.add").set(from);
          f.get(turns).i32(1).op("i32.sub").set(turns).br(0);
        }),
      );
    },
    name,
  );
}
