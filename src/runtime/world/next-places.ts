/** Who is in the next generation, and by which host: survivors keep theirs, and the dead are replaced or left out. */
import { Generation, isSurvivor, type Member } from "./generation.ts";
import type { KilledRankResources } from "./killed-rank-resources.ts";
import type { RankHost } from "./rank-host.ts";
import type { WorldSpec } from "./world-spec.ts";

/** A rank of the next generation, and the rank that it was, if it lived then. */
export interface Entry {
  readonly member: Member;
  readonly was?: number;
}

interface NextParts {
  /** Ranks of hosts that have come since. */
  readonly joined: readonly RankHost[];
  /** When what led to it began. */
  readonly sinceMs: number;
  readonly leftovers: KilledRankResources;
  /** Starts a rank instead of one that has died. @throws UnavailableError when its host is gone */
  replace(host: RankHost): RankHost;
}

/**
 * Makes the generation after `old`, of whom the policy keeps and of those that have joined: by host, and then in their old order.
 * Where the number of hosts may change, the ranks of lost hosts are left out.
 * @throws what `replace`, or the backend's `createHost`, throws: nothing is left then
 */
export function formNext(
  spec: WorldSpec,
  old: Generation,
  { joined, sinceMs, leftovers, replace }: NextParts,
): { readonly next: Generation; readonly entries: readonly Entry[] } {
  const isKept = (member: Member) =>
    isSurvivor(member) ||
    (spec.policy.onFailure !== "shrink" && !(spec.hosts !== undefined && member.host.hostLost === true));
  const places = old.members.filter(isKept);
  const replaced = new Set(places.filter((member) => !isSurvivor(member)));
  const all = [...places, ...joined.map((host) => ({ host }))];
  if (joined.length > 0) all.sort((a, b) => (a.host.node ?? 0) - (b.host.node ?? 0));
  const next = Generation.of(spec, old.number + 1, all.length, sinceMs);
  try {
    const entries = all.map((member, rank): Entry => {
      if (!("generation" in member)) return { member: next.add(member.host) };
      const isReplaced = replaced.has(member);
      const share = leftovers.shareOf(rank, isReplaced ? member : undefined, replaced);
      if (isReplaced) return { member: next.add(replace(member.host), share) };
      return { member: next.add(member.host, share), was: member.rank };
    });
    return { next, entries };
  } catch (error) {
    next.shared.release();
    throw error;
  }
}
