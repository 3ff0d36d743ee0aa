/** Hands a program's state to ranks that have none, or an older one: after a rebuild, or at the start from a checkpoint. */
import { InvalidArgumentError, MismatchError, Tensor } from "../../core/index.ts";
import type { Data } from "../comm/index.ts";
import type { World } from "./world.ts";

/** What `shareState` did. */
export interface SharedState {
  /** How far all ranks are now. */
  readonly progress: number;
  /** The rank whose state all have now: the lowest of those that were furthest. */
  readonly from: number;
  /** Ranks that were behind, and have its state now; when there is none, nothing was sent. */
  readonly behind: readonly number[];
}

/**
 * Brings every rank to the state of the rank that is furthest: its tensors are broadcast into those of the same names on all
 * others. A rank that was started again gives its fresh state and progress 0. Called by all ranks of the world, with the
 * same names, dtypes and sizes.
 * @param progress how far this rank is, in steps or whatever only grows; 0 or more
 * @throws MismatchError naming both sides when names, dtypes or sizes differ; InvalidArgumentError for a progress that is no
 *   number; what `gatherObjects` and `broadcast` throw
 * @example
 * import { joinWorld, tensor } from "chorale";
 * import { shareState } from "chorale/world";
 *
 * const world = await joinWorld();
 * const weights = tensor("f32", [4]);
 * const { progress } = await shareState(world, { weights }, 0);
 * console.log(progress); // 0: all are as far
 */
export async function shareState(
  world: World,
  state: Readonly<Record<string, Data>>,
  progress: number,
): Promise<SharedState> {
  if (typeof progress !== "number" || !(progress >= 0)) {
    throw new InvalidArgumentError("progress", progress, "a number, 0 or more");
  }
  const { comm } = world;
  const names = Object.keys(state).sort();
  const layout = names.map((name) => `${name} ${describe(state[name])}`).join(", ");
  const all = await comm.gatherObjects({ progress, layout });
  const other = all.findIndex((one) => one.layout !== all[0]?.layout);
  if (other >= 0) {
    const sides = [0, other].map((who) => ({ rank: who, call: all[who]?.layout || "nothing" }));
    throw new MismatchError("ranks must share a state of the same names, dtypes and sizes", sides);
  }
  const furthest = Math.max(...all.map((one) => one.progress));
  const from = all.findIndex((one) => one.progress === furthest);
  const behind = all.flatMap((one, who) => (one.progress < furthest ? [who] : []));
  if (behind.length > 0) {
    for (const name of names) await comm.broadcast(state[name] as Data, { root: from });
  }
  return { progress: furthest, from, behind };
}

function describe(data: Data | undefined): string {
  if (data === undefined) return "nothing";
  if (data instanceof Tensor) return `${data.dtype}[${data.size}]`;
  return `${data.constructor.name}[${data.length}]`;
}
