/** Who is in the next generation, and by which host: survivors keep theirs, and the dead are replaced or left out. */
import { type Generation, isSurvivor, type Member } from "./generation.ts";
import type { KilledRankResources } from "./killed-rank-resources.ts";
import type { RankHost } from "./rank-host.ts";

/** A rank of the next generation, and the rank that it was, if it lived then. */
export interface Entry {
  readonly member: Member;
  readonly was?: number;
}

export interface NextPlaces {
  /** Members of the generation before whose places are kept. */
  readonly places: readonly Member[];
  readonly leftovers: KilledRankResources;
  /** Starts a rank instead of one that has died. @throws UnavailableError when its host is gone */
  replace(host: RankHost): RankHost;
}

/** Adds a rank to `next` for every place, in their order. @throws what `replace` throws */
export function fillPlaces(next: Generation, { places, leftovers, replace }: NextPlaces): Entry[] {
  const replaced = new Set(places.filter((member) => !isSurvivor(member)));
  return places.map((member, rank) => {
    const isReplaced = replaced.has(member);
    const share = leftovers.shareOf(rank, isReplaced ? member : undefined, replaced);
    if (isReplaced) return { member: next.add(replace(member.host), share) };
    return { member: next.add(member.host, share), was: member.rank };
  });
}
