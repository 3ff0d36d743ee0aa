/** Reading the fields of a certificate that came from anywhere: each fault is a sentence that names the place. */
import type { CheckedNetwork } from "./network.ts";
import { Rational } from "./rational.ts";

export class Fault extends Error {}
export const fail = (text: string): never => {
  throw new Fault(text);
};
export const record = (value: unknown, where: string): Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : fail(`${where}: expected an object`);
export const list = (value: unknown, where: string): readonly unknown[] =>
  Array.isArray(value) && value.length <= 4_000_000 ? value : fail(`${where}: expected an array`);
export function fraction(value: unknown, where: string): Rational {
  try {
    if (typeof value === "string" && value.length <= 800) return Rational.parse(value);
  } catch {}
  return fail(`${where}: expected a fraction as text, such as "7/50"`);
}
/** Only what the collective has may stand in a certificate: a field that is not read would be believed by its reader. */
export function onlyFields(value: Record<string, unknown>, allowed: readonly string[], where: string): void {
  for (const name of Object.keys(value)) if (!allowed.includes(name)) fail(`${where}: ${name} does not belong here`);
}

export function nodeOf(net: CheckedNetwork, id: unknown, where: string): number {
  return net.indexOf.get(id as string) ?? fail(`${where}: ${JSON.stringify(id)} is no node of the network`);
}

export function nodeSet(net: CheckedNetwork, value: unknown, where: string): Set<number> {
  const nodes = list(value, where).map((id) => nodeOf(net, id, where));
  const set = new Set(nodes);
  return set.size === nodes.length ? set : fail(`${where}: a node stands twice`);
}
