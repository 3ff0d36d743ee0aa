/**
 * Attacks on the verifier by hand, each aimed at one rule or shortcut of it by somebody who has read it. `wrong` plans have to get
 * a finding (or `undecided`); `right` ones have to pass, however odd they look. `random-plans.ts` and `exhaustive.ts` roll dice;
 * these are the ones that a person comes up with.
 */
import type { ExecutionPlan, Op, PlanCollective, Range, SimpleOp } from "../../src/authoring/plan/execution-plan.ts";
import {
  acquire,
  allReduce,
  at,
  copy,
  far,
  nop,
  planOf as plain,
  put,
  release,
  signal,
  sum,
  wait,
} from "../support/small-plans.ts";

export interface Attack {
  /** What it is aimed at. */
  readonly aim: string;
  readonly plan: ExecutionPlan;
  readonly is: "right" | "wrong";
  /** On which executor, where it is not chorale's own meaning. */
  readonly target?: "mscclpp";
  readonly relaunch?: true;
  /** Units to the chunk at which the oracle runs it; some small numbers by default. */
  readonly at?: readonly number[];
  /** No run of the oracle shows it: it does not hold together, or only some sizes show it that the oracle does not model. */
  readonly unseen?: true;
}

type Strands = readonly (readonly (readonly Op[])[])[];
export const LL = (plan: ExecutionPlan): ExecutionPlan => ({ ...plan, options: { ...plan.options, protocol: "LL" } });
export const planOf = (ops: Strands, chunks: Parameters<typeof plain>[1], collective: Partial<PlanCollective> = {}) =>
  LL(plain(ops, chunks, collective));
export const [I, O, S] = [at("input", 0), at("output", 0), at("scratch", 0)];
export const s = (index: number, size = 1): Range => at("scratch", index, size);
export const i = (index: number, size = 1): Range => at("input", index, size);
export const o = (index: number, size = 1): Range => at("output", index, size);
export const meet = (barrier = 0, numStrands = 2): SimpleOp => ({ kind: "barrier", barrier, numStrands });
export const loop = (body: readonly Op[], unitBytes = 16, numChunks = 1): Op => ({
  kind: "pipeline",
  unitBytes,
  numChunks,
  body: body as readonly SimpleOp[],
});
export const pack = (dst: Range, src: Range) => copy(dst, src, "pack");
export const unpack = (dst: Range, src: Range) => copy(dst, src, "unpack");
export const putPackets = (dst: ReturnType<typeof far>, src: Range) => put(dst, src, "pack");
export const port = (op: Op): Op => ({ ...op, channelKind: "port" }) as Op;
export const notifying = (op: Op, notify: "signal" | "signal-flush"): Op =>
  ({ ...op, channelKind: "port", notify }) as Op;
export const flush: Op = { kind: "flush", channelKind: "port", channels: [0] };
export const group = (op: Op, index: number, size: number): Op => ({ ...op, tbg: { index, size } }) as Op;
const get = (dst: Range, src: ReturnType<typeof far>): Op => ({
  kind: "get",
  channelKind: "memory",
  channels: [0],
  src: [src],
  dst: [dst],
});
export const max = (dst: Range, ...src: Range[]): Op => ({ ...sum(dst, ...src), op: "max" }) as Op;
export const one = { input: 1, output: 1, scratch: 2 };
export const two = { input: 2, output: 2, scratch: 4 };
const locks = { input: 2, output: 2, scratch: 4, semaphores: [1, 1] };
export const oneRank = (...strands: Op[][]): Strands => [strands];
/** A rank alone that has to copy its input: all-reduce of one rank. */
export const alone = (strands: Op[][], chunks = one, more: Partial<PlanCollective> = {}) =>
  planOf(oneRank(...strands), chunks, { ...allReduce, chunksPerPart: chunks.input, ...more });
export const pairOf = (a: Op[], b: Op[], chunks = one) => planOf([[a], [b]], chunks);
const sendRecv: Partial<PlanCollective> = { operation: "send_recv", sendTo: [1, 0] };

export const wrong = (aim: string, plan: ExecutionPlan, more: Partial<Attack> = {}): Attack => ({
  aim,
  plan,
  is: "wrong",
  ...more,
});
export const right = (aim: string, plan: ExecutionPlan, more: Partial<Attack> = {}): Attack => ({
  aim,
  plan,
  is: "right",
  ...more,
});

