/**
 * Attacks on what the verifier makes of memory that nobody wrote, and of packets read as plain data: each is an unknown, and plans
 * without a meaning may move unknowns about as they like, as long as what they leave does not depend on timing.
 */
import type { Op } from "../../src/authoring/plan/execution-plan.ts";
import { acquire, copy, far, nop, put, release, signal, sum, wait } from "../support/small-plans.ts";
import { type Attack, I, i, max, meet, O, o, oneRank, pack, planOf, right, S, s, two, wrong } from "./attacks.ts";

const locks = { input: 2, output: 2, scratch: 8, semaphores: [1] };
const locked = (...ops: Op[]): Op[] => [acquire(0), ...ops, release(0)];
/** Two strands that do something under one lock, behind what one of them did before and before what it does last. */
const rivals = (a: Op[], b: Op[], first: Op[] = [], last: Op[] = []) =>
  planOf(oneRank([...first, meet(), ...locked(...a), meet(), ...last], [meet(), ...locked(...b), meet()]), locks);

/** Rank 0 gathers all inputs and hands them out one rank on or two ranks on, as a lock decides. */
const openSendRecv = (numRanks: number, other: number) => {
  const peers = Array.from({ length: numRanks - 1 }, (_, k) => k + 1);
  const toAll = { kind: "signal", relaxed: false, channelKind: "memory", channels: peers.map((p) => p - 1) } as Op;
  const ofAll = { ...toAll, kind: "wait" } as Op;
  const turned = (by: number) =>
    locked(...Array.from({ length: numRanks }, (_, r) => copy(s(numRanks + r), s((r + by) % numRanks))));
  return planOf(
    [
      [
        [
          copy(S, I),
          ofAll,
          meet(),
          ...turned(1),
          meet(),
          copy(O, s(numRanks)),
          ...peers.map((p) => ({ ...put(far(p, "output", 0), s(numRanks + p)), channels: [p - 1] }) as Op),
          toAll,
        ],
        [meet(), ...turned(other), meet()],
      ],
      ...peers.map((p) => [[put(far(0, "scratch", p), I), signal(), wait()]]),
    ],
    { input: 1, output: 1, scratch: 2 * numRanks, semaphores: [1] },
    { operation: "send_recv" },
  );
};

export const UNKNOWN_ATTACKS: readonly Attack[] = [
  wrong(
    "memory that nobody wrote is doubled before or after something is added",
    rivals([sum(O, O, O)], [sum(O, O, I)]),
  ),
  wrong("both operands are memory that nobody wrote", rivals([sum(O, O, O)], [sum(O, O, o(1))])),
  wrong("memory that nobody wrote is added to before or after it is copied", rivals([sum(O, O, I)], [copy(o(1), O)])),
  right("to memory that nobody wrote each order adds the same", rivals([sum(O, O, I)], [sum(O, O, i(1))])),
  right("the larger of memory that nobody wrote and two inputs", rivals([max(O, O, I)], [max(O, i(1), O, O)])),
  wrong("one input and one unknown, by two operators", rivals([sum(O, I, S)], [max(O, I, S)])),
  wrong("which of two places that nobody wrote", rivals([copy(O, S)], [copy(O, s(1))])),
  right("one place that nobody wrote, by two operations", rivals([copy(O, S)], [copy(O, S)])),
  wrong(
    "which of two places that nobody wrote, both copied by one operation before",
    rivals([copy(O, s(2))], [copy(O, s(3))], [copy(s(2, 2), s(0, 2))]),
  ),
  right(
    "one place that nobody wrote, copied twice by one operation before",
    rivals([copy(O, s(2))], [copy(O, s(2))], [copy(s(2, 2), s(0, 2))]),
  ),
  wrong(
    "a write that seems to repeat the last: what one operation read in two places that nobody wrote",
    planOf(
      oneRank(
        [copy(s(2, 2), s(0, 2)), nop, copy(s(4), s(2)), release(0), copy(s(4), s(3))],
        [acquire(0), copy(O, s(4))],
      ),
      {
        ...locks,
        semaphores: [0],
      },
    ),
  ),
  wrong("which of two packets is read as plain data", rivals([pack(s(2), I)], [pack(s(2), i(1))], [], [copy(O, s(2))])),
  wrong(
    "one packet read as plain data, then another where it seems to repeat",
    planOf(
      oneRank(
        [pack(s(2), I), pack(s(3), i(1)), nop, copy(s(4, 2), s(2, 2)), nop, copy(O, s(4)), release(0), copy(O, s(5))],
        [acquire(0), copy(o(1), O)],
      ),
      { ...two, scratch: 8, semaphores: [0] },
    ),
  ),
  wrong("a send and receive that does not say who sends to whom, and a lock decides it", openSendRecv(3, 2), {
    unseen: true,
  }),
  right("a send and receive that does not say who sends to whom, and a lock decides nothing", openSendRecv(3, 1)),
];
