/** Every collective's schedule on all ranks at once, without sockets: what one rank sends is what another one receives. */
import { describe, expect, it } from "vitest";
import { Random } from "../../../../test/oracle/random.ts";
import { MessageExchange } from "../../../../test/support/message-exchange.ts";
import { spread } from "../../../../test/support/spread.ts";
import { type Call, findWrong, OPERATION_NAMES, outputCount, referenceOutput } from "../../../collectives/index.ts";
import { sizeOf } from "../../../core/index.ts";
import { allReduce, dissemination } from "./algorithms.ts";
import { scheduleOf } from "./choose.ts";
import { EAGER_BYTES } from "./frame.ts";
import { gatherInRounds } from "./gather-rounds.ts";
import { operatorOf, Reducer } from "./reducer.ts";
import { MAX_ROUNDS, type Schedule } from "./schedule.ts";
import { ScheduleRun } from "./schedule-run.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`tcp schedules seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

interface Side {
  readonly schedule: Schedule;
  readonly input: Uint8Array;
  readonly output: Uint8Array;
}

function runAll(sides: readonly Side[], call: Call | undefined, random: Random): MessageExchange {
  const exchange = new MessageExchange(random);
  const reducer = new Reducer();
  let done = 0;
  for (const [rank, { schedule, input, output }] of sides.entries()) {
    const operator = call?.redop === undefined ? undefined : operatorOf(call.dtype, call.redop, sides.length);
    const buffers = { input, output, operator };
    new ScheduleRun(schedule, buffers, reducer, exchange.of(rank), () => done++).start();
  }
  while (exchange.step());
  expect([done, exchange.left]).toEqual([sides.length, 0]);
  expect(reducer.usedBytes).toBe(0);
  return exchange;
}

const COLLECTIVES = OPERATION_NAMES.filter((op) => op !== "send" && op !== "recv" && op !== "barrier");