const RACES: readonly Attack[] = [
  wrong(
    "a write that repeats the initial value hides one that does not",
    alone([[copy(I, I), copy(O, I)], [copy(I, i(1))]], { ...one, input: 2, output: 2 }),
  ),
  wrong(
    "two writers of unequal values, both before the reader",
    alone(
      [
        [copy(S, I), meet(0, 3)],
        [copy(S, i(1)), meet(0, 3)],
        [meet(0, 3), copy(O, S), copy(o(1), i(1))],
      ],
      two,
    ),
  ),
  right(
    "two writers of equal values, both before the reader",
    alone([
      [copy(S, I), meet(0, 3)],
      [copy(S, I), meet(0, 3)],
      [meet(0, 3), copy(O, S)],
    ]),
  ),
  wrong(
    "a chain of copies each of which races with equal values, and the last does not",
    alone(
      [
        [copy(S, I), copy(s(1), S), meet(), copy(O, s(1))],
        [copy(S, I), copy(s(1), S), meet(), copy(s(1), i(1))],
      ],
      { ...one, input: 2, output: 2 },
    ),
  ),
  wrong(
    "a reader that is over before one of two racing writers",
    alone(
      [
        [copy(S, I), nop, copy(O, S), meet()],
        [copy(S, i(1)), meet()],
      ],
      { ...two },
    ),
  ),
  wrong(
    "a read of what a later launch of code writes first in the order of exploration",
    alone([[copy(O, S)], [copy(S, I)]]),
  ),
  wrong(
    "two halves of one put to places that overlap at other positions",
    alone(
      [[copy(s(1, 2), i(0, 2)), copy(s(0, 2), s(1, 2)), nop, copy(o(0, 2), s(0, 2)), nop, copy(s(0, 3), s(1, 3))]],
      { input: 2, output: 2, scratch: 4 },
    ),
  ),
  wrong(
    "a strand's own copy over itself, shifted by a chunk",
    alone([[copy(s(0, 2), i(0, 2)), nop, copy(s(1, 2), s(0, 2)), nop, copy(o(0, 2), s(1, 2))]], {
      input: 2,
      output: 2,
      scratch: 4,
    }),
  ),
  right(
    "the same with a nop and no overlap",
    alone([[copy(s(0, 2), i(0, 2)), nop, copy(s(2, 2), s(0, 2)), nop, copy(o(0, 2), s(2, 2))]], {
      input: 2,
      output: 2,
      scratch: 4,
    }),
  ),
  wrong(
    "a hazard across a relaxed signal, which is no synchronisation",
    pairOf([copy(s(0, 2), i(0, 2)), signal(true), copy(O, s(1))], [wait(true)], two),
  ),
  wrong(
    "256 writes of one place: a counter of writes that is full",
    alone([[...Array.from({ length: 260 }, () => copy(S, I)), nop, copy(O, S)], [copy(S, i(1))]], {
      input: 2,
      output: 2,
      scratch: 1,
    }),
  ),
];

