/**
 * Before a member of a group that has failed ends the kernels of plans on all members: whether another one could take a call for
 * ended well whose kernel was only cut short. Members settle such calls alone that all of them have made, and see the failure
 * before they see a kernel end by it (`CommQueue`).
 */
import { COLLECTIVE, type GroupControl, napUntil } from "../../memory/index.ts";

/**
 * Waits until no other member that lives settles calls any more. This member makes no more calls.
 * @param others the members that live
 * @returns whether all are done with every call that this member has made, within `limitMs`. One that has made fewer may be
 *   about to make the next: it looked at the failure before that was there, and is seen too late
 */
export function othersSettle(
  control: Pick<GroupControl, "member" | "issued" | "isSettling">,
  others: readonly number[],
  limitMs: number,
): boolean {
  const own = control.issued(control.member, COLLECTIVE);
  let isBehind = false;
  const areDone = () => {
    // Asked first: whoever has come as far here makes no more calls that this member has made, too.
    isBehind = others.some((member) => control.issued(member, COLLECTIVE) < own);
    return !others.some((member) => control.isSettling(member));
  };
  return napUntil(areDone, limitMs) && !isBehind;
}