describe("the schedules of collectives over sockets", () => {
  it.each(COLLECTIVES)(
    "%s: right on 1 to 8 ranks, small and large",
    (op) => {
      const random = new Random(seed);
      for (const size of [3, ...spread([1, 2, 5, 8], 2)]) {
        for (const count of [0, 1, 7, 3_000 + random.below(1000), 70_000 + random.below(1000)]) {
          // Sizes that take several chunks of several megabytes: on few ranks.
          const part =
            count > 50_000 && size > 3 ? 20_000 + random.below(100) : count * (size < 3 && count > 50_000 ? 12 : 1);
          const root = random.below(size);
          const uneven = Array.from({ length: size }, (_, r) => (r === 0 && size > 1 ? 0 : random.below(part + 1)));
          const matrix = Array.from({ length: size }, () =>
            uneven.map(() => random.below(Math.floor(part / size) + 1)),
          );
          const parts = ["reduce_scatter", "all_to_all", "scatter"].includes(op);
          const total = uneven.reduce((a, b) => a + b, 0);
          const sum = (list: readonly number[]) => list.reduce((a, b) => a + b, 0);
          const calls = Array.from({ length: size }, (_, rank): Call => {
            const base = { op, numRanks: size, rank, dtype: "i32" as const, root };
            const redop = op.includes("reduce") ? { redop: "sum" as const } : {};
            if (op === "all_to_all_v") {
              const sendCounts = matrix[rank] as number[];
              const recvCounts = matrix.map((row) => row[rank] as number);
              return { ...base, sendCounts, recvCounts, inputCount: sum(sendCounts) };
            }
            if (op === "all_gather_v") return { ...base, counts: uneven, inputCount: uneven[rank] as number };
            if (op === "reduce_scatter_v") return { ...base, ...redop, counts: uneven, inputCount: total };
            const isShort = op === "scatter" && rank !== root;
            return { ...base, ...redop, inputCount: parts && !isShort ? part * size : part };
          });
          const inputs = calls.map(({ inputCount }, rank) =>
            Int32Array.from({ length: inputCount }, (_, i) => (rank + 1) * 1000 + i),
          );
          const agreed = op === "all_gather_v" || op === "reduce_scatter_v" ? total : op === "all_to_all_v" ? 0 : part;
          const sides = calls.map((call, rank): Side => {
            const length = outputCount(call);
            const schedule = scheduleOf(call, { rank, size, elementBytes: 4 }, agreed * 4);
            return {
              schedule,
              input: new Uint8Array((inputs[rank] as Int32Array).buffer),
              output: new Uint8Array(length * sizeOf("i32")),
            };
          });
          runAll(sides, calls[0], random);
          for (const rank of calls.keys()) {
            const isRooted = op === "reduce" || op === "gather";
            if (isRooted && rank !== root) continue;
            const actual = new Int32Array((sides[rank] as Side).output.buffer);
            const options = {
              numRanks: size,
              rank,
              count: part,
              root,
              ...(op.endsWith("_v") && op !== "all_to_all_v" ? { counts: uneven } : {}),
              ...(op === "all_to_all_v" ? { sendCounts: matrix } : {}),
            };
            for (const { at, expected } of referenceOutput(op, "i32", "sum", inputs, options)) {
              const wrong = findWrong(expected, actual, at);
              expect(wrong, `${op}, ${size} ranks, ${part} elements, rank ${rank}`).toBeUndefined();
            }
          }
        }
      }
    },
    60_000,
  );

  it.each(["all_reduce", "reduce"] as const)(
    "%s: right in place, where results lie in memory that has yet to leave",
    (op) => {
      const random = new Random(seed);
      for (const [size, count] of [
        [2, 2_000_000 + random.below(1000)],
        [3, 300_000],
        [5, 60_000 + random.below(100)],
      ] as const) {
        const root = random.below(size);
        const inputs = Array.from({ length: size }, (_, rank) =>
          Int32Array.from({ length: count }, (_, i) => (rank + 1) * 1000 + i),
        );
        const calls = inputs.map(
          (_, rank): Call => ({ op, numRanks: size, rank, dtype: "i32", redop: "sum", root, inputCount: count }),
        );
        const given = inputs.map((input) => input.slice());
        const sides = calls.map((call, rank): Side => {
          const memory = new Uint8Array((inputs[rank] as Int32Array).buffer);
          return {
            schedule: scheduleOf(call, { rank, size, elementBytes: 4 }, count * 4),
            input: memory,
            output: memory,
          };
        });
        runAll(sides, calls[0], random);
        for (const [rank, actual] of inputs.entries()) {
          if (op === "reduce" && rank !== root) continue;
          for (const { at, expected } of referenceOutput(op, "i32", "sum", given, {
            numRanks: size,
            rank,
            count,
            root,
          })) {
            expect(findWrong(expected, actual, at), `${op}, ${size} ranks, rank ${rank}`).toBeUndefined();
          }
        }
      }
    },
  );

  it("every rank hears of every other in a barrier of log2 rounds", () => {
    for (let size = 1; size <= 33; size++) {
      const knows = Array.from({ length: size }, (_, rank) => new Set([rank]));
      const strands = Array.from({ length: size }, (_, rank) => dissemination({ rank, size, elementBytes: 1 }));
      const rounds = Math.ceil(Math.log2(size));
      expect(strands[0]).toHaveLength(rounds);
      for (let round = 0; round < rounds; round++) {
        const before = knows.map((one) => new Set(one));
        for (const strand of strands) {
          const rank = strands.indexOf(strand);
          for (const { from } of strand[round]?.recvs ?? [])
            for (const one of before[from] ?? []) knows[rank]?.add(one);
        }
      }
      expect(knows.every((one) => one.size === size)).toBe(true);
    }
  });

  it("gather small parts in log2 rounds, each rank sending one message a round", () => {
    for (const size of [1, 2, 3, 8, 13, 64]) {
      const sides = Array.from({ length: size }, (_, rank): Side => {
        const schedule = gatherInRounds({ rank, size, elementBytes: 1 }, 5);
        return { schedule, input: Uint8Array.of(rank, 2, 3, 4, size), output: new Uint8Array(5 * size) };
      });
      const { numMessages } = runAll(sides, undefined, new Random(seed));
      expect(numMessages).toBe(size * Math.ceil(Math.log2(size)));
      const expected = Array.from({ length: size }, (_, rank) => [rank, 2, 3, 4, size]).flat();
      for (const { output } of sides) expect([...output]).toEqual(expected);
    }
  });

  it("moves no more of a large all-reduce than must be, and stays within the bounds of a message's number", () => {
    for (const size of [2, 4, 7]) {
      const count = 2 ** 20;
      const sides = Array.from({ length: size }, (_, rank): Side => {
        const schedule = allReduce({ rank, size, elementBytes: 4 }, count * 4);
        const data = new Uint8Array(count * 4);
        return { schedule, input: data, output: data };
      });
      const call = {
        op: "all_reduce",
        numRanks: size,
        rank: 0,
        dtype: "f32",
        inputCount: count,
        redop: "sum",
      } as const;
      const { bytes } = runAll(sides, call, new Random(seed));
      expect(bytes).toBe(2 * (size - 1) * count * 4);
    }
    const MiB = 2 ** 20;
    const bounds = (size: number, bytes: number, pieceBytes?: number) => {
      const { numStrands, window, scratchBytes } = allReduce({ rank: 0, size, elementBytes: 4, pieceBytes }, bytes);
      return [numStrands, window, Math.round(scratchBytes / MiB)];
    };
    // Of many ranks, from two chunks on: half as many, twice as large, half of them under way.
    expect([4, 8, 16, 64].map((mib) => bounds(4, mib * MiB))).toEqual([4, 8, 16, 64].map((mib) => [mib / 4, 4, 4]));
    expect([4, 8].map((mib) => bounds(8, mib * MiB))).toEqual([1, 2].map((numStrands) => [numStrands, 4, 4]));
    expect([12, 16, 64].map((mib) => bounds(8, mib * MiB))).toEqual([2, 2, 8].map((numStrands) => [numStrands, 2, 8]));
    expect(bounds(8, 16 * MiB, MiB / 4)).toEqual([8, 4, 2]);
    const widest = allReduce({ rank: 0, size: 256, elementBytes: 1 }, EAGER_BYTES / 128);
    expect(widest.strand(0).length).toBeLessThan(MAX_ROUNDS);
  });
});