const ORDER_MORE: Attack[] = [];
const ORDER: readonly Attack[] = [
  wrong(
    "a relaxed wait behind a signal that is not",
    pairOf([put(far(1, "scratch", 0), I), signal()], [wait(true), copy(O, S)]),
  ),
  wrong(
    "a relaxed signal before a wait that is not",
    pairOf([put(far(1, "scratch", 0), I), signal(true)], [wait(), copy(O, S)]),
  ),
  wrong(
    "the first of two signals, relaxed, taken for the second",
    pairOf([signal(true), put(far(1, "scratch", 0), I), signal()], [wait(), copy(O, S), wait()]),
  ),
  right(
    "the second of two signals, where the first is relaxed",
    pairOf([signal(true), put(far(1, "scratch", 0), I), signal()], [wait(), wait(), copy(O, S)]),
  ),
  wrong(
    "two waiting strands share a counter: which signal each gets depends on timing",
    planOf(
      [
        [[put(far(1, "scratch", 0), I), signal(), signal()]],
        [
          [wait(), copy(O, S)],
          [wait(), copy(S, i(1))],
        ],
      ],
      two,
    ),
  ),
  wrong(
    "two signalling strands share a counter: one signal does not stand for the other",
    planOf([[[put(far(1, "scratch", 0), I), signal()], [signal()]], [[wait(), copy(O, S), wait()]]], one),
  ),
  right(
    "both signals of two strands are waited for first",
    planOf([[[put(far(1, "scratch", 0), I), signal()], [signal()]], [[wait(), wait(), copy(O, S)]]], one),
  ),
  wrong(
    "a semaphore with an initial value stands for no release",
    planOf(oneRank([copy(S, I), release(0)], [acquire(0), copy(O, S)]), { ...one, semaphores: [1] }),
  ),
  wrong(
    "a semaphore with an initial value, taken as often as it is released",
    planOf(oneRank([copy(S, I), release(0), acquire(0)], [acquire(0), copy(O, S), release(0)]), {
      ...one,
      semaphores: [1],
    }),
  ),
  right(
    "a semaphore at 1 that is taken before and behind the release",
    planOf(oneRank([acquire(0), copy(S, I), release(0), acquire(0), release(0)], []), { ...one, semaphores: [1] }),
  ),
  wrong("the channel that pairs with another: signals on the second, waits on the first", {
    ...pairOf([put(far(1, "output", 0), I), signal(false, 1)], [wait(false, 0)]),
    ranks: pairOf([put(far(1, "output", 0), I), signal(false, 1)], [wait(false, 0)]).ranks.map((r) => ({
      ...r,
      channels: { ...r.channels, memory: [1 - r.rank, 1 - r.rank] },
    })),
  }),
  wrong(
    "one wait names a channel twice, and there is one signal",
    pairOf([signal()], [{ kind: "wait", relaxed: false, channelKind: "memory", channels: [0, 0] }]),
  ),
  wrong(
    "one acquire names a semaphore twice, and it holds 1",
    planOf(
      oneRank([
        { kind: "acquire", semaphores: [0, 0] },
        { kind: "release", semaphores: [0, 0] },
      ]),
      { ...one, semaphores: [1] },
    ),
  ),
  wrong(
    "dining philosophers: two locks in both orders",
    planOf(
      oneRank([acquire(0), acquire(1), release(1), release(0)], [acquire(1), acquire(0), release(0), release(1)]),
      locks,
    ),
  ),
  right(
    "two locks in one order",
    planOf(
      oneRank(
        [acquire(0), acquire(1), copy(O, I), release(1), release(0)],
        [acquire(0), acquire(1), copy(O, I), release(1), release(0)],
      ),
      locks,
    ),
  ),
  right(
    "both locks at once, in both orders",
    planOf(
      oneRank(
        [{ kind: "acquire", semaphores: [0, 1] }, copy(O, I), { kind: "release", semaphores: [0, 1] }],
        [{ kind: "acquire", semaphores: [1, 0] }, copy(O, I), { kind: "release", semaphores: [1, 0] }],
      ),
      locks,
    ),
  ),
  wrong(
    "under a lock each order ends, and ends differently",
    planOf(
      oneRank(
        [copy(O, I), meet(), acquire(0), sum(O, O, O), release(0)],
        [meet(), acquire(0), sum(O, O, i(1)), release(0)],
      ),
      locks,
    ),
  ),
  right(
    "under a lock each order adds the same",
    planOf(
      oneRank(
        [copy(O, I), meet(), acquire(0), sum(O, O, i(1)), release(0)],
        [meet(), acquire(0), sum(O, O, i(1)), release(0)],
      ),
      locks,
    ),
  ),
  wrong(
    "a lock that admits two",
    planOf(
      oneRank(
        [copy(O, I), meet(), acquire(0), sum(O, O, i(1)), release(0)],
        [meet(), acquire(0), sum(O, O, i(1)), release(0)],
      ),
      { ...locks, semaphores: [2, 1] },
    ),
  ),
];

/** Rank 1's strands compete for two signals of rank 0 and for a lock; one of them then writes where rank 0 wrote. */
const rivals = planOf(
  [
    [[copy(O, I), signal()], [signal()]],
    [
      [wait(), acquire(0), release(0)],
      [wait(), put(far(0, "output", 0), I), acquire(0), release(0)],
    ],
  ],
  { ...one, semaphores: [1] },
);
ORDER_MORE.push(wrong("tokens enough for all rivals: who comes second there may have come first", rivals));

