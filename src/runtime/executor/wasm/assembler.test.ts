import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type FunctionBuilder, ModuleBuilder } from "./assembler.ts";
import { compileModule, instantiate, newSharedMemory, type WasmFunction } from "./webassembly.ts";

const memory = newSharedMemory(1, 1);

function build<Exports>(write: (module: ModuleBuilder) => void): Exports {
  const module = new ModuleBuilder();
  write(module);
  return instantiate<Exports>(compileModule(module.encode()), memory);
}

describe("the assembler", () => {
  it("writes any 32-bit constant", () => {
    fc.assert(
      fc.property(fc.integer(), (value) => {
        const { constant } = build<{ constant: WasmFunction }>((module) => {
          module.function({ params: [], results: ["i32"] }, (f) => f.i32(value), "constant");
        });
        expect(constant()).toBe(value);
      }),
      { numRuns: 200 },
    );
    for (const value of [0, 63, 64, -64, -65, 127, 128, 2 ** 31 - 1, -(2 ** 31)]) {
      const { constant } = build<{ constant: WasmFunction }>((module) => {
        module.function({ params: [], results: ["i32"] }, (f) => f.i32(value), "constant");
      });
      expect(constant()).toBe(value);
    }
  });

  it("imports functions, which are numbered before the module's own", () => {
    const heard: number[] = [];
    const module = new ModuleBuilder();
    const hear = module.importFunction("hear", { params: ["i32"], results: [] });
    const twice = module.function({ params: ["i32"], results: [] }, (f) => {
      for (let i = 0; i < 2; i++) f.get(f.param(0)).call(hear);
    });
    const call = (f: FunctionBuilder) => f.i32(7).call(twice).i32(8).call(hear);
    module.function({ params: [], results: [] }, call, "run");
    expect(() => module.importFunction("late", { params: [], results: [] })).toThrow("late is imported before");
    const functions = { hear: (value = 0) => void heard.push(value) };
    instantiate<{ run: WasmFunction }>(compileModule(module.encode()), memory, functions).run();
    expect(heard).toEqual([7, 7, 8]);
  });

  it("writes loops, branches, locals and calls", () => {
    const { factorial } = build<{ factorial: WasmFunction }>((module) => {
      const multiply = module.function({ params: ["i32", "i32"], results: ["i32"] }, (f) =>
        f.get(f.param(0), f.param(1)).op("i32.mul"),
      );
      module.function(
        { params: ["i32"], results: ["i32"] },
        (f) => {
          const n = f.param(0);
          const product = f.local("i32");
          f.i32(1).set(product);
          f.block(() =>
            f.loop(() => {
              f.get(n).op("i32.eqz").brIf(1);
              f.get(product, n).call(multiply).set(product);
              f.get(n).i32(1).op("i32.sub").set(n).br(0);
            }),
          );
          f.get(product);
        },
        "factorial",
      );
    });
    expect([0, 1, 5, 10].map((n) => factorial(n))).toEqual([1, 1, 120, 3_628_800]);
  });

  it("writes conditions with both branches, and calls through the table", () => {
    const { choose } = build<{ choose: WasmFunction }>((module) => {
      const type = { params: [], results: ["i32"] } as const;
      const entries = [11, 22].map((value) => module.tableEntry(module.function(type, (f) => f.i32(value))));
      expect(entries).toEqual([0, 1]);
      module.function(
        { params: ["i32"], results: ["i32"] },
        (f) => {
          const index = f.local("i32");
          f.get(f.param(0)).if(
            () => f.i32(1).set(index),
            () => f.i32(0).set(index),
          );
          f.get(index).callIndirect(module.typeIndex(type));
        },
        "choose",
      );
    });
    expect([choose(0), choose(5)]).toEqual([11, 22]);
  });

  it("reads and writes shared memory, atomically and by vectors", () => {
    const { addTo, double } = build<{ addTo: WasmFunction; double: WasmFunction }>((module) => {
      module.function(
        { params: ["i32", "i32"], results: ["i32"] },
        (f) => f.get(f.param(0), f.param(1)).mem("i32.atomic.rmw.add", 8),
        "addTo",
      );
      module.function(
        { params: ["i32"], results: [] },
        (f) => {
          const at = f.param(0);
          f.get(at, at).mem("v128.load", 16).get(at).mem("v128.load", 16).op("f32x4.add").mem("v128.store", 32);
        },
        "double",
      );
    });
    const words = new Int32Array(memory.buffer, 0, 16);
    words[2] = 40;
    expect(addTo(0, 2)).toBe(40);
    expect(words[2]).toBe(42);
    const floats = new Float32Array(memory.buffer, 0, 16);
    floats.set([1.5, -2, 0, 1e30], 4);
    double(0);
    expect([...floats.subarray(8, 12)]).toEqual([3, -4, 0, Math.fround(2e30)]);
  });
});
