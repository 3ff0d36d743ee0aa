/** Collectives that plans serve: by `algorithm:` and by tables. Every one is compared with what the kernels give. */
import { describe, expect, it } from "vitest";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import { createThreadsHost } from "./host.ts";

const document = (tables: ChoiceDocument["tables"]): ChoiceDocument => ({
  schemaVersion: 1,
  source: "test",
  date: "2026-01-02",
  tables,
});

describe("algorithm:", () => {
  it.each(spread([2, 3], 2))(
    "gives on %i ranks what the kernel gives, in place and not, on tensors and arrays, mixed",
    async (n) => {
      const outcomes = await onRanks(n, async ({ comm, backend, n, rank, load }) => {
        const { ALGORITHMS } =
          await load<typeof import("../../../authoring/algorithms/index.ts")>("authoring/algorithms");
        const root = n - 1;
        const wrong: string[] = [];
        const served = new Set<string>();
        const collectives = {
          all_reduce: "allReduce",
          broadcast: "broadcast",
          reduce: "reduce",
          all_gather: "allGather",
          reduce_scatter: "reduceScatter",
          all_to_all: "allToAll",
          gather: "gather",
          scatter: "scatter",
        } as const;
        const input = (length: number, tensor: boolean) => {
          const made = tensor ? backend.tensor("i32", [length]) : new Int32Array(length);
          const data = made instanceof Int32Array ? made : (made.data as Int32Array);
          for (let i = 0; i < length; i++) data[i] = rank * 1000 + i * 7;
          return made;
        };
        // "mixed": ranks differ in whether their result is where their input is. Every call has the ranks meet, which takes long on
        // a busy machine; three ranks differ from two in the plans alone.
        const onTwo = [
          ["fresh", 1],
          ["given", 37],
          ["fresh", 5000],
          ["given", 5000],
        ] as const;
        const cases = [["mixed", 37], ["mixed", 5000], ...(n === 2 ? onTwo : [])] as const;
        for (const [op, method] of Object.entries(collectives)) {
          const rooted = ["broadcast", "reduce", "gather", "scatter"].includes(op);
          const names = ALGORITHMS.filter((a) => a.collective === op && a.legal(n) && !a.needsSwitch);
          for (const [form, count] of cases) {
            const tensors = (count + rank) % 2 === 0;
            const call = (algorithm?: string) => {
              const inPlace = form === "fresh" || (form === "mixed" && rank === 0);
              const options = { ...(rooted ? { root } : {}), ...(algorithm === undefined ? {} : { algorithm }) };
              const parts = op === "reduce_scatter" || op === "all_to_all" || (op === "scatter" && rank === root);
              const wide = op === "all_gather" || op === "all_to_all" || (op === "gather" && rank === root);
              const data = input(parts ? n * count : count, tensors);
              const lacks = (op === "reduce" || op === "gather") && rank !== root;
              const output =
                inPlace || lacks || (op === "scatter" && rank !== root)
                  ? {}
                  : { output: input(wide ? n * count : count, tensors) };
              // biome-ignore lint/suspicious/noExplicitAny: the methods differ in their options.
              const work = (comm as any)[method](data, { ...options, ...output });
              const result = work.wait();
              const kept = "output" in output ? "" : ` ${String((data as Int32Array).length ?? 0)}`;
              return lacks ? kept : `${[...(result.data as Int32Array)].join()}${kept}`;
            };
            const kernel = call();
            for (const algorithm of [...names.map((a) => a.name), `${names[0]?.name}*2`]) {
              const plan = call(algorithm);
              served.add(algorithm);
              if (plan !== kernel)
                wrong.push(`${op} ${algorithm} ${count} ${form}: ${plan.slice(0, 80)}, ${kernel.slice(0, 80)}`);
            }
          }
        }
        const { choices } = comm.stats();
        const counted = [...served].filter(
          (name) => !Object.keys(choices ?? {}).some((key) => key.endsWith(` ${name}`)),
        );
        await comm.close();
        return [wrong, counted, served.size > 20];
      });
      expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => [[], [], true]));
    },
  );

  it("rounds 16-bit sums once, and averages, as the kernels do", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank }) => {
      const wrong: string[] = [];
      for (const op of ["sum", "avg", "max", comm.preMulSum(2)] as const) {
        for (const dtype of ["bf16", "f16", "f32"] as const) {
          const make = () => {
            const array = dtype === "f32" ? new Float32Array(300) : new Uint16Array(300);
            for (let i = 0; i < 300; i++)
              array[i] = dtype === "f32" ? (i + rank) / 3 : 0x3c00 + ((i * 5 + rank * 3) % 200);
            return array;
          };
          const bits = (algorithm?: string) => {
            const data = make();
            comm.allReduce(data as never, { op, dtype, ...(algorithm === undefined ? {} : { algorithm }) }).wait();
            return [...new Uint8Array(data.buffer)].join();
          };
          if (bits("ring-all-reduce") !== bits()) wrong.push(`${dtype} ${JSON.stringify(op)}`);
        }
      }
      await comm.close();
      return wrong;
    });
    expect(valuesOf(outcomes)).toEqual([[], []]);
  });

  it("refuses what the collective does not take, before anything moves, and what run() does not need", async () => {
    const outcomes = await onRanks(2, async ({ comm }) => {
      const errors: string[] = [];
      const note = (fn: () => unknown) => {
        try {
          fn();
        } catch (error) {
          errors.push(`${(error as { argument?: string }).argument}: ${(error as Error).message}`);
        }
      };
      const x = new Float32Array(4);
      note(() => comm.allReduce(x, { algorithm: "ring-all-gather" }));
      note(() => comm.broadcast(x, { algorithm: 5 as never }));
      note(() => comm.allGatherV(x, { counts: [4, 4], algorithm: "ring-all-gather" }));
      note(() => comm.batch((group) => void group.allReduce(x, { algorithm: "nothing" })));
      note(() => comm.run({} as never, { algorithm: "ring-all-reduce" } as never));
      await comm.allReduce(x, { algorithm: "two-shot-kernel" });
      await comm.close();
      return errors;
    });
    const [first, second] = valuesOf(outcomes) as string[][];
    expect(second).toEqual(first);
    expect(first).toMatchInlineSnapshot(`
      [
        "algorithm: algorithm is "ring-all-gather"; expected one of two-shot-kernel, one-shot-all-reduce, one-shot-read-all-reduce, one-shot-packet-all-reduce, two-shot-all-reduce, two-shot-packet-all-reduce, two-shot-read-all-reduce, two-shot-fused-read-all-reduce, one-pass-all-reduce, two-phase-all-reduce, two-phase-read-all-reduce, two-phase-push-all-reduce, two-phase-packet-all-reduce, streaming-all-reduce, streaming-two-phase-all-reduce, staged-all-reduce, ring-all-reduce, bidirectional-ring-all-reduce, multi-ring-all-reduce, mesh-all-reduce, recursive-doubling-all-reduce, halving-doubling-all-reduce, double-binary-tree-all-reduce, binomial-all-reduce; a plan's name also with *INSTANCES and /CHUNKS",
        "algorithm: algorithm is 5; expected one of direct-kernel, direct-broadcast, one-pass-broadcast, binomial-broadcast, chain-broadcast, scatter-all-gather-broadcast, packet-broadcast, staged-broadcast; a plan's name also with *INSTANCES and /CHUNKS",
        "algorithm: algorithm is "ring-all-gather"; expected one of direct-kernel; a plan's name also with *INSTANCES and /CHUNKS",
        "algorithm: algorithm is "nothing"; expected one of two-shot-kernel, one-shot-all-reduce, one-shot-read-all-reduce, one-shot-packet-all-reduce, two-shot-all-reduce, two-shot-packet-all-reduce, two-shot-read-all-reduce, two-shot-fused-read-all-reduce, one-pass-all-reduce, two-phase-all-reduce, two-phase-read-all-reduce, two-phase-push-all-reduce, two-phase-packet-all-reduce, streaming-all-reduce, streaming-two-phase-all-reduce, staged-all-reduce, ring-all-reduce, bidirectional-ring-all-reduce, multi-ring-all-reduce, mesh-all-reduce, recursive-doubling-all-reduce, halving-doubling-all-reduce, double-binary-tree-all-reduce, binomial-all-reduce; a plan's name also with *INSTANCES and /CHUNKS",
        "algorithm: algorithm is "ring-all-reduce"; expected nothing: run() takes the plan itself",
      ]
    `);
  });

  it("is a mismatch, not a hang, when the ranks' operators differ", async () => {
    const outcomes = await onRanks(2, ({ comm, rank }) =>
      comm.allReduce(new Float32Array(8), { algorithm: "one-shot-packet-all-reduce", op: rank === 0 ? "min" : "max" }),
    );
    for (const error of valuesOf(outcomes) as { code: string; message: string }[]) {
      expect(error).toMatchObject({ code: "MISMATCH" });
      expect(error.message).toMatch(/min[\s\S]*max/);
    }
  });

  // One that sleeps in the call is woken to say what it called: without that, one report in ten had only the fingerprint.
  it("is a mismatch, not a hang, when the ranks name different ones, and each is told", async () => {
    const outcomes = await onRanks(2, async ({ comm, rank }) => {
      const algorithm = rank === 0 ? "ring-all-reduce" : "two-shot-kernel";
      const told: { code: string; message: string }[] = [];
      for (let i = 0; i < 40; i++) {
        const group = await comm.split(0);
        const error = await group?.allReduce(new Float32Array(4), { algorithm }).catch((e: unknown) => e);
        told.push({ code: String((error as { code?: string }).code), message: String((error as Error).message) });
        await group?.close();
      }
      return told;
    });
    for (const errors of valuesOf(outcomes) as { code: string; message: string }[][]) {
      expect(errors).toHaveLength(40);
      for (const { code, message } of errors) {
        expect(code).toBe("MISMATCH");
        expect(message).toMatch(/rank 0: all_reduce\(.*of plan ring-all-reduce[\s\S]*rank 1: all_reduce\(/);
      }
    }
  });
});