const BARRIERS: readonly Attack[] = [
  wrong(
    "three strands and a barrier of two: who meets whom depends on timing",
    alone([[copy(S, I), meet(), meet()], [meet(), copy(O, S)], [meet()]]),
  ),
  wrong(
    "a strand that joins the second meeting without having heard of the first",
    alone([[copy(S, I), meet(), meet(), copy(O, S)], [meet()], [meet(), copy(s(1), I)]]),
  ),
  right(
    "the same, where it has heard by a semaphore",
    planOf(
      oneRank([copy(S, I), meet(), meet(), copy(O, S)], [meet(), release(0)], [acquire(0), meet(), copy(s(1), I)]),
      { ...one, semaphores: [0] },
      allReduce,
    ),
  ),
  wrong(
    "strands name different counts",
    alone([
      [copy(O, I), meet(0, 2)],
      [meet(0, 1), meet(0, 2)],
    ]),
  ),
  wrong(
    "a strand waits at a barrier for one that waits for it elsewhere",
    planOf(oneRank([meet(), release(0)], [acquire(0), meet()]), { ...one, semaphores: [0] }),
  ),
  wrong("barriers in loops of different rates", alone([[copy(O, I), loop([meet()], 16)], [loop([meet()], 24)]])),
  right(
    "barriers in loops of one rate, written differently",
    alone([[copy(o(0, 2), i(0, 2)), loop([meet()], 16, 1)], [loop([meet()], 32, 2)]], two),
  ),
  wrong(
    "a barrier of the collective kind that a rank leaves early",
    planOf([[[signal(), wait()]], [[signal(), wait()]], [[]]], { input: 0, output: 0 }, { operation: "barrier" }),
    { unseen: true },
  ),
];

const LOOPS: readonly Attack[] = [
  wrong(
    "credits given one less than the loops hold back at some size",
    pairOf(
      [wait(), loop([put(far(1, "scratch", 0), I), nop, signal(), wait()], 16)],
      [loop([wait(), copy(O, S), signal()], 16)],
    ),
  ),
  wrong(
    "a receiver that runs one iteration ahead through a signal before the loop",
    pairOf(
      [signal(), loop([put(far(1, "scratch", 0), I), nop, signal()], 16)],
      [loop([wait(), copy(O, S)], 16), wait()],
    ),
  ),
  right(
    "packets that every iteration writes anew, of equal contents",
    pairOf([loop([putPackets(far(1, "scratch", 0), I), signal()], 16), copy(O, I)], [loop([wait(), unpack(O, S)], 16)]),
  ),
  wrong(
    "units of 24 in a loop of two chunks: the boundary of a unit is not that of a chunk",
    pairOf(
      [loop([put(far(1, "scratch", 0, 2), i(0, 2)), signal()], 24, 2)],
      [loop([wait()], 24, 2), wait(), copy(o(0, 2), s(0, 2))],
      two,
    ),
  ),
  wrong(
    "a loop that is longer at one end at odd sizes only",
    pairOf(
      [loop([put(far(1, "scratch", 0), I), nop, signal()], 16, 1)],
      [loop([wait(), nop, copy(O, S)], 32, 2), nop, loop([wait()], 48, 1)],
    ),
  ),
  wrong(
    "semaphore with initial value 8: the ninth unit",
    planOf(oneRank([loop([acquire(0)], 16), copy(O, I)], [loop([release(0)], 16)].slice(1)), {
      ...one,
      semaphores: [8],
    }),
    { unseen: true },
  ),
  wrong(
    "a hazard that needs half a unit: two ranges shifted by a chunk, units of two",
    alone([[copy(s(0, 3), i(0, 3)), nop, loop([copy(s(1, 2), s(0, 2))], 32, 2), nop, copy(o(0, 3), s(0, 3))]], {
      input: 3,
      output: 3,
      scratch: 4,
    }),
  ),
  wrong("the loop of nothing: over no chunks its signal is never raised", pairOf([loop([signal()], 16, 0)], [wait()])),
];

