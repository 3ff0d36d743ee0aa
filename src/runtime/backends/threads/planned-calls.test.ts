/** Calls on world tensors that plans serve, on the fast path: results, sizes that change, and what goes wrong. */
import { describe, expect, it } from "vitest";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import { createThreadsHost } from "./host.ts";

describe("a call that a plan serves, on tensors of the world", () => {
  it.each([2, 3])("leaves the careful path on %i ranks, and gives what kernels give", async (n) => {
    const outcomes = await onRanks(
      n,
      async ({ comm, backend, rank, n }) => {
        const wrong: string[] = [];
        let numFast = 0;
        let numCalls = 0;
        const kernels = { all_reduce: "two-shot-kernel" } as Record<string, string>;
        const call = (op: string, dtype: "i32" | "f32" | "bf16", bytes: number, redop: string, inPlace: boolean) => {
          const size = dtype === "bf16" ? 2 : 4;
          const part = Math.max(1, Math.floor(bytes / size / n));
          const count = part * n;
          const root = n - 1;
          const wide = op === "all_gather" || op === "gather" ? part : count;
          const run = (algorithm?: string) => {
            const input = backend.tensor(dtype, [wide]);
            const whole = backend.tensor(dtype, [count]);
            const narrow = backend.tensor(dtype, [part]);
            for (const [k, one] of [input, whole].entries()) {
              for (let i = 0; i < one.size; i++) (one.data as Int32Array)[i] = (k * 3 + rank * 5 + i * 7) % 11;
            }
            const more = algorithm === undefined ? {} : { algorithm };
            const to = inPlace ? {} : { output: whole };
            const rooted = { root, ...more };
            const made = {
              all_reduce: () => comm.allReduce(input, { op: redop as "sum", ...to, ...more }),
              reduce_scatter: () => comm.reduceScatter(input, { op: redop as "sum", output: narrow, ...more }),
              all_gather: () => comm.allGather(input, { output: whole, ...more }),
              all_to_all: () => comm.allToAll(input, { output: whole, ...more }),
              broadcast: () => comm.broadcast(input, { ...to, ...rooted }),
              reduce: () => comm.reduce(input, { op: redop as "sum", ...(rank === root ? to : {}), ...rooted }),
              gather: () => comm.gather(input, rank === root ? { output: whole, ...rooted } : rooted),
              scatter: () =>
                rank === root ? comm.scatter(input, { output: narrow, ...rooted }) : comm.scatter(narrow, rooted),
            }[op] as () => { wait(): { data: Iterable<unknown> }; issuedAt?: number };
            const work = made();
            // The careful path times every call, the fast one a few.
            if (algorithm === undefined && work.issuedAt === -1) numFast++;
            if (algorithm === undefined) numCalls++;
            const result = work.wait();
            const has = (op !== "reduce" && op !== "gather") || rank === root;
            const text = has ? [...result.data].join() : "";
            for (const one of [input, whole, narrow]) backend.free(one);
            return text;
          };
          const [plan, kernel] = [run(), run(kernels[op] ?? "direct-kernel")];
          if (plan !== kernel)
            wrong.push(`${op} ${dtype} ${bytes} ${redop}: ${plan.slice(0, 60)}, ${kernel.slice(0, 60)}`);
        };
        const ops = [
          "all_reduce",
          "reduce_scatter",
          "all_gather",
          "all_to_all",
          "broadcast",
          "reduce",
          "gather",
          "scatter",
        ];
        // Sizes grow and shrink, so that scratch moves while plans of both kinds alternate.
        for (const bytes of [12, 5000, 300, 70_000, 5000]) {
          for (const op of ops) {
            for (const [dtype, redop] of [
              ["i32", "sum"],
              ["f32", "max"],
              ["i32", "avg"],
              ["bf16", "sum"],
            ] as const) {
              for (const inPlace of [false, true]) call(op, dtype, bytes, redop, inPlace);
            }
          }
        }
        const { choices } = comm.stats();
        const served = Object.entries(choices ?? {}).filter(([key]) => !key.endsWith("-kernel"));
        const numServed = served.reduce((sum, [, calls]) => sum + calls, 0);
        await comm.close();
        // How many do depends on how often the ranks find each other waiting: 150 to 250 of 320. Without the fast path, none.
        return [wrong, numFast > numCalls * 0.2, numServed === numCalls];
      },
      { handle: createThreadsHost({ ranks: n, choices: "plans" }) },
    );
    expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => [[], true, true]));
  });

  it("waits for a late rank, and tells both sides what differs", async () => {
    const outcomes = await onRanks(
      2,
      async ({ comm, backend, rank, turn }) => {
        const group = async (name: string) => (await comm.split(0, rank, { name })) as typeof comm;
        const tensor = backend.tensor("f32", [4096]);
        const message = (fn: () => unknown) => {
          try {
            fn();
            return "nothing was thrown";
          } catch (error) {
            return `${(error as Error).name}: ${(error as Error).message}`;
          }
        };
        const output = backend.tensor("f32", [4096]);
        const late = await group("late");
        for (let i = 0; i < 3; i++) late.allReduce(tensor, { output }).wait();
        (tensor.data as Float32Array).fill(rank + 1);
        if (rank === 1) await turn(120);
        const values = (late.allReduce(tensor, { output }).wait().data as Float32Array).slice(0, 2);
        const differ = await group("differ");
        for (let i = 0; i < 3; i++) differ.allReduce(tensor, { output }).wait();
        const mismatch = message(() =>
          differ
            .allReduce(tensor.slice(0, rank === 0 ? 4096 : 2048), { output: output.slice(0, rank === 0 ? 4096 : 2048) })
            .wait(),
        );
        return [[...values], mismatch];
      },
      { handle: createThreadsHost({ ranks: 2, choices: "plans" }) },
    );
    for (const value of valuesOf(outcomes)) {
      const [values, mismatch] = value as [number[], string];
      expect(values).toEqual([3, 3]);
      expect(mismatch).toMatch(/MismatchError.*4096.*2048/s);
      expect(mismatch).toContain("two-shot-");
    }
  });
});
