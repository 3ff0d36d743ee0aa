/**
 * Statistics of a communicator. Counting is exact; a clock read costs as much as a small collective, so fast calls are
 * timed one in `SAMPLE_EVERY` and the total is scaled up.
 */

import { WIRE_OPS } from "./call-fingerprint.ts";
import type { OperationStats } from "./contract.ts";

/** A power of two: the fast path masks with it. */
export const SAMPLE_EVERY = 64;

/** Counters of one operation. Plain numbers: the fast path adds to them. */
export class OpCounter {
  calls = 0;
  failures = 0;
  bytes = 0;
  timedCalls = 0;
  timedUs = 0;
  maxUs = 0;

  /** Whether the next call is timed: of so many one, and first the sixteenth, as the first calls are slower than the rest. */
  get isTimed(): boolean {
    return (this.calls & (SAMPLE_EVERY - 1)) === 15;
  }

  time(us: number): void {
    this.timedCalls++;
    this.timedUs += us;
    if (us > this.maxUs) this.maxUs = us;
  }
}

export class OpCounters {
  readonly byCode: readonly OpCounter[] = WIRE_OPS.map(() => new OpCounter());

  /** The operations that were called, by name. */
  snapshot(): Record<string, OperationStats> {
    return Object.fromEntries(
      WIRE_OPS.flatMap((op, code) => {
        const c = this.byCode[code] as OpCounter;
        if (c.calls === 0 && c.failures === 0) return [];
        const totalUs = c.timedCalls === 0 ? 0 : (c.timedUs / c.timedCalls) * c.calls;
        return [[op, { calls: c.calls, failures: c.failures, bytes: c.bytes, totalUs, maxUs: c.maxUs }]];
      }),
    );
  }
}
