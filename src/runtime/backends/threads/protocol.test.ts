/** The steps of a call, one by one, of three members that stand in one thread: who is woken by which of them. */
import { describe, expect, it } from "vitest";
import { builtCode } from "../../executor/built-code.ts";
import { instantiate, newSharedMemory } from "../../executor/wasm/webassembly.ts";
import { LINE, MEMBER, RANK, SLOT } from "./layout.ts";
import { assembleProtocol, buildProtocol, type ProtocolExports, protocolFile } from "./protocol.ts";

const SIZE = 3;
const CALL = [7, 16, 0, 0, 0] as const;

/** Members of one group, whose doorbells the test looks at. Nobody sleeps but who is said to. */
function group() {
  const memory = newSharedMemory(1, 1);
  const words = new Int32Array(memory.buffer);
  let end = 1024;
  const place = (bytes: number) => {
    end += bytes;
    return end - bytes;
  };
  const sleepers = place(LINE);
  const slots = [place(SIZE * SLOT.sizeBytes), place(SIZE * SLOT.sizeBytes)];
  const done = place(SIZE * LINE);
  const doors = Array.from({ length: SIZE }, () => place(2 * LINE));
  const members = doors.map((_, me) => {
    const [member, inTable, outTable, doorTable] = [place(2 * LINE), place(LINE), place(LINE), place(LINE)];
    const fields = { size: SIZE, me, done, sleepers, inTable, outTable, doorTable };
    for (const [name, value] of Object.entries(fields))
      words[(member + MEMBER[name as keyof typeof fields]) / 4] = value;
    words.set(slots, (member + MEMBER.slots) / 4);
    words.set(doors, doorTable / 4);
    return member;
  });
  const wasm = instantiate<ProtocolExports>(buildProtocol(), memory, {
    moveLarge: () => expect.fail("nothing is that large"),
  });
  return {
    wasm,
    members,
    /** Has members sleep, does something, and wakes all. @returns whose doorbells rang */
    rungBy(asleep: readonly number[], act: () => void): readonly number[] {
      const bells = doors.map((door) => words[(door + RANK.doorbell) / 4]);
      words[sleepers / 4] = asleep.length;
      for (const [me, door] of doors.entries()) {
        words[(door + RANK.sleeping) / 4] = asleep.includes(me) ? 1 : 0;
        words[(door + RANK.rung) / 4] = 0;
      }
      act();
      words[sleepers / 4] = 0;
      return [...doors.keys()].filter((me) => words[(doors[me]! + RANK.doorbell) / 4] !== bells[me]);
    },
  };
}

it.each(["notify", "call"] as const)("the code that comes with the package is what is assembled now (%s)", (wakes) => {
  expect(Buffer.from(builtCode(protocolFile(wakes)) ?? []).equals(assembleProtocol(wakes))).toBe(true);
});

it("the code that comes with the package is for one kind of processor: others reorder stores that it does not", () => {
  expect([protocolFile("notify"), protocolFile("call")]).toEqual([
    expect.stringContaining(`-${process.arch}.`),
    expect.stringContaining(`-${process.arch}.`),
  ]);
});

// From a number of a call on, and where numbers begin anew behind the largest.
describe.each([1, 0x7fff_ffff, -1])("the end of a step of call %i", (seq) => {
  const { wasm, members, rungBy } = group();
  const [m0 = 0, m1 = 0, m2 = 0] = members;

  it("wakes who waits for the others to come, and none of those that have gone on", () => {
    for (const number of [seq - 1, seq]) for (const member of members) wasm.publish(member, number, ...CALL);
    expect(rungBy([0, 1], () => expect(wasm.arrived(m2, seq, 0, 0)).toBe(0))).toEqual([0, 1]);
    expect(wasm.arrived(m0, seq, 0, 0)).toBe(0);
    wasm.finish(m0, seq);
    expect(rungBy([0, 1], () => expect(wasm.arrived(m2, seq, 0, 0)).toBe(0))).toEqual([1]);
  });

  it("wakes who waits for the others to finish, and nobody who waits in the next call", () => {
    expect(wasm.arrived(m1, seq, 0, 0)).toBe(0);
    for (const member of [m1, m2]) wasm.finish(member, seq);
    expect(rungBy([0, 1], () => expect(wasm.finished(m2, seq, 0)).toBe(0))).toEqual([0, 1]);
    expect(wasm.finished(m0, seq, 0)).toBe(0);
    wasm.publish(m0, (seq + 1) | 0, ...CALL);
    expect(rungBy([0, 1], () => expect(wasm.finished(m2, seq, 0)).toBe(0))).toEqual([1]);
    expect(rungBy([0, 1], () => expect(wasm.arrived(m2, seq, 0, 0)).toBe(0))).toEqual([]);
  });
});
