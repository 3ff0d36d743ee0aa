/** Solves linear equations in fractions: the exact vertex of a program whose solver told which constraints bind. */
import type { Rational } from "./rational.ts";

/**
 * Gaussian elimination; rows may be more than unknowns when they agree.
 * @param rows coefficients, with the right side last
 * @returns the unknowns, or undefined when the equations contradict each other or leave some unknown free
 */
export function solveExactly(rows: readonly (readonly Rational[])[], numUnknowns: number): Rational[] | undefined {
  const left = rows.map((row) => [...row]);
  const done: Rational[][] = [];
  for (let column = 0; column < numUnknowns; column++) {
    const at = left.findIndex((row) => (row[column] as Rational).numerator !== 0n);
    if (at === -1) return undefined;
    const [found] = left.splice(at, 1) as [Rational[]];
    const pivot = found.map((value) => value.over(found[column] as Rational));
    for (const row of [...left, ...done]) {
      const factor = row[column] as Rational;
      if (factor.numerator === 0n) continue;
      for (let i = column; i <= numUnknowns; i++) {
        row[i] = (row[i] as Rational).minus(factor.times(pivot[i] as Rational));
      }
    }
    done.push(pivot);
  }
  if (left.some((row) => (row[numUnknowns] as Rational).numerator !== 0n)) return undefined;
  return done.map((row) => row[numUnknowns] as Rational);
}
