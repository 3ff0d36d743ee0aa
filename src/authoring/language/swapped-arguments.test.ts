/** Calls with arguments in the wrong place: each is refused with a sentence that names the call, never with internal data. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../../core/index.ts";
import { CALLS } from "./call-signatures.ts";
import { allGatherV, allReduce, allToAllV, program, reduceScatterV, sendRecv } from "./index.ts";

/** What a program says that makes one call. Written in JavaScript's terms: types would refuse most of these. */
function refusal(call: string): string {
  // biome-ignore lint/security/noGlobalEval: the calls are this file's own text.
  const body = globalThis.eval(`(p, a, b) => { ${call}; }`) as (p: unknown, a: unknown, b: unknown) => void;
  try {
    program({ name: "swapped", collective: allReduce(2) }, (p) => body(p, p.rank(0), p.rank(1)));
  } catch (error) {
    if (error instanceof InvalidArgumentError) return error.message;
    return `an internal error: ${String(error)}`;
  }
  return "accepted";
}

const REFUSED: readonly (readonly [call: string, says: RegExp])[] = [
  ["p.copy(3, a.input.at(0))", /^dst is 3; expected a chunk .* as in p\.copy\(dst, src, at\?\)/],
  ["p.copy(a.input.at(0))", /^src is undefined; expected a chunk/],
  ["p.copy(b.output, a.input)", /^dst is a buffer: output of rank 1; expected a chunk/],
  ["p.copy([b.output.at(0)], a.input.at(0))", /^dst is \["a chunk: rank 1 output\[0:1\]"\]/],
  ["p.copy(b.output.at(0), a.input.at(0), b)", /^strand is rank 1; expected a strand's number/],
  ["p.copy(b.output.at(0), a.input.at(0), { stran: 1 })", /^option stran is 1/],
  ["p.copy(b.output.at(0), a.input.at(0), { strand: [0] })", /^strand is \[0\].*p\.strandGroup/],
  ["p.memoryChannel(a.input.at(0), b)", /^rank is a chunk: .*expected a rank .* p\.memoryChannel\(from, to\)/],
  ["p.portChannel(a)", /^rank is undefined; expected a rank/],
  ["p.switchChannel('input', [a, b])", /^ranks is "input"; expected a list of ranks/],
  ["p.switchChannel([a, b], 'inputs')", /^buffer is "inputs"; expected input, output, scratch/],
  ["p.reduce([a.input.at(0)], a.output.at(0), a.input.at(0))", /^dst is \["a chunk/],
  ["p.reduce(a.output.at(0), a.input.at(0), a.input.at(1))", /^others is a chunk.*expected a list of chunks/],
  ["p.reducePackets(a.input.at(0))", /^src is undefined/],
  ["p.forwardPackets(1, 2)", /^dst is 1/],
  ["p.loop(() => {}, { unitBytes: 16, numChunks: 1 })", /^options is a function.*p\.loop/],
  ["p.loop({ unitBytes: 16, numChunks: 1 })", /^body is undefined/],
  ["p.strandGroup(0)", /^strands is 0; expected a list/],
  ["p.rank('a')", /^rank is "a"; expected 0 to 1/],
  ["a.reduce(a.output.at(0), a.input.at(0))", /^others is a chunk/],
  ["a.reduce(a.output.at(0), [a.input.at(0)], { op: 'plus' })", /^op is "plus"; expected sum, /],
  ["a.reduce(a.output.at(0), [a.input.at(0)], { dst: b })", /^dst is rank 1/],
  ["a.copy(0, a.output.at(0), a.input.at(0))", /^dst is 0/],
  ["a.scratch(b)", /^size of a scratch buffer is rank 1/],
  ["a.barrier(2)", /^strands of a barrier is 2; expected a list/],
  ["a.barrier([a])", /^strands of a barrier is \["rank 0"\]/],
  ["a.semaphore(a.input)", /^initial value is a buffer/],
  ["a.semaphore().acquire(b)", /^strand is rank 1/],
  ["a.input.at(a.input.at(0))", /^index in the input of rank 0 is a chunk/],
  ["a.input.at('0')", /^index in the input of rank 0 is "0"; expected a chunk, 0 to 1/],
  ["p.memoryChannel(a, b).put(1, b.output.at(0), a.input.at(0))", /^dst is 1.*channel\.put\(dst, src, at\?\)/],
  ["p.memoryChannel(a, b).put(a.input.at(0), b.output.at(0))", /^rank of a put's source is 1; expected 0/],
  ["p.memoryChannel(a, b).get(a.output.at(0), [b.input.at(0)])", /^src is \["a chunk/],
  ["p.memoryChannel(a, b).reduce([b.input.at(0)], a.input.at(0))", /^src is \["a chunk/],
  ["p.memoryChannel(a, b).signal(b)", /^strand is rank 1/],
  ["p.memoryChannel(a, b).signal({ relaxed: 'yes' })", /^relaxed is "yes"; expected true or false/],
  ["p.memoryChannel(a, b).wait({ sync: 'never' })", /^sync is "never"; expected none, before, after, both/],
  ["p.portChannel(a, b).flush(a.input.at(0))", /^strand is a chunk/],
  ["p.switchChannel([a, b], 'input').at(0)", /^rank is 0; expected a rank/],
  ["p.switchChannel([a, b], 'input').at(a).reduce(0, a.output.at(0))", /^dst is 0/],
  ["p.switchChannel([a, b], 'input').at(a).broadcast(a.output.at(0), a.input.at(0))", /^offset on the switch is a/],
];

describe("arguments in the wrong place", () => {
  it.each(REFUSED)("%s", (call, says) => {
    const message = refusal(call);
    expect(message).toMatch(says);
    expect(message).not.toMatch(/"(owner|recorder|strands|memory)":/);
  });

  it("of program itself are refused too", () => {
    const refused = (...args: unknown[]) => {
      try {
        (program as (...list: unknown[]) => unknown)(...args);
      } catch (error) {
        return error instanceof InvalidArgumentError ? error.message : `an internal error: ${String(error)}`;
      }
      return "accepted";
    };
    const options = { name: "x", collective: allReduce(2) };
    expect(refused(() => {}, options)).toMatch(/^options is a function; expected an object, as in program/);
    expect(refused(options)).toMatch(/^callback is undefined/);
    expect(refused({ ...options, name: 3 }, () => {})).toMatch(/^name is 3; expected a string/);
    expect(refused({ ...options, collective: "all_reduce" }, () => {})).toMatch(/^collective is "all_reduce"/);
    expect(refused({ ...options, instance: 2 }, () => {})).toMatch(/^option instance is 2/);
    expect(refused({ ...options, protocol: "LL128" }, () => {})).toMatch(/^protocol is "LL128"; expected Simple, LL/);
    const plus = { ...allReduce(2), reduceOp: "plus" };
    expect(refused({ ...options, collective: plus }, () => {})).toMatch(/^op is "plus"/);
    expect(() => allReduce(2, { op: "plus" as "sum" })).toThrow(/^op is "plus"; expected sum, prod/);
    expect(() => allReduce(2, 4 as never)).toThrow(/^options is 4/);
    expect(() => allGatherV(2 as never)).toThrow(/^counts is 2; expected a list of counts/);
    expect(() => reduceScatterV([1, -1])).toThrow(/^counts\[1\] is -1; expected an integer, 0 or more/);
    for (const count of [0.5, -1, "a", Number.NaN] as number[])
      expect(() => allToAllV([[1, count], [1]])).toThrow(/^sendCounts\[0\]\[1\] is .*; expected an integer, 0 or more/);
    expect(() => allToAllV([1, 2] as never)).toThrow(/^sendCounts\[0\] is 1; expected a list of counts/);
    for (const to of [2, -1, 0.5, "1"] as number[])
      expect(() => sendRecv([null, to])).toThrow(/^sendTo\[1\] is .*; expected a rank from 0 to 1, or null/);
    expect(() => sendRecv(2 as never)).toThrow(/^sendTo is 2; expected a list/);
  });
});

it("docs/language.md gives the signature of every call", () => {
  const text = readFileSync(new URL("../../../docs/language.md", import.meta.url), "utf8");
  const missing = Object.values(CALLS).filter((call) => !text.includes(`\`${call}\``));
  expect(missing).toEqual([]);
});
