/**
 * Attacks on shortcuts of the verifier: what it takes together under one key, compares by value alone, or leaves out where a
 * list grows long. By a reader of the verifier who had not written it.
 */
import type { Op } from "../../src/authoring/plan/execution-plan.ts";
import { copy, far, nop, put, signal, sum, wait } from "../support/small-plans.ts";
import {
  type Attack,
  alone,
  I,
  i,
  loop,
  max,
  meet,
  O,
  o,
  oneRank,
  pack,
  planOf,
  port,
  right,
  S,
  s,
  two,
  unpack,
  wrong,
} from "./attacks.ts";

const withPackets = (op: Op, packetDst: ReturnType<typeof s>): Op => ({ ...op, packetDst }) as Op;
const asIs = (rank: number, to: number, from: number): Op => port(put(far(rank, "scratch", to), s(from), "pack"));
const outputs = [copy(O, I), copy(o(1), i(1))];

/** What lies in a place moves on by one hop in each iteration: packets behind plain data of the same value. */
const hops = (reads: "plain" | "packets") => {
  const first: Op[] = [
    pack(s(0), I),
    copy(s(1), I),
    put(far(1, "scratch", 0), I),
    put(far(1, "scratch", 1), I),
    put(far(1, "scratch", 2), I),
    signal(),
    wait(),
  ];
  const second: Op[] = [put(far(0, "output", 0), I), wait(), signal()];
  const sent = [port(signal())];
  const got = [port(wait())];
  return planOf(
    [
      [[...first, loop([asIs(1, 1, 1), ...sent, ...got, asIs(1, 0, 0), ...sent]), nop]],
      [
        [
          ...second,
          loop([...got, asIs(0, 1, 0), ...sent, ...got]),
          reads === "plain" ? copy(O, s(1)) : unpack(O, s(1)),
        ],
      ],
    ],
    { input: 1, output: 1, scratch: 4 },
    { operation: "send_recv", sendTo: [1, 0] },
  );
};

const doubled = (place: ReturnType<typeof s>, times: number): Op[] =>
  Array.from({ length: times }, () => sum(place, place, place));

export const SHORTCUT_ATTACKS: readonly Attack[] = [
  wrong(
    "an operation that writes plain data and packets, both of which another may destroy",
    alone(
      [
        [withPackets(sum(s(1), i(1)), s(2)), meet(), unpack(s(3), s(2)), ...outputs],
        [copy(s(1, 2), i(0, 2)), meet()],
      ],
      two,
    ),
  ),
  wrong(
    "the same, the packets first in the order of places",
    alone(
      [
        [withPackets(sum(s(2), i(1)), s(1)), meet(), unpack(s(3), s(1)), ...outputs],
        [copy(s(1, 2), i(0, 2)), meet()],
      ],
      two,
    ),
  ),
  right(
    "an operation that writes plain data and packets, of which another may destroy the plain data that nobody reads",
    alone(
      [
        [withPackets(sum(s(1), i(1)), s(2)), meet(), unpack(s(3), s(2)), ...outputs],
        [copy(s(1), i(0)), meet()],
      ],
      two,
    ),
  ),
  wrong("plain data of a value, and in a third iteration packets of it: read as plain data", hops("plain"), {
    at: [1, 2, 3, 4],
  }),
  wrong("plain data of a value, and in a third iteration packets of it: waited for", hops("packets"), {
    at: [1, 2, 3, 4],
  }),
  wrong(
    "two racing sums whose counts differ by less than a number of 53 bits tells",
    planOf(
      oneRank(
        [
          copy(S, I),
          ...doubled(S, 100),
          copy(s(1), I),
          ...doubled(s(1), 40),
          meet(),
          copy(s(2), S),
          meet(),
          copy(O, s(2)),
        ],
        [meet(), sum(s(2), S, s(1)), meet()],
      ),
      { input: 1, output: 1, scratch: 3 },
    ),
    { unseen: true },
  ),
  right(
    "two racing sums of as many, far beyond 53 bits, made by one operation",
    planOf(
      oneRank(
        [copy(S, I), ...doubled(S, 100), meet(), copy(s(2), S), meet(), copy(O, s(2))],
        [meet(), copy(s(2), S), meet()],
      ),
      { input: 1, output: 1, scratch: 3 },
    ),
  ),
  right(
    "two racing maxima of one input, taken differently often",
    planOf(
      oneRank(
        [max(S, I, I), max(S, S, S), meet(), copy(s(2), S), meet(), copy(O, s(2))],
        [meet(), copy(s(2), I), meet()],
      ),
      { input: 1, output: 1, scratch: 3 },
    ),
  ),
];
