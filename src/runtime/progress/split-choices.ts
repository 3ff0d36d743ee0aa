/** A split's choices ride in its fingerprints: no call of the engine carries them. */
import { writeChoice } from "../comm/index.ts";
import { COLLECTIVE, type Fingerprint, type GroupControl } from "../memory/index.ts";

/** Reads every member's choice in a split, in bytes; `undefined` until all have come. */
export function readChoices(control: GroupControl, seq: number): readonly Uint8Array[] | undefined {
  const prints: Fingerprint[] = [];
  for (let member = 0; member < control.size; member++) {
    const print = control.read(member, COLLECTIVE, seq);
    if (print === undefined) return undefined;
    prints.push(print);
  }
  return prints.map(({ count, hash }) => writeChoice(count, hash));
}
