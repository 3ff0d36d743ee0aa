/**
 * What ranks that were threads left behind in drivers and engines when they were killed. Their process lives on, so
 * somebody else must free it: ranks of the next generation before they attach, or the launcher when the world ends.
 */
import type { BackendKind } from "../comm/index.ts";
import type { Generation, Member } from "./generation.ts";
import type { Reap } from "./messages.ts";

interface Left extends Omit<Reap, "killed"> {
  readonly kind: BackendKind;
}

export class KilledRankResources {
  #left: Left[] = [];

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
    const isOf = ({ engine, rank: dead }: Left, member: Member) =>
      member.generation.shared.handle === engine && member.rank === dead;
    return this.#left
      .filter((left) =>
        [...replaced].some((member) => isOf(left, member))
          ? replaces !== undefined && isOf(left, replaces)
          : rank === 0,
      )
      .map((left) => ({ engine: left.engine, rank: left.rank, killed: this.#killedWith(left) }));
  }

  /** Notes that a rank has freed its share. */
  freed(share: readonly Reap[]): void {
    const isFreed = (left: Left) => share.some(({ engine, rank }) => engine === left.engine && rank === left.rank);
    this.#left = this.#left.filter((left) => !isFreed(left));
  }

  /** Frees the rest from this thread. What goes wrong becomes a process warning. */
  async freeAll(): Promise<void> {
    for (const left of this.#left) {
      const { kind, engine, rank } = left;
      await kind.reap?.(engine.host, rank, this.#killedWith(left)).catch((error: unknown) => {
        process.emitWarning(`what rank ${rank} held could not be freed: ${String(error)}`, "ChoraleWarning");
      });
    }
    this.#left.length = 0;
  }

  #killedWith({ engine }: Left): number[] {
    return this.#left.flatMap((left) => (left.engine === engine ? left.rank : []));
  }
}
