/**
 * More attacks by hand, by a second reader of the verifier: on what it takes for granted of sizes that it does not look at, of
 * launches, and of executors. Each comes from a sentence in a header that a plan can make untrue.
 */
import type { Op, PlanCollective, SimpleOp } from "../../src/authoring/plan/execution-plan.ts";
import { acquire, copy, far, nop, put, release, signal, sum, wait } from "../support/small-plans.ts";
import {
  type Attack,
  alone,
  I,
  i,
  loop,
  meet,
  O,
  o,
  onExecutor,
  one,
  oneRank,
  pack,
  planOf,
  right,
  S,
  s,
  two,
  unpack,
  wrong,
} from "./attacks.ts";

const times = (n: number, op: Op): Op[] => Array.from({ length: n }, () => op);
const of = (inputs: number[], outputs: number[], post: readonly unknown[]): Partial<PlanCollective> => ({
  operation: "custom",
  custom: { name: "mine", inputChunks: inputs, outputChunks: outputs, post: post as never },
});
const own = (chunk: number) => ({ rank: 0, chunk });

/** A loop over four chunks whose ranges lie a chunk apart: what a chunk gets depends on the unit that it falls into. */
const shifted = (numChunks: number, left: number, rightmost: number) =>
  planOf(
    oneRank([
      copy(s(5 + left), i(1)),
      copy(s(5 + rightmost), i(0)),
      nop,
      loop([copy(s(0, numChunks), s(5, numChunks)), nop, copy(s(6, numChunks), i(0, numChunks)), nop], 16, numChunks),
      nop,
      sum(O, s(left), s(rightmost)),
    ]),
    { input: 5, output: 1, scratch: 12 },
    of([5], [1], [[{ kind: "reduce", from: [own(0), own(1)] }]]),
  );

/** The loops of two ends in opposite orders, at rates that differ by a third: credits make up for it at small sizes. */
const closeRates = (credits: number) =>
  planOf(
    [
      [[...times(credits, signal()), loop([signal()], 16), wait(), loop([signal()], 12), copy(O, I)]],
      [[loop([wait()], 12), signal(), loop([wait()], 16), ...times(credits, wait()), copy(O, I)]],
    ],
    one,
  );

/** Strands that each signal before they wait, in a row: the last may run ahead by as many iterations as there are. */
const chain = (length: number) =>
  planOf(
    oneRank(
      [loop([release(0), acquire(length)]), copy(O, I)],
      ...Array.from({ length: length - 1 }, (_, d) => [loop([release(d + 1), acquire(d)])]),
      [loop([acquire(length - 1)]), loop([release(length)])],
    ),
    { ...one, semaphores: new Array<number>(length + 1).fill(0) },
  );

/** Each iteration moves data on by one place, through packets: a place that is right after two is wrong after three. */
const register = (contents: readonly number[]) =>
  planOf(
    oneRank([
      ...contents.map((chunk, place) => copy(s(place), i(chunk))),
      nop,
      loop(
        contents.flatMap((_, place) => [
          pack(s(6 + place), s(place)),
          nop,
          unpack(place === 0 ? O : s(place - 1), s(6 + place)),
          nop,
        ]),
      ),
    ]),
    { input: 2, output: 1, scratch: 10 },
    of([2], [1], [[{ kind: "copy", from: own(0) }]]),
  );

/** Ranks hand units over in two loops each: first both send, then both receive. */
const twoLoops = (ops: (peer: number) => SimpleOp[], after: SimpleOp[]) =>
  planOf(
    [1, 0].map((peer) => [[loop(ops(peer)), loop(after)]]),
    one,
  );
const sending = (peer: number) => [put(far(peer, "scratch", 0), I), nop, signal()] as SimpleOp[];
const receiving = [wait(), nop, copy(O, S)] as SimpleOp[];

