/** Name and members of a group as it stands in the control segment, for the flight recorder: JSON of bounded size. */

interface GroupLabel {
  readonly name: string;
  readonly ranks: readonly number[];
}

/** At the end of a name that was shortened. */
const MORE = "…";
const encoder = new TextEncoder();

/** Writes a label in at most `maxBytes`, which the members must leave room for: of a long name its first characters. */
export function encodeLabel({ name, ranks }: GroupLabel, maxBytes: number): Uint8Array {
  const encode = (text: string) => encoder.encode(JSON.stringify({ name: text, ranks }));
  const whole = encode(name);
  if (whole.length <= maxBytes) return whole;
  let room = maxBytes - encode(MORE).length;
  let kept = "";
  // A half of a pair of surrogates that this cuts is of no use: each unit takes a byte at least.
  for (const character of name.slice(0, maxBytes)) {
    room -= encoder.encode(JSON.stringify(character)).length - 2;
    if (room < 0) break;
    kept += character;
  }
  return encode(kept + MORE);
}

/** Reads a label; `undefined` for what a rank that died had not written to its end. */
export function decodeLabel(bytes: Uint8Array): GroupLabel | undefined {
  try {
    return JSON.parse(new TextDecoder().decode(bytes)) as GroupLabel;
  } catch {
    return undefined;
  }
}