const PACKETS: readonly Attack[] = [
  wrong(
    "plain data over a packet that may not have been read",
    pairOf([putPackets(far(1, "scratch", 0), I)], [copy(S, I), unpack(O, S)]),
  ),
  wrong(
    "packet, plain, packet in one place",
    pairOf([putPackets(far(1, "scratch", 0), I), putPackets(far(1, "scratch", 0), I)], [copy(S, I), unpack(O, S)]),
  ),
  wrong(
    "two packets of one launch in one place",
    pairOf(
      [putPackets(far(1, "scratch", 0), I), nop, putPackets(far(1, "scratch", 0), i(1)), copy(O, I)],
      [unpack(O, S), copy(o(1), i(1))],
      two,
    ),
  ),
  wrong(
    "the arrival of a packet makes no other write visible",
    pairOf(
      [put(far(1, "scratch", 1), I), nop, putPackets(far(1, "scratch", 0), I)],
      [unpack(O, S), nop, copy(O, s(1))],
    ),
  ),
  right(
    "what went into a packet that was read may be overwritten",
    pairOf(
      [copy(s(1), I), nop, putPackets(far(1, "scratch", 0), s(1)), nop, unpack(O, S), nop, copy(s(1), O)],
      [unpack(O, S), nop, putPackets(far(0, "scratch", 0), O)],
    ),
  ),
  wrong(
    "what went into another packet may not",
    pairOf(
      [copy(s(1, 2), i(0, 2)), nop, putPackets(far(1, "scratch", 0), s(1)), unpack(O, S), nop, copy(o(1), i(1))],
      [unpack(O, S), nop, putPackets(far(0, "scratch", 0), O), put(far(0, "scratch", 2), I), copy(o(1), i(1)), nop],
      { input: 2, output: 2, scratch: 4 },
    ).ranks.length === 2
      ? pairOf(
          [copy(s(2), I), nop, putPackets(far(1, "scratch", 0), I), copy(O, s(2))],
          [unpack(O, S), nop, put(far(0, "scratch", 2), i(1))],
          two,
        )
      : pairOf([], []),
  ),
  wrong("packets read as plain data", alone([[pack(S, I), nop, copy(O, S)]])),
  wrong("plain data read as packets", alone([[copy(S, I), nop, unpack(O, S)]])),
  wrong(
    "packets left in the output place by a put through a port",
    pairOf([port(put(far(1, "scratch", 0), s(0))), pack(S, I)], [unpack(O, S)]),
  ),
  wrong(
    "a forward whose packet comes only after what it forwards to answers",
    pairOf(
      [unpack(O, S), nop, putPackets(far(1, "scratch", 0), I)],
      [unpack(O, S), nop, putPackets(far(0, "scratch", 0), I)],
    ),
  ),
  wrong(
    "six packets of unlike contents in one place, one reader",
    pairOf(
      [...Array.from({ length: 6 }, (_, n) => [putPackets(far(1, "scratch", 0), n % 2 === 0 ? I : i(1)), nop]).flat()],
      [unpack(O, S)],
      two,
    ),
  ),
  wrong(
    "a packet of this launch over one that the last launch's reader has not read",
    planOf([[[putPackets(far(1, "scratch", 0), I), copy(O, I)]], [[unpack(O, S)]]], one),
    { relaunch: true, unseen: true },
  ),
];

const PORTS: readonly Attack[] = [
  wrong(
    "the source of a put through a port is overwritten before the proxy reads it",
    pairOf(
      [copy(S, I), nop, port(put(far(1, "output", 0), S)), nop, copy(S, i(1)), port(signal())],
      [port(wait())],
      two,
    ),
  ),
  right(
    "the same behind a flush",
    pairOf(
      [copy(S, I), nop, port(put(far(1, "output", 0), S)), nop, flush, copy(S, i(1)), nop, port(signal())],
      [port(wait())],
      two,
    ),
  ),
  wrong(
    "a put that nobody waits for is still under way at the end",
    planOf([[[port(put(far(1, "output", 0), I))]], [[port(put(far(0, "output", 0), I))]]], one, sendRecv),
  ),
  wrong(
    "a signal over memory does not stand behind a put through a port",
    pairOf([port(put(far(1, "scratch", 0), I)), nop, signal()], [wait(), copy(O, S)]),
  ),
  right(
    "a signal through the port does",
    pairOf([port(put(far(1, "scratch", 0), I)), nop, port(signal())], [port(wait()), copy(O, S)]),
  ),
  right(
    "a put that notifies does",
    pairOf([notifying(put(far(1, "scratch", 0), I), "signal")], [port(wait()), copy(O, S)]),
  ),
  wrong(
    "a put that notifies is no synchronisation of its strand",
    pairOf(
      [copy(s(0, 2), i(0, 2)), notifying(put(far(1, "scratch", 2), I), "signal"), copy(O, s(1))],
      [port(wait())],
      two,
    ),
  ),
  wrong(
    "the flush of one strand says nothing of another's requests",
    planOf(
      [
        [
          [copy(S, I), release(0), flush, copy(S, i(1))],
          [acquire(0), port(put(far(1, "output", 0), S)), nop, port(signal())],
        ],
        [[port(wait())], []],
      ],
      { ...two, semaphores: [0] },
    ),
  ),
  wrong(
    "a proxy that is held up by packets its strand waits for",
    planOf(
      [
        [
          [unpack(O, S), notifying(put(far(1, "scratch", 0), I), "signal")],
          [notifying(put(far(1, "scratch", 1), I), "signal")],
        ],
        [[port(wait()), port(wait()), putPackets(far(0, "scratch", 0), I)], []],
      ],
      one,
    ),
  ),
];

