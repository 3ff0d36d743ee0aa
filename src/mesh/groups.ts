/** Process groups as plain data: which ranks stand along an axis, or along a product of axes. */
import { rank as checkRank, InvalidArgumentError, show } from "../core/index.ts";
import type { Axis } from "./axes.ts";

/** An ordered subset of the world. */
export interface ProcessGroup {
  /** `tp[dp=0,pp=1]`, `dp*tp[pp=0]`, `world`, or the name that a custom group was given. */
  readonly name: string;
  /** The axes that the group runs along, in the mesh's order; empty for a custom group. */
  readonly axes: readonly string[];
  /** Where the group stands on the other axes. */
  readonly at: Readonly<Record<string, number>>;
  /** World ranks, by group rank. */
  readonly ranks: readonly number[];
}

/** Name of the group of all ranks. */
export const WORLD_GROUP = "world";

/** Distance in ranks between neighbours along each axis: 1 for the last. */
export function strides(axes: readonly Axis[]): readonly number[] {
  const out: number[] = new Array(axes.length);
  let stride = 1;
  for (let index = axes.length - 1; index >= 0; index--) {
    out[index] = stride;
    stride *= axes[index]!.size;
  }
  return out;
}

/** Coordinates of a rank, one per axis. */
export function coordinates(axes: readonly Axis[], rank: number): readonly number[] {
  return strides(axes).map((stride, index) => Math.floor(rank / stride) % axes[index]!.size);
}

/** Builds every group along `along` (names of axes, in the mesh's order): one per place on the other axes. */
export function groupsAlong(axes: readonly Axis[], along: readonly string[]): readonly ProcessGroup[] {
  const size = axes.reduce((product, axis) => product * axis.size, 1);
  const fixed = axes.map((axis, index) => ({ ...axis, index })).filter(({ name }) => !along.includes(name));
  const groups = new Map<string, { at: Record<string, number>; ranks: number[] }>();
  for (let rank = 0; rank < size; rank++) {
    const here = coordinates(axes, rank);
    const at = Object.fromEntries(fixed.map(({ name, index }) => [name, here[index]!]));
    const key = fixed.map(({ name }) => `${name}=${at[name]}`).join(",");
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { at, ranks: [rank] });
    else group.ranks.push(rank);
  }
  return Object.freeze(
    [...groups].map(([key, { at, ranks }]) =>
      Object.freeze({
        name: fixed.length === 0 ? WORLD_GROUP : `${along.join("*")}[${key}]`,
        axes: Object.freeze([...along]),
        at: Object.freeze(at),
        ranks: Object.freeze(ranks),
      }),
    ),
  );
}

/**
 * Checks and makes a custom group.
 * @param taken names that are in use
 * @throws InvalidArgumentError for a name that is empty or taken, and for ranks that are not integers, repeated, or out of range
 */
export function makeCustomGroup(
  name: string,
  ranks: readonly number[],
  worldSize: number,
  taken: (name: string) => boolean,
): ProcessGroup {
  if (name === "") throw new InvalidArgumentError("group name", name, "a name");
  if (taken(name)) throw new InvalidArgumentError("group name", name, "a name that no group of the mesh has");
  if (ranks.length === 0) throw new InvalidArgumentError(`ranks of group ${show(name)}`, ranks, "at least one rank");
  for (const rank of ranks) checkRank(rank, worldSize, `rank of group ${show(name)}`);
  const twice = ranks.find((rank, index) => ranks.indexOf(rank) !== index);
  if (twice !== undefined) {
    throw new InvalidArgumentError(`ranks of group ${show(name)}`, ranks, `each rank once; ${twice} comes twice`);
  }
  return Object.freeze({ name, axes: Object.freeze([]), at: Object.freeze({}), ranks: Object.freeze([...ranks]) });
}