const LOOPS: readonly Attack[] = [
  wrong("four chunks to the loop: two units of two chunks, where one chunk and four are fine", shifted(4, 1, 2)),
  wrong("three chunks to the loop: units of one and a half", shifted(3, 1, 2), { at: [0.5, 0.75, 0.6] }),
  right(
    "four chunks to the loop, and no place at two distances",
    planOf(
      oneRank([loop([copy(s(0, 4), i(0, 4)), nop, copy(s(6, 4), i(0, 4)), nop], 16, 4), nop, sum(O, s(0), s(7))]),
      { input: 5, output: 1, scratch: 12 },
      of([5], [1], [[{ kind: "reduce", from: [own(0), own(1)] }]]),
    ),
  ),
  wrong(
    "loops in opposite orders whose rates differ by a third: four credits make up for it up to twelve units",
    closeRates(4),
    { at: [30] },
  ),
  wrong("and with more credits, later", closeRates(9), { at: [60] }),
  wrong(
    "one credit that is turned into five tokens: stuck at the sixth unit",
    planOf(
      [
        [[loop([wait(), ...times(5, signal())]), wait(), copy(O, I)]],
        [[signal(), loop([wait()]), loop([signal()]), loop(times(4, wait())), copy(O, I)]],
      ],
      one,
    ),
    { at: [6] },
  ),
  wrong("strands that signal before they wait, in a row: stuck at the third unit", chain(2)),
  wrong("in a longer row: stuck at the fifth unit", chain(4), { at: [6] }),
  wrong(
    "stuck at three to sixteen units only: below, a loop ends by its credits; above, another gives enough",
    planOf(
      [
        [[loop([signal(), wait()]), ...times(20, signal()), ...times(2, wait()), copy(O, I)], [loop([signal()])]],
        [[...times(2, signal()), ...times(20, wait()), loop([signal()]), loop([wait(), wait()]), copy(O, I)]],
      ],
      one,
    ),
  ),
  wrong(
    "barriers one iteration apart",
    planOf(
      oneRank(
        [copy(O, I), meet(), meet(), meet(), loop([release(0), meet()])],
        [loop([acquire(0), meet()]), meet(), meet(), meet()],
      ),
      { ...one, semaphores: [0] },
    ),
  ),
  wrong("a shift register of packets: right after one and two iterations", register([0, 0, 1])),
  right("packets that carry the same data in every iteration", register([0])),
  wrong(
    "packets whose contents depend on timing, read as plain data: undefined, but not the same in every run",
    planOf(
      [
        [[put(far(1, "scratch", 2, 2), i(0, 2), "pack")]],
        [[unpack(o(0, 2), s(2, 2)), pack(s(2), o(1)), copy(S, s(2)), nop, sum(O, o(1), S)]],
      ],
      two,
    ),
  ),
  wrong(
    "a range that is longer than its loop: the last unit reaches over its end",
    alone([[copy(o(1), i(1)), copy(s(0), I), copy(s(1), I), nop, loop([copy(o(0, 2), s(0, 2))])]], two),
  ),
  right("first both send in a loop, then both receive in one", twoLoops(sending, receiving)),
  wrong(
    "the same without the wait",
    twoLoops((peer) => sending(peer).slice(0, 2), receiving.slice(1)),
  ),
  wrong(
    "first both receive in a loop, then both send in one",
    planOf(
      [1, 0].map((peer) => [[loop(receiving), loop(sending(peer))]]),
      one,
    ),
  ),
  right(
    "a lock in loops keeps nobody",
    planOf(
      oneRank(
        [copy(O, I), nop, release(1), loop([acquire(0), sum(O, O, I), release(0)])],
        [acquire(1), loop([acquire(0), sum(O, O, I), release(0)])],
      ),
      { ...one, semaphores: [1, 0] },
    ),
  ),
  wrong(
    "a lock in loops, held while something else is waited for that its rival gives inside the lock",
    planOf(
      oneRank([copy(O, I), loop([acquire(0), acquire(1), release(0)])], [loop([acquire(0), release(1), release(0)])]),
      { ...one, semaphores: [1, 0] },
    ),
  ),
];

const handOverAtEnd = (last: Op[]) =>
  planOf(
    [[[put(far(1, "scratch", 0), I), nop, signal(), nop, wait(), nop]], [[wait(), nop, copy(O, S), ...last, signal()]]],
    one,
  );

const LAUNCHES: readonly Attack[] = [
  right("scratch is free again when the reader says so", handOverAtEnd([nop]), { relaunch: true }),
  {
    ...onExecutor("the reader says so before all its threads have read, in the next launch", handOverAtEnd([])),
    relaunch: true,
  },
  { ...onExecutor("the reader says so when all its threads have read", handOverAtEnd([nop]), "right"), relaunch: true },
  wrong(
    "small messages only: with one unit to the chunk the next launch overtakes",
    planOf(
      [[[loop([put(far(1, "scratch", 0), I), signal()]), loop([nop as SimpleOp])]], [[loop([wait(), copy(O, S)])]]],
      one,
    ),
    { relaunch: true },
  ),
];

/** Both ranks read the other's input and add it, in a loop of such units, with buffers of such an alignment. */
const added = (unitBytes: number, bufferAlignment: number, dst = O) => {
  const ops: SimpleOp[] = [sum(dst, I, S) as SimpleOp];
  const plan = planOf(
    [1, 0].map((peer) => [
      [
        put(far(peer, "scratch", 0), I),
        nop,
        signal(),
        wait(),
        nop,
        unitBytes === 0 ? ops[0]! : loop(ops, unitBytes),
        nop,
      ],
    ]),
    one,
    { operation: "all_reduce" },
  );
  // So small that a loop's iterations can be counted.
  return { ...plan, options: { ...plan.options, bufferAlignment, maxMessageSizeBytes: 2n ** 19n } };
};

const LEFTOVERS: readonly Attack[] = [
  onExecutor("a reduction of whole words of 16 bytes", added(0, 16), "right"),
  onExecutor("a reduction of chunks of 8 bytes: what is left over is looked up at the wrong place", added(0, 8)),
  onExecutor("a reduction of chunks of 20 bytes", added(0, 20)),
  onExecutor("a reduction in units of 16 bytes", added(16, 16), "right"),
  onExecutor("a reduction in units of 24 bytes", added(24, 16)),
];

export const SIZE_ATTACKS: readonly Attack[] = [...LOOPS, ...LAUNCHES, ...LEFTOVERS];
