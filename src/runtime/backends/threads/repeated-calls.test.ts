/** Calls like the last one are not checked again: here is what makes a call another one. */
import { describe, expect, it } from "vitest";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import type { MismatchError } from "../../../core/index.ts";
import { createThreadsHost, dumpFlight } from "./index.ts";

describe("a call like the last one", () => {
  it("is another one with other tensors, elements, operators, roots and outputs", async () => {
    const outcomes = await onRanks(2, ({ comm, backend, rank }) => {
      const [a, b, to] = [0, 1, 2].map(() => backend.tensor("i32", [4])) as [Whole, Whole, Whole];
      type Whole = ReturnType<typeof backend.tensor<"i32">>;
      const sums: number[] = [];
      const call = (input: Whole, output: Whole | undefined, op?: "sum" | "max" | "avg") => {
        a.data.fill(4 * (rank + 1));
        b.data.fill(20 * (rank + 1));
        to.data.fill(-1);
        for (let i = 0; i < 2; i++) {
          input.data.fill(input === b ? 20 * (rank + 1) : 4 * (rank + 1));
          const options = { ...(output === undefined ? {} : { output }), ...(op === undefined ? {} : { op }) };
          sums.push(comm.allReduce(input, options).wait().data[0] as number);
        }
      };
      call(a, undefined);
      call(b, undefined);
      call(a, to);
      call(b, to);
      call(a, to);
      call(a, b);
      call(a, to, "max");
      call(a, to, "avg");
      call(a, b, "sum");
      call(a.slice(0, 2), undefined);
      // The block of a freed tensor, with numbers of another kind.
      call(a, to);
      backend.free(to);
      const floats = backend.tensor("f32", [4]);
      const mixed = (() => {
        try {
          comm.allReduce(a, { output: floats }).wait();
          return floats.byteOffset === to.byteOffset ? "taken" : "elsewhere";
        } catch {
          return "refused";
        }
      })();
      comm.allReduce(a, { output: a }).wait();
      backend.free(a);
      const other = backend.tensor("f32", [4]);
      other.data.fill(1.5);
      const float = comm.allReduce(other, { output: other }).wait().data[0];
      const roots = [0, 1, 0].map((root) => {
        b.data.fill(rank + 1);
        return comm.broadcast(b, { root }).wait().data[0];
      });
      return { sums, mixed, float, roots };
    });
    for (const { sums, mixed, float, roots } of valuesOf(outcomes) as {
      sums: number[];
      mixed: string;
      float: number;
      roots: number[];
    }[]) {
      expect(sums).toEqual([12, 12, 60, 60, 12, 12, 60, 60, 12, 12, 12, 12, 8, 8, 6, 6, 12, 12, 12, 12, 12, 12]);
      expect(mixed).toBe("refused");
      expect(float).toBe(3);
      expect(roots).toEqual([1, 2, 1]);
    }
  });

  it("is another one with options of a class, whose accessors have no names that are listed", async () => {
    const outcomes = await onRanks(2, ({ comm, backend, rank }) => {
      type Given = { readonly output?: typeof input; readonly root?: number; readonly op?: "max" };
      class Options {
        readonly #given: Given;
        constructor(given: Given) {
          this.#given = given;
        }
        get output() {
          return this.#given.output as typeof input;
        }
        get root() {
          return this.#given.root as number;
        }
        get op() {
          return this.#given.op as "max";
        }
      }
      const [input, output] = [backend.tensor("f32", [8]), backend.tensor("f32", [8])];
      const values = () => {
        input.fill(rank + 1);
        return input;
      };
      const first = () => [input.at(0), output.at(0)];
      for (let i = 0; i < 3; i++) comm.allReduce(values()).wait();
      comm.allReduce(values(), new Options({ output })).wait();
      const apart = first();
      comm.allReduce(values()).wait();
      comm.allReduce(values(), new Options({ op: "max" })).wait();
      const most = first();
      for (let i = 0; i < 3; i++) comm.broadcast(values()).wait();
      comm.broadcast(values(), new Options({ root: 1 })).wait();
      return [apart, most, first(), rank];
    });
    for (const [i, value] of valuesOf(outcomes).entries()) {
      expect(value).toEqual([[i + 1, 3], [2, 3], [2, 3], i]);
    }
  });

  it("is refused once its tensor is freed or its options are wrong", async () => {
    const outcomes = await onRanks(2, ({ comm, backend }) => {
      const [input, output] = [backend.tensor("f32", [8]), backend.tensor("f32", [8])];
      const why = (call: () => { wait(): unknown }) => {
        try {
          call().wait();
          return "";
        } catch (error) {
          return (error as Error).message;
        }
      };
      for (let i = 0; i < 3; i++) comm.allReduce(input, { output }).wait();
      const wrong = why(() => comm.allReduce(input, { output, op: "sun" as "sum" }));
      const root = why(() => comm.reduce(input, { root: 2 }));
      backend.free(output);
      const freed = why(() => comm.allReduce(input, { output }));
      comm.allReduce(input).wait();
      return { wrong, root, freed };
    });
    for (const { wrong, root, freed } of valuesOf(outcomes) as { wrong: string; root: string; freed: string }[]) {
      expect(wrong).toContain("sun");
      expect(root).toContain("root");
      expect(freed).toContain("freed");
    }
  });

  it("is refused once a member has left the group", async () => {
    const outcomes = await onRanks(2, async ({ comm, backend, rank }) => {
      const group = await backend.group("pair", [0, 1]);
      const tensor = backend.tensor("f32", [8]);
      for (let i = 0; i < 3; i++) group.broadcast(tensor, { root: 1 }).wait();
      if (rank === 0) {
        await group.close();
        comm.barrier().wait();
        return undefined;
      }
      comm.barrier().wait();
      // A root that sends is done without the other: no error would come of that.
      try {
        await group.broadcast(tensor, { root: 1 });
        return group.stats().operations["broadcast"]?.calls;
      } catch (error) {
        return (error as Error).message;
      }
    });
    expect(outcomes).toEqual([{ value: undefined }, { value: expect.stringContaining("closed") }]);
  });

  it("is timed as others are, where operations take turns", async () => {
    const outcomes = await onRanks(2, ({ comm, backend }) => {
      const tensor = backend.tensor("f32", [8]);
      for (let i = 0; i < 200; i++) {
        comm.allReduce(tensor, { op: "max" }).wait();
        comm.broadcast(tensor).wait();
      }
      return Object.values(comm.stats().operations).map(({ calls, bytes, totalUs }) => [calls, bytes, totalUs > 0]);
    });
    const all = [200, 6400, true];
    for (const value of valuesOf(outcomes)) expect(value).toEqual([all, all]);
  });

  it("of two ranks goes on where the other one comes late, and is on record once", async () => {
    const handle = createThreadsHost({ ranks: 2 });
    const outcomes = await onRanks(
      2,
      ({ comm, backend, rank }) => {
        const nap = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3);
        const [part, whole, two] = [16, 16, 32].map((n) => backend.tensor("f32", [n]));
        const calls = [
          () => comm.allReduce(part!, { output: whole! }),
          () => comm.allGather(part!, { output: two! }),
          () => comm.reduceScatter(two!, { output: whole! }),
          () => comm.allToAll(part!, { output: whole! }),
        ];
        const sums: number[] = [];
        for (const call of calls) {
          for (let i = 0; i < 12; i++) {
            part!.data.forEach((_, at, all) => {
              all[at] = 100 * rank + at + i;
            });
            two!.data.forEach((_, at, all) => {
              all[at] = 1000 * rank + at + i;
            });
            if (i % 4 === 2 + rank) nap();
            const result = call().wait().data as Float32Array;
            sums.push(result.reduce((sum, value, at) => sum + value * (at + 1), 0));
          }
        }
        return sums;
      },
      { handle },
    );
    const weigh = (length: number, value: (at: number) => number) =>
      Array.from({ length }, (_, at) => value(at) * (at + 1)).reduce((sum, one) => sum + one, 0);
    for (const [rank, value] of valuesOf(outcomes).entries()) {
      const rounds = Array.from({ length: 12 }, (_, i) => i);
      expect(value).toEqual([
        ...rounds.map((i) => weigh(16, (at) => 100 + 2 * (at + i))),
        ...rounds.map((i) => weigh(32, (at) => 100 * (at >> 4) + (at & 15) + i)),
        ...rounds.map((i) => weigh(16, (at) => 1000 + 2 * (16 * rank + at + i))),
        ...rounds.map((i) => weigh(16, (at) => 100 * (at >> 3) + 8 * rank + (at & 7) + i)),
      ]);
    }
    for (const { entries } of dumpFlight(handle).ranks) {
      expect(entries.map(({ state }) => state)).toEqual(entries.map(() => "done"));
      expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, i) => entries[0]!.seq + i));
    }
  });

  it("of two ranks is a mismatch where the other one calls something else", async () => {
    const outcomes = await onRanks(2, ({ comm, backend, rank }) => {
      const [input, output] = [backend.tensor("f32", [16]), backend.tensor("f32", [16])];
      for (let i = 0; i < 5; i++) comm.allReduce(input, { output }).wait();
      try {
        comm
          .allReduce(rank === 0 ? input : input.slice(0, 8), { output: rank === 0 ? output : output.slice(0, 8) })
          .wait();
        return "done";
      } catch (error) {
        return [(error as MismatchError).code, (error as Error).message];
      }
    });
    for (const value of valuesOf(outcomes) as [string, string][]) {
      expect(value[0]).toBe("MISMATCH");
      expect(value[1]).toContain("16");
      expect(value[1]).toContain("8");
    }
  });
});
