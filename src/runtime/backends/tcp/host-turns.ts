/** The calls of one rank that go on in shared memory, beside its sockets: looked at in every turn. */
import type { HostActivity } from "../../hosts/index.ts";

export class HostTurns {
  readonly activities = new Set<HostActivity>();
  /** How often anything got on. */
  numMoves = 0;

  /** Goes on as far as can be. @returns whether anything got on */
  advance(): boolean {
    let moved = false;
    for (const one of this.activities) if (one.advance()) moved = true;
    if (moved) this.numMoves++;
    return moved;
  }

  /** Before this thread blocks, or does something else: the others are to wake it. @returns how long it may block, ms */
  rest(waitMs: number): number {
    if (this.advance()) return 0;
    if (waitMs === 0 || this.activities.size === 0) return waitMs;
    for (const one of this.activities) one.sleeps(true);
    // What was told before the others could see it.
    return this.advance() ? 0 : waitMs;
  }

  /** This thread looks by itself again. */
  rise(): void {
    for (const one of this.activities) one.sleeps(false);
    this.advance();
  }
}
