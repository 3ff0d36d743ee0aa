/** Keeps an inventory for a while, so that asking often costs nothing. Invalidation is explicit. */
import type { Inventory } from "../topology/index.ts";
import { type DetectOptions, detect } from "./detect.ts";

export interface CachedDetector {
  /** The inventory, detected anew when the last one is older than the time to live. Callers at once share one detection. */
  get(): Promise<Inventory>;
  /** Forgets; the next `get` detects, also when a detection is under way. */
  invalidate(): void;
  /** Milliseconds since the kept inventory was detected; undefined when none is kept. */
  age(): number | undefined;
}

/**
 * Makes a detector that keeps its answer for `ttlMs` milliseconds.
 * @example
 * import { cachedDetector } from "chorale/hardware";
 * const hardware = cachedDetector(60_000, { exec: false });
 * (await hardware.get()) === (await hardware.get()) // true
 */
export function cachedDetector(ttlMs: number, options: DetectOptions = {}): CachedDetector {
  let kept: { readonly at: number; readonly inventory: Promise<Inventory> } | undefined;
  return {
    get: () => {
      if (kept === undefined || performance.now() - kept.at >= ttlMs) {
        const inventory = detect(options);
        const entry = { at: performance.now(), inventory };
        kept = entry;
        // A detection that failed must not be kept.
        inventory.catch(() => {
          if (kept === entry) kept = undefined;
        });
      }
      return kept.inventory;
    },
    invalidate: () => {
      kept = undefined;
    },
    age: () => (kept === undefined ? undefined : performance.now() - kept.at),
  };
}
