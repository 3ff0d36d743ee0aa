/** How often what serves a call with an epilogue is looked for. */
import { expect, it } from "vitest";
import { UnsupportedError } from "../../../core/index.ts";
import { type Choice, parseServed } from "../../executor/internal.ts";
import { apartServing } from "./apart-serving.ts";
import type { Serving } from "./nccl-calls.ts";

const rangeOf = (label: string) => ({ choice: { served: parseServed(label, []) } as Choice });

function calls() {
  const asked: string[] = [];
  const refused = new Set<string>();
  const call = (range: { readonly choice: Choice }, numUnits: number, unitBytes: number) => {
    const found = apartServing(range, 2, { numUnits, unitBytes }, (label) => {
      asked.push(label);
      return { label, isRefused: false, ...(refused.has(label) && { isRefused: true }) } as unknown as Serving;
    });
    return (found as unknown as { readonly label: string } | undefined)?.label;
  };
  return { asked, refused, call };
}

it("is once for each range, number of units and length", () => {
  const { asked, call } = calls();
  const [one, other] = [
    rangeOf("one-shot-packet-all-reduce*2@256.lines"),
    rangeOf("one-shot-packet-all-reduce*4@256.sheets"),
  ];
  for (let turn = 0; turn < 3; turn++) {
    expect([call(one, 2, 1024), call(one, 8, 1024), call(one, 2, 8192), call(other, 2, 1024)]).toEqual([
      "one-shot-packet-all-reduce*1@128.lines",
      "one-shot-packet-all-reduce*4@128.lines",
      "one-shot-packet-all-reduce*1@640.lines",
      "one-shot-packet-all-reduce*1@128.sheets",
    ]);
    // No kernel of whole units.
    expect(call(one, 2, 1000)).toBeUndefined();
    expect(asked).toHaveLength(4);
  }
});

it("finds what members could not open too, as NCCL serves that, none that is refused at once, and asks for it once", () => {
  const { asked, refused, call } = calls();
  const range = rangeOf("one-shot-packet-all-reduce*2@256.lines");
  refused.add("one-shot-packet-all-reduce*1@128.lines");
  expect([call(range, 2, 1024), call(range, 2, 1024), call(range, 8, 1024)]).toEqual([
    "one-shot-packet-all-reduce*1@128.lines",
    "one-shot-packet-all-reduce*1@128.lines",
    "one-shot-packet-all-reduce*4@128.lines",
  ]);
  expect(asked).toHaveLength(2);
  let numAsked = 0;
  const named = () => {
    numAsked++;
    throw new UnsupportedError("this", "here");
  };
  const unserved = rangeOf("one-shot-packet-all-reduce*2@256.lines");
  const find = () => apartServing(unserved, 2, { numUnits: 1, unitBytes: 16 }, named);
  expect([find(), find(), numAsked]).toEqual([undefined, undefined, 1]);
});

it("remembers no more than 1,024 numbers of units of a length", () => {
  const { asked, call } = calls();
  const range = rangeOf("one-shot-packet-all-reduce*2@256.lines");
  for (let units = 1; units <= 1025; units++) call(range, units, 16);
  call(range, 1025, 16);
  expect(asked).toHaveLength(1025);
  call(range, 1, 16);
  expect(asked).toHaveLength(1026);
});
