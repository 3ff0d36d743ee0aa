/** Calls that name an algorithm which calls named before: they leave the careful path, and are checked and told of as there. */
import { describe, expect, it } from "vitest";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";

describe("algorithm: on tensors of the world", () => {
  it("is the careful path's once for a name, of every collective and size, and gives what the kernel gives", async () => {
    const outcomes = await onRanks(2, async ({ comm, backend, rank }) => {
      const whole = backend.tensor("i32", [6000]);
      const other = backend.tensor("i32", [6000]);
      const root = 1;
      const found: Record<string, { slow: string; wrong: number[]; choices: unknown }> = {};
      const plans = {
        all_reduce: "ring-all-reduce",
        reduce_scatter: "one-pass-reduce-scatter",
        all_gather: "ring-all-gather",
        all_to_all: "bruck-all-to-all",
        broadcast: "binomial-broadcast",
        reduce: "packet-reduce",
        gather: "direct-gather",
        scatter: "one-pass-scatter",
      };
      for (const [op, plan] of Object.entries(plans)) {
        const group = (await comm.split(0, rank, { name: op })) as typeof comm;
        const kernel = op === "all_reduce" ? "two-shot-kernel" : "direct-kernel";
        const call = (algorithm: string | undefined, count: number) => {
          for (let i = 0; i < 6000; i++) whole.data[i] = rank * 1000 + i;
          other.data.fill(-1);
          const by = algorithm === undefined ? {} : { algorithm };
          const [parts, part] = [whole.slice(0, 2 * count), whole.slice(0, count)];
          const to = { output: other.slice(0, 2 * count), ...by };
          const toPart = { output: other.slice(0, count), ...by };
          const isRoot = rank === root;
          const made = {
            all_reduce: () => group.allReduce(part, toPart),
            reduce_scatter: () => group.reduceScatter(parts, toPart),
            all_gather: () => group.allGather(part, to),
            all_to_all: () => group.allToAll(parts, to),
            broadcast: () => group.broadcast(part, { root, ...toPart }),
            reduce: () => group.reduce(part, isRoot ? { root, ...toPart } : { root, ...by }),
            gather: () => group.gather(part, isRoot ? { root, ...to } : { root, ...by }),
            scatter: () =>
              isRoot
                ? group.scatter(parts, { root, ...toPart })
                : group.scatter(other.slice(0, count), { root, ...by }),
          }[op] as () => { wait(): unknown; issuedAt?: number };
          const work = made();
          // The careful path times every call, the fast one the sixteenth; what is done when it is issued keeps no time.
          const isSlow = (work.issuedAt ?? -1) !== -1;
          work.wait();
          return { isSlow, data: other.data.join() };
        };
        let slow = "";
        const wrong: number[] = [];
        for (const count of [6, 3000, 6]) {
          const expected = call(undefined, count).data;
          for (const name of [plan, kernel]) {
            const { isSlow, data } = call(name, count);
            slow += isSlow ? "slow " : "fast ";
            if (data !== expected) wrong.push(count);
          }
        }
        found[op] = { slow, wrong, choices: group.stats().choices };
        // Calls of a group that a member has left are careful.
        group.barrier().wait();
        await group.close();
      }
      return found;
    });
    const [first, second] = valuesOf(outcomes) as Record<string, { choices: Record<string, number> }>[];
    expect(second).toEqual(first);
    expect(Object.keys(first ?? {})).toHaveLength(8);
    for (const [op, one] of Object.entries(first ?? {})) {
      expect([op, one]).toEqual([op, { slow: "slow slow fast fast fast fast ", wrong: [], choices: one.choices }]);
      // Three calls by the plan's name; by the kernel's, and by nobody's name, those that the tables give to the kernel.
      const calls = Object.values(one.choices).reduce((sum, n) => sum + n, 0);
      expect([op, calls]).toEqual([op, 9]);
      const named = Object.entries(one.choices).filter(([key]) => !key.endsWith("-kernel"));
      expect(named.reduce((sum, [, n]) => sum + n, 0)).toBeGreaterThanOrEqual(3);
    }
  });

  it("takes other names, operators and tables in turn without mixing them up, and refuses what it always refused", async () => {
    const outcomes = await onRanks(2, async ({ comm, backend, rank }) => {
      const [from, to] = [backend.tensor("f32", [200]), backend.tensor("f32", [200])];
      from.data.fill(rank + 1);
      const sums: unknown[] = [];
      for (let round = 0; round < 2; round++) {
        for (const algorithm of ["ring-all-reduce", "two-shot-kernel", "ring-all-reduce*2", undefined]) {
          for (const op of ["sum", "max"] as const) {
            for (const output of [to, undefined]) {
              from.data.fill(rank + 1);
              const by = { op, ...(algorithm === undefined ? {} : { algorithm }) };
              sums.push(comm.allReduce(from, output === undefined ? by : { ...by, output }).wait().data[199]);
            }
          }
        }
      }
      const errors: string[] = [];
      const note = (fn: () => unknown) => {
        try {
          fn();
          errors.push("nothing was thrown");
        } catch (error) {
          errors.push((error as Error).message.slice(0, 60));
        }
      };
      note(() => comm.allReduce(from, { algorithm: "ring-all-reduces" }));
      note(() => comm.allReduce(from, { algorithm: Symbol("ring") as never }));
      note(() => comm.allReduce(from, { output: to.slice(1), algorithm: "ring-all-reduce" }));
      const part = from.slice(0, 100);
      comm.allGather(part, { output: to, algorithm: "ring-all-gather" }).wait();
      note(() => comm.allGatherV(part, { counts: [100, 100], output: to, algorithm: "ring-all-gather" }));
      const { choices } = comm.stats();
      await comm.close();
      return { sums, errors, choices };
    });
    const [first, second] = valuesOf(outcomes) as { sums: number[] }[];
    expect(second).toEqual(first);
    expect(first?.sums).toEqual(Array.from({ length: 32 }, (_, i) => (i % 4 < 2 ? 3 : 2)));
    expect(first).toMatchObject({
      errors: [
        'algorithm is "ring-all-reduces"; expected one of two-shot-ke',
        "algorithm is Symbol(ring); expected one of two-shot-kernel, ",
        expect.stringMatching(/output/),
        'algorithm is "ring-all-gather"; expected one of direct-kerne',
      ],
      choices: {
        "all_reduce ring-all-reduce": 8,
        "all_reduce ring-all-reduce*2": 8,
        "all_reduce two-shot-kernel": 16,
        "all_gather ring-all-gather": 1,
      },
    });
  });

  it.each([8, 4096])(
    "is a mismatch of both names' words when ranks name different ones for %i bytes that both know",
    async (bytes) => {
      const outcomes = await onRanks(
        2,
        async ({ comm, backend, rank, data }) => {
          const [from, to] = [0, 1].map(() => backend.tensor("f32", [(data[0] as number) / 4]));
          const told: string[] = [];
          for (let i = 0; i < 10; i++) {
            const group = (await comm.split(0)) as typeof comm;
            const call = (algorithm: string) => group.allReduce(from!, { output: to!, algorithm });
            for (let k = 0; k < 3; k++) for (const name of ["ring-all-reduce", "two-shot-kernel"]) call(name).wait();
            const error = await call(rank === 0 ? "ring-all-reduce" : "two-shot-kernel").then(
              () => ({ name: "none", message: "" }),
              (e: Error) => e,
            );
            told.push(`${error.name}: ${error.message}`);
            await group.close();
          }
          return told;
        },
        { data: [bytes] },
      );
      for (const errors of valuesOf(outcomes) as string[][]) {
        expect(errors).toHaveLength(10);
        for (const error of errors) {
          expect(error).toMatch(
            /^MismatchError: [\s\S]*rank 0: all_reduce\(.*of plan ring-all-reduce[\s\S]*rank 1: all_reduce\(/,
          );
        }
      }
    },
  );
});
