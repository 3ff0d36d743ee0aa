/**
 * What ranks that were threads left behind in the driver and in NCCL when they were killed: their process lives on, so
 * somebody else must free it. Ranks of the next generation do, before they attach; at the world's end the launcher does.
 */
import { reapEngine } from "./engine.ts";
import type { Generation, Member } from "./generation.ts";
import type { Reap } from "./messages.ts";

export class Remains {
  #left: Reap[] = [];

  /** Notes what the dead of a generation may have left; of threads that use no library there is nothing. */
  add({ engine, members }: Generation, isDead: (member: Member) => boolean): void {
    if (engine.backend === "threads") return;
    for (const member of members) {
      if (member.host.kind === "thread" && isDead(member)) this.#left.push({ engine, rank: member.rank });
    }
  }

  /** What `rank` of the next generation frees: what the rank left that it replaces; rank 0 also all else. */
  shareOf(rank: number, replaces: Member | undefined, replaced: ReadonlySet<Member>): Reap[] {
    const isOf = ({ engine, rank: dead }: Reap, member: Member) =>
      member.generation.engine === engine && member.rank === dead;
    return this.#left.filter((left) =>
      [...replaced].some((member) => isOf(left, member)) ? replaces !== undefined && isOf(left, replaces) : rank === 0,
    );
  }

  /** Notes that a rank has freed its share. */
  freed(share: readonly Reap[]): void {
    this.#left = this.#left.filter((left) => !share.includes(left));
  }

  /** Frees the rest from this thread. What goes wrong becomes a process warning. */
  async freeAll(): Promise<void> {
    for (const { engine, rank } of this.#left.splice(0)) {
      await reapEngine(engine, rank).catch((error: unknown) => {
        process.emitWarning(`what rank ${rank} held could not be freed: ${String(error)}`, "ChoraleWarning");
      });
    }
  }
}
