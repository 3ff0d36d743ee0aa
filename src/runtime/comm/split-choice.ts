/** What a rank says in a split, in eight bytes: its color and its key; and who ends up with whom. */
import { invariant } from "../../core/index.ts";

export interface SplitChoice {
  /** Group rank in the group that is split. */
  readonly rank: number;
  readonly color: number;
  readonly key: number;
}

/** Writes a choice: two little-endian 32-bit integers. */
export function writeChoice(color: number, key: number): Uint8Array {
  const bytes = new Uint8Array(8);
  const view = new DataView(bytes.buffer);
  view.setInt32(0, color, true);
  view.setInt32(4, key, true);
  return bytes;
}

/** Reads what `writeChoice` wrote. */
export function readChoice(bytes: Uint8Array | undefined, rank: number): SplitChoice {
  invariant(bytes?.length === 8, "a rank's choice in a split has eight bytes");
  const view = new DataView(bytes.buffer, bytes.byteOffset, 8);
  return { rank, color: view.getInt32(0, true), key: view.getInt32(4, true) };
}

/** The members of a color, as ranks of the group that is split, in their new order: by key, then by rank. */
export function membersOfColor(choices: readonly SplitChoice[], color: number): readonly number[] {
  return choices
    .filter((choice) => choice.color === color)
    .sort((a, b) => a.key - b.key || a.rank - b.rank)
    .map(({ rank }) => rank);
}
