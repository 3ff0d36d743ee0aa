/** Fractions as pairs of integers: two are compared by cross-multiplying, several get one denominator. */
import { FormatError } from "../../core/index.ts";

/** Above and below the line, not always in lowest terms; the lower one is positive. */
export type Fraction = readonly [above: bigint, below: bigint];

/** Denominators of hostile files have no small common one, and sums over it would take hours. */
const LARGEST_DENOMINATOR = 10n ** 4000n;

function gcd(a: bigint, b: bigint): bigint {
  let [x, y] = [a, b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
}
export const isLess = ([a, b]: Fraction, [c, d]: Fraction): boolean => a * d < c * b;
export const isEqual = ([a, b]: Fraction, [c, d]: Fraction): boolean => a * d === c * b;
export const sumOf = (values: readonly bigint[]): bigint => values.reduce((sum, value) => sum + value, 0n);

export function textOf([above, below]: Fraction): string {
  const common = gcd(above, below);
  return below === common ? `${above / common}` : `${above / common}/${below / common}`;
}

/** Reads "7/50", "12" or "31.5", of which the schema has seen that it is one of them. */
export function fractionOf(text: string): Fraction {
  const [whole = "", decimals] = text.split(".");
  if (decimals !== undefined) return [BigInt(whole + decimals), 10n ** BigInt(decimals.length)];
  const [above = "", below = "1"] = text.split("/");
  return [BigInt(above), BigInt(below)];
}

/** The same fractions as integers over their least common denominator. */
export function overOneDenominator(texts: readonly string[]): { readonly values: bigint[]; readonly below: bigint } {
  const fractions = texts.map(fractionOf);
  let common = 1n;
  for (const [, below] of fractions) {
    if (common % below !== 0n) common *= below / gcd(common, below);
    if (common > LARGEST_DENOMINATOR) throw new FormatError("fractions", "their common denominator is too long");
  }
  return { values: fractions.map(([above, below]) => above * (common / below)), below: common };
}
