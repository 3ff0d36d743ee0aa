/**
 * What ranks that were threads left behind in drivers and engines when they were killed. Their process lives on, so
 * somebody else must free it: ranks of the next generation before they attach, or the launcher when the world ends.
 */
import type { BackendKind } from "../comm/index.ts";
import type { Generation, Member } from "./generation.ts";
import type { Reap } from "./messages.ts";

export class KilledRankResources {
  #left: (Reap & { readonly kind: BackendKind })[] = [];

  /** Notes what the dead of a generation may have left; threads that use no library leave nothing. */
  add({ shared, members }: Generation, isDead: (member: Member) => boolean): void {
    const { kind, handle } = shared;
    if (kind.reap === undefined) return;
    for (const member of members) {
      if (member.host.kind === "thread" && isDead(member)) this.#left.push({ engine: handle, rank: member.rank, kind });
    }
  }

  /** What `rank` of the next generation frees: what its predecessor left; rank 0 also frees the rest. */
  shareOf(rank: number, replaces: Member | undefined, replaced: ReadonlySet<Member>): Reap[] {
    const isOf = ({ engine, rank: dead }: Reap, member: Member) =>
      member.generation.shared.handle === engine && member.rank === dead;
    return this.#left
      .filter((left) =>
        [...replaced].some((member) => isOf(left, member))
          ? replaces !== undefined && isOf(left, replaces)
          : rank === 0,
      )
      .map(({ engine, rank: dead }) => ({ engine, rank: dead }));
  }

  /** Notes that a rank has freed its share. */
  freed(share: readonly Reap[]): void {
    const isFreed = (left: Reap) => share.some(({ engine, rank }) => engine === left.engine && rank === left.rank);
    this.#left = this.#left.filter((left) => !isFreed(left));
  }

  /** Frees the rest from this thread. What goes wrong becomes a process warning. */
  async freeAll(): Promise<void> {
    const all = this.#left.splice(0);
    const warn = (rank: number) => (error: unknown) => {
      process.emitWarning(`what rank ${rank} held could not be freed: ${String(error)}`, "ChoraleWarning");
    };
    // None is freed while a kernel of another one may still use it.
    for (const { kind, engine, rank } of all) await kind.endLaunches?.(engine.host, rank).catch(warn(rank));
    for (const { kind, engine, rank } of all) await kind.reap?.(engine.host, rank).catch(warn(rank));
  }
}