const PARTS: readonly Attack[] = [
  wrong("parts of a group that leave one out", alone([[group(copy(O, I), 0, 2)], [group(copy(O, I), 0, 2)]])),
  wrong(
    "parts of two in one strand, of three in another: nearly equal",
    alone([
      [group(copy(S, I), 0, 2), group(copy(S, I), 1, 2), meet(0, 3), group(copy(O, S), 0, 3)],
      [meet(0, 3), group(copy(O, S), 1, 3)],
      [meet(0, 3)],
    ]),
    { unseen: true },
  ),
  wrong(
    "a reader of part 1 of 3 behind the writers of parts 0 and 1 of 3, of another number of chunks",
    planOf(
      oneRank(
        [group(copy(s(0, 2), i(0, 2)), 0, 3), release(0)],
        [group(copy(s(0, 2), i(0, 2)), 1, 3)],
        [group(copy(s(0, 2), i(0, 2)), 2, 3), acquire(0), copy(O, S)],
      ),
      { ...two, semaphores: [0] },
    ),
    { unseen: true },
  ),
  right(
    "parts of one group, each its own",
    alone([
      [group(copy(S, I), 0, 3), group(copy(O, S), 0, 3)],
      [group(copy(S, I), 1, 3), group(copy(O, S), 1, 3)],
      [group(copy(S, I), 2, 3), group(copy(O, S), 2, 3)],
    ]),
  ),
];

