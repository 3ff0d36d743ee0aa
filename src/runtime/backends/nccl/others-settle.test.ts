/** A call that another member makes while this one ends everybody's kernels: at whatever moment that is, it gives no result. */
import { describe, expect, it } from "vitest";
import { controlBytes } from "../../memory/control-layout.ts";
import { COLLECTIVE, ControlSegment, type GroupControl } from "../../memory/index.ts";
import { othersSettle } from "./others-settle.ts";

const PRINT = { call: 1, count: 2, hash: 3 };
const LEAVES = { code: "ABORTED", reason: "member 0 leaves" } as const;

/** Two members of a group that have both made call 1 and settled it. */
function twoMembers(): readonly [GroupControl, GroupControl] {
  const buffer = new SharedArrayBuffer(controlBytes(2));
  const member = (of: number) => {
    const control = new ControlSegment(buffer, 2).group("tp", [0, 1], 0, of);
    if (control === undefined) throw new Error("no group");
    control.join(0, PRINT);
    return control;
  };
  const both = [member(0), member(1)] as const;
  for (const control of both) {
    issue(control, 1);
    control.notesOf(control.member).collectives.end(1, true, 0);
  }
  return both;
}

function issue(control: GroupControl, seq: number): void {
  control.publish(COLLECTIVE, seq, PRINT);
  control.notesOf(control.member).collectives.issue(seq, 0);
}

/**
 * Member 0 fails and ends all kernels; member 1, which has seen no failure yet, makes call 2 as member 0 looks at it for the
 * `at`-th time, or afterwards. Its kernel ends at once.
 */
function interleaved(lastOfFirst: number, at: number): { readonly looks: number; readonly isSettled: boolean } {
  const [a, b] = twoMembers();
  for (let seq = 2; seq <= lastOfFirst; seq++) issue(a, seq);
  let looks = 0;
  const look = () => {
    if (looks++ === at) issue(b, 2);
  };
  const watched = {
    member: a.member,
    issued: (...asked: Parameters<typeof a.issued>) => {
      if (asked[0] === b.member) look();
      return a.issued(...asked);
    },
    isSettling: (member: number) => {
      look();
      return a.isSettling(member);
    },
  };
  a.fail(LEAVES);
  a.finish();
  if (!othersSettle(watched, [b.member], 1)) a.cutShort();
  if (looks <= at) issue(b, 2);
  const isWhole = [a, b].every((member) => a.issued(member.member, COLLECTIVE) > 2);
  return { looks, isSettled: b.failed && !b.isCutShort && isWhole };
}

describe("othersSettle", () => {
  it.each([1, 2, 3])("gives no result of a call that comes late, where the member that fails has made %i", (last) => {
    // From before its first look to after its last one.
    for (let at = 0; ; at++) {
      const { looks, isSettled } = interleaved(last, at);
      expect(isSettled, `made at look ${at}`).toBe(false);
      if (at >= looks) break;
    }
  });

  it("says so where all are done with whatever this member has made", () => {
    const [a, b] = twoMembers();
    expect(othersSettle(a, [b.member], 1)).toBe(true);
    issue(b, 2);
    expect(othersSettle(a, [b.member], 1)).toBe(false);
    b.notesOf(b.member).collectives.end(2, true, 0);
    expect(othersSettle(a, [b.member], 1)).toBe(true);
    issue(a, 2);
    issue(a, 3);
    expect([othersSettle(a, [b.member], 1), othersSettle(a, [], 1)]).toEqual([false, true]);
  });
});
