/** Calls whose moves are large enough to be the host's: everything there, and nothing beyond it. */
import { expect, it } from "vitest";
import { onRanks, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import { largeMove } from "./large-move.ts";

it("moves a stretch of memory, and nothing else", () => {
  const buffer = new SharedArrayBuffer(1 << 16);
  const words = new Int32Array(buffer);
  for (let i = 0; i < words.length; i++) words[i] = i;
  const ends: number[] = [];
  const move = largeMove({
    words: (end = 0) => {
      ends.push(end);
      return words;
    },
  });
  move(40_000, 400, 4000);
  expect(ends).toEqual([44_000]);
  for (let i = 0; i < words.length; i++) expect(words[i]).toBe(i >= 10_000 && i < 11_000 ? i - 9900 : i);
});

it("gives collectives of large parts what small ones get, in lengths that fill no line, above 2 GiB too", async () => {
  const outcomes = await onRanks(2, async ({ backend, comm, n, rank }) => {
    // Far up in the memory, addresses are negative as i32.
    const ballast = rank === 0 ? Array.from({ length: 34 }, () => backend.tensor("u8", [64 * 1024 * 1024])) : [];
    await comm.barrier();
    const wrong: string[] = [];
    const value = (r: number, i: number) => (r * 97 + i * 31 + (i >> 9)) & 255;
    for (const count of [512 * 1024 - 1, 512 * 1024 + 13, 1_300_003]) {
      const whole = backend.tensor("u8", [n * count]);
      const part = backend.tensor("u8", [count]);
      if (whole.byteOffset < 2 ** 31) wrong.push("low");
      for (let i = 0; i < n * count; i++) whole.data[i] = value(rank, i);
      part.data.set(whole.data.subarray(0, count));
      const result = backend.tensor("u8", [n * count]);
      const check = (what: string, data: ArrayLike<number>, expected: (i: number) => number) => {
        for (let i = 0; i < data.length; i++) {
          if (data[i] === expected(i)) continue;
          wrong.push(`${what} of ${count}: byte ${i} is ${data[i]}, not ${expected(i)}`);
          return;
        }
      };
      await comm.allToAll(whole, { output: result });
      check("all_to_all", result.data, (i) => value(Math.floor(i / count), rank * count + (i % count)));
      await comm.allGather(part, { output: result });
      check("all_gather", result.data, (i) => value(Math.floor(i / count), i % count));
      await comm.broadcast(whole, { output: result, root: 1 });
      check("broadcast", result.data, (i) => value(1, i));
      await comm.gather(part, rank === 0 ? { output: result } : {});
      if (rank === 0) check("gather", result.data, (i) => value(Math.floor(i / count), i % count));
      for (const tensor of [whole, part, result]) backend.free(tensor);
    }
    for (const tensor of ballast) backend.free(tensor);
    return wrong;
  });
  expect(valuesOf(outcomes)).toEqual([[], []]);
});