const custom = (post: readonly unknown[], outputs = 1): Partial<PlanCollective> => ({
  operation: "custom",
  custom: { name: "mine", inputChunks: [1, 1], outputChunks: [outputs, outputs], post: post as never },
});
const MEANING: readonly Attack[] = [
  wrong("a root that no rank is", planOf([[[copy(O, I)]], [[]]], one, { operation: "reduce", root: 7 }), {
    unseen: true,
  }),
  wrong(
    "a send to a rank that is not there",
    planOf([[[]], [[]]], one, { operation: "send_recv", sendTo: [5, null] }),
    { unseen: true },
  ),
  wrong(
    "two that send to one",
    planOf([[[put(far(1, "output", 0), I), signal()]], [[wait()]]], one, { operation: "send_recv", sendTo: [1, 1] }),
    { unseen: true },
  ),
  wrong("a list of receivers that is too short", planOf([[[]], [[]]], one, { operation: "send_recv", sendTo: [] }), {
    unseen: true,
  }),
  wrong(
    "a custom collective that says less than it has outputs",
    planOf(
      [[[copy(O, I)]], [[copy(O, I)]]],
      { ...one, output: 2 },
      custom([[{ kind: "copy", from: { rank: 0, chunk: 0 } }], []], 2),
    ),
    { unseen: true },
  ),
  wrong(
    "a custom collective that asks for a chunk of nobody",
    planOf([[[copy(O, I)]], [[copy(O, I)]]], one, custom([[{ kind: "copy", from: { rank: 9, chunk: 0 } }], [null]])),
    { unseen: true },
  ),
  wrong(
    "an operation that averages: an average is divided once, at the end",
    planOf(
      [
        [[get(S, far(1, "input", 0)), nop, { ...sum(O, I, S), op: "avg" } as Op, nop]],
        [[get(S, far(0, "input", 0)), nop, { ...sum(O, I, S), op: "avg" } as Op]],
      ],
      one,
      allReduce,
    ),
    { unseen: true },
  ),
  wrong(
    "maxima where sums are asked for",
    planOf(
      [[[get(S, far(1, "input", 0)), nop, max(O, I, S)]], [[get(S, far(0, "input", 0)), nop, max(O, I, S)]]],
      one,
      { ...allReduce, reduceOp: "sum" },
    ),
  ),
  right(
    "a maximum that meets an operand twice",
    planOf(
      [[[get(S, far(1, "input", 0)), nop, max(O, I, S, S, I)]], [[get(S, far(0, "input", 0)), nop, max(O, S, I)]]],
      one,
      { ...allReduce, reduceOp: "max" },
    ),
  ),
  wrong(
    "a sum that meets an operand twice",
    planOf(
      [[[get(S, far(1, "input", 0)), nop, sum(O, I, S, S)]], [[get(S, far(0, "input", 0)), nop, sum(O, S, I)]]],
      one,
      allReduce,
    ),
  ),
  wrong(
    "everybody's output is right but one chunk of one rank",
    planOf([[[copy(o(0, 2), i(0, 2))]]], two, { ...allReduce, chunksPerPart: 2 }).ranks.length === 1
      ? alone([[copy(O, I)]], two)
      : pairOf([], []),
  ),
  wrong("an input that is overwritten and not restored", alone([[copy(O, I), nop, copy(I, s(1))]])),
  right(
    "an input that is overwritten and restored",
    alone([[copy(O, I), copy(S, I), nop, copy(I, s(0)), nop, copy(I, O)]]),
  ),
  wrong(
    "ranks in place read each other's input while it is overwritten",
    planOf(
      [[[get(S, far(1, "input", 0)), nop, sum(I, I, S)]], [[get(S, far(0, "input", 0)), nop, sum(I, I, S)]]],
      one,
      { ...allReduce, inPlace: true },
    ),
  ),
  wrong(
    "maxima in place of what others overwrite: either value would do, but none is sure to be read in one piece",
    planOf(
      [[[get(S, far(1, "input", 0)), nop, max(I, I, S)]], [[get(S, far(0, "input", 0)), nop, max(I, I, S)]]],
      one,
      { ...allReduce, inPlace: true, reduceOp: "max" },
    ),
    { unseen: true },
  ),
  wrong(
    "each holds its own input where somebody else's is asked for",
    planOf([[[copy(O, I)]], [[copy(O, I)]]], one, { operation: "send_recv" }),
    { unseen: true },
  ),
  right(
    "a rank without strands has nothing to do",
    planOf([[[copy(O, I), put(far(1, "output", 0), I)]], []], one, { operation: "broadcast", root: 0 }).ranks.length ===
      2
      ? {
          ...planOf([[[copy(O, I), put(far(1, "output", 0), I)]], []], one, { operation: "broadcast", root: 0 }),
          ranks: planOf([[[copy(O, I), put(far(1, "output", 0), I)]], []], one, {}).ranks.map((r) =>
            r.rank === 1 ? { ...r, input: { chunks: 0, segments: 1 } } : r,
          ),
        }
      : pairOf([], []),
  ),
];

const all = (collective: Partial<PlanCollective>, instances = 1): ExecutionPlan => {
  const plan = planOf([[[]], [[]]], one, collective);
  return { ...plan, options: { ...plan.options, instances } };
};
const NOTHING: readonly Attack[] = [
  wrong("no instance of the program: no condition is left", all({ operation: "all_to_all" }, 0), { unseen: true }),
  wrong(
    "no instance of a custom collective",
    all(custom([[{ kind: "copy", from: { rank: 1, chunk: 0 } }], [null]]), 0),
    {
      unseen: true,
    },
  ),
  wrong("a part of no chunks", all({ operation: "all_gather", chunksPerPart: 0 }), { unseen: true }),
  wrong("fewer counts than ranks", all({ operation: "all_gather_v", counts: [1] }), { unseen: true }),
  wrong("a count below nothing", all({ operation: "reduce_scatter_v", counts: [2, -1] }), { unseen: true }),
  wrong("counts to send for one rank only", all({ operation: "all_to_all_v", sendCounts: [[1, 1]] }), { unseen: true }),
  wrong("an operator that there is not", all({ ...allReduce, reduceOp: "plus" as "sum" }), { unseen: true }),
  wrong("a root that is no number", all({ operation: "gather", root: Number.NaN }), { unseen: true }),
  wrong("an operation that there is not", all({ operation: "all_reduce_v" as "all_reduce" }), { unseen: true }),
];

