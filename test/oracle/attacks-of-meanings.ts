/** Attacks on what the verifier takes for granted of a plan: that parts lie where they lie on paper, that lists name things once. */
import { copy, nop } from "../support/small-plans.ts";
import { type Attack, alone, group, I, i, loop, meet, O, o, planOf, s, two, wrong } from "./attacks.ts";

const at = (chunk: number) => ({ rank: 0, chunk });

export const MEANING_ATTACKS: readonly Attack[] = [
  // Chunks of nine elements, units of four: the element behind five of the second chunk is written in the second iteration.
  wrong(
    "parts that begin at one place on paper and an element apart, in units shorter than they are",
    alone(
      [
        [
          loop([group(copy(s(1), i(1)), 0, 2), meet(), meet()]),
          meet(),
          ...[0, 1, 3].map((index) => group(copy(o(0, 2), i(0, 2)), index, 4)),
        ],
        [loop([meet(), group(copy(o(0, 2), s(0, 2)), 2, 4), meet()]), meet()],
      ],
      two,
    ),
    { unseen: true },
  ),
  wrong("a loop in a loop", alone([[loop([loop([copy(O, i(1))])]), nop, copy(O, I), copy(o(1), i(1))]], two), {
    unseen: true,
  }),
  wrong(
    "a custom collective that asks for the sum of an input and itself",
    planOf(
      [[[copy(O, I)]]],
      { input: 1, output: 1 },
      {
        operation: "custom",
        custom: {
          name: "twice",
          inputChunks: [1],
          outputChunks: [1],
          post: [[{ kind: "reduce", from: [at(0), at(0)] }]],
        },
      },
    ),
    { unseen: true },
  ),
];