describe("tables", () => {
  const table = { backend: "threads", ranks: [2, 2], collective: "all_reduce" } as const;

  it("that the launcher hands over decide by size, for tensors of the world too, and are counted", async () => {
    const choices = document([
      {
        ...table,
        rows: [
          { fromBytes: 0, use: "two-shot-kernel" },
          { fromBytes: 1024, use: "ring-all-reduce" },
          { fromBytes: 4096, use: "two-shot-kernel" },
        ],
      },
    ]);
    const outcomes = await onRanks(
      2,
      async ({ comm, backend, rank }) => {
        const sums: number[] = [];
        for (const count of [10, 256, 1023, 1024, 5000]) {
          const x = backend.tensor("f32", [count]);
          x.data.fill(rank + 1);
          await comm.allReduce(x);
          sums.push((x.data as Float32Array).reduce((a, b) => a + b, 0) / count);
        }
        const counts = comm.stats().choices;
        await comm.close();
        return [sums, counts];
      },
      { handle: createThreadsHost({ ranks: 2, choices }) },
    );
    const counts = { "all_reduce ring-all-reduce": 2, "all_reduce two-shot-kernel": 3 };
    expect(valuesOf(outcomes)).toEqual([0, 1].map(() => [[3, 3, 3, 3, 3], counts]));
  });

  it("are refused by the launcher when they are none", async () => {
    const { checkBackendOptions } = await import("../../comm/index.ts");
    const { THREADS_KIND } = await import("./threads-kind.ts");
    const check = (choices: unknown) => () => checkBackendOptions(THREADS_KIND as never, { choices }, 2);
    expect(check("shipped")).not.toThrow();
    expect(check("plans")).not.toThrow();
    expect(check(document([{ ...table, rows: [{ fromBytes: 0, use: "ring-all-reduce" }] }]))).not.toThrow();
    expect(check("mine")).toThrow(/"shipped", "plans", or a document of choices/);
    expect(check(document([{ ...table, rows: [] }]))).toThrow(/choices.tables\[0\].rows: must be a list/);
  });
});

