/** From the floating point of a solver to exact integers: vertices of small programs have small denominators. */

import { commonDenominator, type Rational } from "./rational.ts";

/** The largest common denominator that is tried. */
const MAX_DENOMINATOR = 20_000;

/**
 * Finds the least q such that every value times q is an integer up to the solver's error, and those integers. Undefined
 * when there is none: the values are then no solution that anybody could check exactly.
 */
export function commonIntegers(
  values: ArrayLike<number>,
  tolerance = 1e-6,
): { readonly q: number; readonly integers: number[] } | undefined {
  // Values repeat: each distinct one is tried once.
  const distinct = [...new Set(Array.from(values, (value) => Math.round(value * 1e9) / 1e9))];
  for (let q = 1; q <= MAX_DENOMINATOR; q++) {
    if (distinct.every((value) => Math.abs(value * q - Math.round(value * q)) <= tolerance * Math.sqrt(q))) {
      return { q, integers: Array.from(values, (value) => Math.round(value * q)) };
    }
  }
  return undefined;
}

/** Integers in the ratio of fractions. */
export function commonIntegerWeights(fractions: readonly Rational[]): number[] {
  const common = commonDenominator(fractions);
  return fractions.map(({ numerator, denominator }) => Number(numerator * (common / denominator)));
}
