/**
 * A plan's identity: two plans with the same hash do the same. FNV-1a (Fowler, Noll, Vo) over 64 bits in two lanes with
 * different offsets; for caches and names, not against an adversary. Names, source lines, file tables
 * and ways through a topology do not count.
 */
import type { ExecutionPlan } from "./execution-plan.ts";
import { proofOf } from "./plan-proof.ts";

/** Fields that say nothing of what a plan does, wherever they stand. */
const LEFT_OUT: ReadonlySet<string> = new Set(["source", "tables", "ways"]);

/** 16 hexadecimal digits that depend on everything that a plan does, and on nothing else. Known already of a plan that is right. */
export function hashPlan(plan: ExecutionPlan): string {
  const proof = proofOf(plan);
  if (proof?.ok === true) return proof.hash;
  return hashText(JSON.stringify(sortedFields({ ...plan, name: null, mode: null, sources: null }, new Map())));
}

function hashText(text: string): string {
  let a = 0x811c9dc5;
  let b = 0x9747b28c;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 0x01000193);
    b = Math.imul(b ^ code, 0x01000193) ^ (b >>> 15);
  }
  return (a >>> 0).toString(16).padStart(8, "0") + (b >>> 0).toString(16).padStart(8, "0");
}

/**
 * A value with the fields of its objects in alphabetical order, as a plan that was read from a file may have them in another,
 * and big integers as text. The objects of a plan have few sets of fields: each set is sorted once.
 * @param orders of the fields, by their names as they stand
 */
function sortedFields(value: unknown, orders: Map<string, readonly string[]>): unknown {
  if (typeof value !== "object" || value === null) return typeof value === "bigint" ? value.toString() : value;
  if (Array.isArray(value)) return value.map((one: unknown) => sortedFields(one, orders));
  const names = Object.keys(value);
  const shape = names.join();
  let order = orders.get(shape);
  if (order === undefined) {
    order = names.filter((name) => !LEFT_OUT.has(name)).sort();
    orders.set(shape, order);
  }
  const made: Record<string, unknown> = {};
  for (const name of order) {
    const field = (value as Readonly<Record<string, unknown>>)[name];
    made[name] = typeof field === "object" || typeof field === "bigint" ? sortedFields(field, orders) : field;
  }
  return made;
}
