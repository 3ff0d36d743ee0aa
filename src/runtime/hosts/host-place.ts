/** What a group has once its members know who shares a host: their layout, their memory, and how many pieces went through. */
import { type HostLayout, ownRow } from "./host-layout.ts";
import type { HostMemory } from "./host-memory.ts";

/** What the rank does inside its host, beside its messages, as those who look at it see it. */
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
  /** Wakes the members of this host that sleep until something changes. */
  readonly wake: () => void;
  /** Pieces of the calls before. */
  numPieces = 0;

  constructor(parts: {
    readonly layout: HostLayout;
    readonly memory: HostMemory;
    readonly activities: Set<HostActivity>;
    readonly wake?: () => void;
  }) {
    this.layout = parts.layout;
    this.memory = parts.memory;
    this.activities = parts.activities;
    this.wake = parts.wake ?? (() => {});
  }

  /** Group ranks of this host. */
  get row(): readonly number[] {
    return ownRow(this.layout);
  }
}
