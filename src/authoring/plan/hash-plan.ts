/**
 * A plan's identity: two plans with the same hash do the same. FNV-1a (Fowler, Noll, Vo) over 64 bits in two lanes with
 * different offsets; for caches and names, not against an adversary. Names, source lines, file tables
 * and ways through a topology do not count.
 */
import type { ExecutionPlan } from "./execution-plan.ts";

/** 16 hexadecimal digits that depend on everything that a plan does, and on nothing else. */
export function hashPlan(plan: ExecutionPlan): string {
  const text = JSON.stringify({ ...plan, name: null, mode: null, sources: null }, (key, value: unknown) => {
    if (typeof value === "bigint") return value.toString();
    if (key === "source" || key === "tables" || key === "ways") return undefined;
    // Fields in alphabetical order: a plan read from a file may have them in another.
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([x], [y]) => (x < y ? -1 : 1)))
      : value;
  });
  let a = 0x811c9dc5;
  let b = 0x9747b28c;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ code, 0x01000193) ^ (b >>> 15);
  }
  return (a >>> 0).toString(16).padStart(8, "0") + (b >>> 0).toString(16).padStart(8, "0");
}
