/** What a group has once its members know who shares a host: their layout, their memory, and how many pieces went through. */

import { type HostLayout, ownRow } from "../../hosts/index.ts";
import { type GroupKey, KIND, LANE } from "./frame.ts";
import type { HostMemory } from "./host-memory.ts";
import type { Link } from "./link.ts";

/** What the rank does beside its sockets, as `TcpRank` sees it. */
export interface HostActivity {
  /** Goes on as far as it can. @returns whether it got on */
  advance(): boolean;
  /** Says to the others of the host whether this rank looks by itself. */
  sleeps(does: boolean): void;
}

export class HostPlace {
  readonly layout: HostLayout;
  readonly memory: HostMemory;
  /** Calls that run, of all groups of the rank. */
  readonly activities: Set<HostActivity>;
  /** Pieces of the calls before. */
  numPieces = 0;
  readonly #key: GroupKey;
  readonly #links: readonly (Link | undefined)[];

  /** @param links to the members of this rank's host */
  constructor(parts: {
    readonly layout: HostLayout;
    readonly memory: HostMemory;
    readonly activities: Set<HostActivity>;
    readonly key: GroupKey;
    readonly links: readonly (Link | undefined)[];
  }) {
    this.layout = parts.layout;
    this.memory = parts.memory;
    this.activities = parts.activities;
    this.#key = parts.key;
    this.#links = parts.links;
  }

  /** Group ranks of this host. */
  get row(): readonly number[] {
    return ownRow(this.layout);
  }

  /** Wakes the members of this host that sleep until something changes. */
  wake(): void {
    for (const [member, link] of this.#links.entries()) {
      if (link === undefined || !this.memory.takeSleeper(member) || link.isOver) continue;
      link.signal(KIND.wake, { group: this.#key, lane: LANE.collective, seq: 0, slot: 0 });
    }
  }
}