const LAUNCHES: readonly Attack[] = [
  wrong(
    "scratch of the next launch is written while this one's is read",
    planOf([[[put(far(1, "scratch", 0), I), signal(), copy(O, I)]], [[wait(), copy(O, S)]]], one),
    { relaunch: true },
  ),
  right(
    "the same where the sender hears that it was read",
    planOf([[[put(far(1, "scratch", 0), I), signal(), copy(O, I), wait()]], [[wait(), copy(O, S), signal()]]], one),
    { relaunch: true },
  ),
  wrong(
    "with two halves of scratch the launch after the next has the same half",
    {
      ...planOf([[[put(far(1, "scratch", 0), I), signal(), copy(O, I)]], [[wait(), copy(O, S)]]], one),
      options: { ...planOf([], one).options, useDoubleScratchBuffer: true },
    },
    { relaunch: true },
  ),
  wrong("a semaphore that ends one higher", planOf(oneRank([release(0), copy(O, I)]), { ...one, semaphores: [0] })),
];

export const onExecutor = (aim: string, plan: ExecutionPlan, is: Attack["is"] = "wrong"): Attack => ({
  aim,
  plan,
  is,
  target: "mscclpp",
  unseen: true,
});
const handOver = (before: Op[], after: Op[]) =>
  planOf(
    [
      [[put(far(1, "scratch", 0), I), ...before, signal(), nop, wait(), ...after, copy(O, S), nop]],
      [[put(far(0, "scratch", 0), I), ...before, signal(), nop, wait(), ...after, copy(O, S), nop]],
    ],
    one,
    sendRecv,
  );
/** Packets in the first chunk of scratch, plain data of them in another. */
const unpacked = (plain: number, between: Op[]): ExecutionPlan => {
  const plan = alone([[pack(S, I), unpack(s(plain), S), ...between, copy(O, s(plain))]], { ...one, scratch: 3 });
  return { ...plan, options: { ...plan.options, protocol: "LL" } };
};
const EXECUTOR: readonly Attack[] = [
  onExecutor("all nops where they belong", handOver([nop], [nop]), "right"),
  onExecutor("no nop before a signal", handOver([], [nop])),
  onExecutor("no nop behind a wait", handOver([nop], [])),
  onExecutor(
    "a nop on the wrong side of a release",
    planOf(oneRank([copy(S, I), release(0), nop], [acquire(0), nop, copy(O, S)]), { ...one, semaphores: [0] }),
  ),
  onExecutor(
    "no nop behind an acquire",
    planOf(oneRank([copy(S, I), nop, release(0)], [acquire(0), copy(O, S), nop]), { ...one, semaphores: [0] }),
  ),
  onExecutor(
    "a nop on both sides of a semaphore",
    planOf(oneRank([copy(S, I), nop, release(0)], [acquire(0), nop, copy(O, S), nop]), { ...one, semaphores: [0] }),
    "right",
  ),
  onExecutor("plain data behind the packets of the same place without a nop", unpacked(2, [])),
  onExecutor("plain data behind the packets of the same place with a nop", unpacked(2, [nop]), "right"),
  onExecutor("packets that lie over the plain data they are unpacked to, with its nop", unpacked(1, [nop])),
  onExecutor(
    "a wait in a loop whose nop stands before the loop only",
    pairOf([loop([put(far(1, "scratch", 0), I), nop, signal()], 2 ** 20)], [nop, loop([wait(), copy(O, S)], 2 ** 20)]),
  ),
];

export const ATTACKS: readonly Attack[] = [
  ...RACES,
  ...ORDER,
  ...ORDER_MORE,
  ...BARRIERS,
  ...LOOPS,
  ...PACKETS,
  ...PORTS,
  ...PARTS,
  ...MEANING,
  ...NOTHING,
  ...LAUNCHES,
  ...EXECUTOR,
];
