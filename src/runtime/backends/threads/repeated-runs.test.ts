/** `comm.run` of a plan that ran before: what leaves the careful path, what does not, and what goes wrong there. */
import { afterAll, describe, expect, it } from "vitest";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import type * as Algorithms from "../../../authoring/algorithms/index.ts";
import { createThreadsHost, dumpFlight } from "./index.ts";

const handle = createThreadsHost({ ranks: 2 });

describe("a plan that is run again", () => {
  it("leaves the careful path for plain runs alone, gives the same, and is refused and told as before", async () => {
    const outcomes = await onRanks(
      2,
      async ({ comm, backend, rank, turn, load }) => {
        const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
        const plan = (name: string) => algorithm(name).make({ numRanks: 2 }).plan();
        const [ring, scatter] = [plan("ring-all-reduce"), plan("one-pass-scatter")];
        const [from, to] = [backend.tensor("i32", [9000]), backend.tensor("i32", [9000])];
        const value = (r: number, i: number) => ((r * 31 + i * 7) % 100) + 1;
        for (let i = 0; i < 9000; i++) from.data[i] = value(rank, i);
        const wrong: string[] = [];
        const isFast: boolean[] = [];
        const run = (count: number, op: "sum" | "max" | undefined, expected: (a: number, b: number) => number) => {
          to.data.fill(-1);
          const more = op === undefined ? {} : { op };
          const work = comm.run(ring, { input: from.slice(0, count), output: to.slice(0, count), ...more });
          const result = work.wait();
          // The careful path times every call, the fast one a few; what is done when it is issued keeps no time.
          isFast.push(((work as { issuedAt?: number }).issuedAt ?? -1) === -1);
          const right = (i: number) => (i < count ? expected(value(0, i), value(1, i)) : -1);
          const at = [...to.data].findIndex((one, i) => one !== right(i));
          if (at >= 0 || result?.size !== count) wrong.push(`${count} ${op}: ${at}`);
        };
        const sum = (a: number, b: number) => a + b;
        for (const count of [1000, 1000, 9000, 7, 1000]) run(count, undefined, sum);
        for (const count of [50, 8999]) run(count, "max", Math.max);
        for (const count of [50, 8999]) run(count, "sum", sum);
        if (rank === 1) await turn(50);
        run(300, undefined, sum);
        // Only the root gives something.
        const part = to.slice(0, 10);
        for (let i = 0; i < 3; i++) {
          to.data.fill(-1);
          const { data } = comm
            .run(scatter, rank === 0 ? { input: from.slice(0, 20), output: part } : { output: part })
            .wait() as { data: Int32Array };
          if ([...data].some((one, k) => one !== value(0, 10 * rank + k))) wrong.push(`scatter ${i}`);
        }
        const message = (fn: () => unknown) => {
          try {
            fn();
            return "nothing was thrown";
          } catch (error) {
            return `${(error as Error).name}: ${(error as Error).message}`;
          }
        };
        const gone = backend.tensor("i32", [8]);
        backend.free(gone);
        const refused = [
          message(() => comm.run(ring, { input: gone, output: to.slice(0, 8) })),
          message(() => comm.run(ring, { input: from.slice(0, 8), output: to.slice(0, 7) })),
          message(() => comm.run(ring, { input: from.slice(0, 8), output: to.slice(0, 8), timeoutMs: -1 })),
          message(() => comm.run(ring, null as never)),
        ];
        // One more than the sizes say: a difference that the fingerprint shows.
        const count = 100 + rank;
        const differs = message(() =>
          comm.run(ring, { input: from.slice(0, count), output: to.slice(0, count) }).wait(),
        );
        return { wrong, isFast, refused, differs, calls: comm.stats().operations["run"]?.calls };
      },
      { handle },
    );
    for (const one of valuesOf(outcomes)) {
      expect(one).toMatchObject({ wrong: [], calls: 13 });
      const { isFast, refused, differs } = one as { isFast: boolean[]; refused: string[]; differs: string };
      // The first run, and the first of another operator: one call in 64 is timed, and the ranks never come to it here.
      expect(isFast).toEqual([false, true, true, true, true, false, true, true, true, true]);
      expect(refused[0]).toMatch(/free/);
      expect(refused[1]).toMatch(/28 bytes/);
      expect(refused[2]).toMatch(/timeoutMs/);
      expect(refused[3]).toMatch(/options/);
      expect(differs).toMatch(/MismatchError.*(100[\s\S]*101|101[\s\S]*100)/s);
    }
  });
});

afterAll(() => {
  // The recorder has the calls of both paths.
  expect(dumpFlight(handle).ranks[0]?.entries.filter(({ op }) => op === "run").length).toBe(14);
});
