/** The lanes in which the members of a group number their calls, and how many calls each remembers. */

/**
 * Which lane of a member: its collectives, its sends to a peer, its receives from a peer; and what it gives to a peer and
 * takes from it in collectives whose members agree in pairs. Those have lanes of their own, for the program may make them
 * before a send that its peer receives after them.
 */
export type Lane =
  | { readonly kind: "collective" }
  | { readonly kind: "send" | "recv" | "give" | "take"; readonly peer: number };

export const COLLECTIVE: Lane = { kind: "collective" };

/** How many calls a lane of sends or receives remembers. A rank further ahead than that must wait, or is not compared. */
export const LANE_RING = 64;
/** How many collectives a member remembers: more than engines take before they block, so that few ranks ever wait. */
export const COLLECTIVE_RING = 512;
/** The same of the parts of collectives that pairs of members agree on. */
export const EXCHANGE_RING = 32;

const RINGS: { readonly [K in Lane["kind"]]: number } = {
  collective: COLLECTIVE_RING,
  send: LANE_RING,
  recv: LANE_RING,
  give: EXCHANGE_RING,
  take: EXCHANGE_RING,
};

/** How many calls a lane remembers. */
export const ringOf = (lane: Lane): number => RINGS[lane.kind];

const OPPOSITES = { send: "recv", recv: "send", give: "take", take: "give" } as const;

/** The lane of the other end, as the peer of `lane` has it. @param member whose lane `lane` is */
export const oppositeOf = (lane: Lane, member: number): Lane =>
  lane.kind === "collective" ? lane : { kind: OPPOSITES[lane.kind], peer: member };

export function sameLane(a: Lane, b: Lane): boolean {
  return a.kind === b.kind && (a.kind === "collective" || b.kind === "collective" || a.peer === b.peer);
}