describe("an algorithm of the program's own", () => {
  it("serves calls by its name once every rank has registered it, and is proved first", async () => {
    const outcomes = await onRanks(
      2,
      async ({ comm, rank, load }) => {
        const { registerAlgorithm } = await load<typeof import("../../executor/index.ts")>("runtime/executor");
        const language = await load<typeof import("../../../authoring/language/index.ts")>("authoring/language");
        const { ringAllReduce } =
          await load<typeof import("../../../authoring/algorithms/index.ts")>("authoring/algorithms");
        registerAlgorithm({
          name: "mine",
          collective: "all_reduce",
          make: ({ numRanks }) => ringAllReduce({ numRanks }),
        });
        const lazy = ({ numRanks }: { numRanks: number }) =>
          language.program({ name: "lazy", collective: language.allReduce(numRanks), autoSync: "full" }, (p) => {
            for (const r of p.ranks) p.copy(r.output.at(0), r.input.at(0));
          });
        registerAlgorithm({ name: "lazy", collective: "all_reduce", make: lazy });
        registerAlgorithm({
          name: "ring-all-gather",
          collective: "all_reduce",
          make: ({ numRanks }) => ringAllReduce({ numRanks }),
        });
        registerAlgorithm({
          name: "late",
          collective: "all_reduce",
          make: (async () => lazy({ numRanks: 2 })) as never,
        });
        registerAlgorithm({ name: "none", collective: "all_reduce", make: (() => null) as never });
        const x = new Float32Array(100).fill(rank + 1);
        await comm.allReduce(x, { algorithm: "mine" });
        const errors: string[] = [];
        for (const algorithm of ["lazy", "ring-all-gather", "late", "none"]) {
          try {
            await comm.allReduce(x, { algorithm });
          } catch (error) {
            errors.push((error as Error).message.split("\n")[0] ?? "");
          }
        }
        const { choices } = comm.stats();
        await comm.close();
        return [x[0], x[99], choices, errors];
      },
      { isFresh: true },
    );
    const [first, second] = valuesOf(outcomes);
    expect(second).toEqual(first);
    expect(first).toMatchInlineSnapshot(`
      [
        3,
        3,
        {
          "all_reduce mine": 1,
        },
        [
          "lazy: missing-contribution: output[0] of rank 0 lacks input[0] of rank 1; it holds input[0] of rank 0 (and 3 more)",
          "name is "ring-all-gather"; expected a name that no other algorithm has",
          "what late makes is a promise; expected a program, or a plan that compile() made",
          "what none makes is null; expected a program, or a plan that compile() made",
        ],
      ]
    `);
  });
});
