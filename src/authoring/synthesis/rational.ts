/** Exact fractions. Bounds and link loads are compared for equality, which floating point cannot do. */
import { InvalidArgumentError } from "../../core/index.ts";

const FORM = /^(-?\d{1,400})(?:\/(\d{1,400})|\.(\d{1,60}))?$/;

/** The greatest common divisor; the first may be negative. */
export function greatestDivisor(a: bigint, b: bigint): bigint {
  let [x, y] = [a < 0n ? -a : a, b];
  while (y !== 0n) [x, y] = [y, x % y];
  return x;
}

/** A fraction in lowest terms; the denominator is positive. */
export class Rational {
  readonly numerator: bigint;
  readonly denominator: bigint;

  static readonly ZERO = new Rational(0n);
  static readonly ONE = new Rational(1n);

  constructor(numerator: bigint, denominator = 1n) {
    if (denominator === 0n) throw new InvalidArgumentError("denominator", 0n, "another number than 0");
    const sign = denominator < 0n ? -1n : 1n;
    const common = greatestDivisor(numerator, denominator * sign) || 1n;
    this.numerator = (sign * numerator) / common;
    this.denominator = (sign * denominator) / common;
  }

  /**
   * Reads `7/50`, `12` or `31.5`.
   * @throws InvalidArgumentError for any other text
   */
  static parse(text: string): Rational {
    const [, whole, below, decimals] = FORM.exec(text) ?? [];
    if (whole === undefined || (below !== undefined && /^0+$/.test(below))) {
      throw new InvalidArgumentError("rational", text, 'a fraction such as "7/50", "12" or "31.5"');
    }
    if (decimals !== undefined) return new Rational(BigInt(whole + decimals), 10n ** BigInt(decimals.length));
    return new Rational(BigInt(whole), below === undefined ? 1n : BigInt(below));
  }

  /**
   * The decimal that prints as the number does, so that 31.5 is 63/2 and 0.1 is 1/10.
   * @throws InvalidArgumentError for NaN and infinities
   */
  static of(value: number | bigint): Rational {
    if (typeof value === "bigint") return new Rational(value);
    if (!Number.isFinite(value)) throw new InvalidArgumentError("value", value, "a finite number");
    const [mantissa = "0", exponent = "0"] = value.toExponential().split("e");
    const scale = 10n ** BigInt(Math.abs(Number(exponent)));
    const base = Rational.parse(mantissa);
    return base.times(Number(exponent) < 0 ? new Rational(1n, scale) : new Rational(scale));
  }

  plus(other: Rational): Rational {
    return new Rational(
      this.numerator * other.denominator + other.numerator * this.denominator,
      this.denominator * other.denominator,
    );
  }

  minus(other: Rational): Rational {
    return this.plus(new Rational(-other.numerator, other.denominator));
  }

  times(other: Rational): Rational {
    return new Rational(this.numerator * other.numerator, this.denominator * other.denominator);
  }

  /** @throws InvalidArgumentError when the other is 0 */
  over(other: Rational): Rational {
    return new Rational(this.numerator * other.denominator, this.denominator * other.numerator);
  }

  /** Negative, 0 or positive, as this is less than, equal to or greater than the other. */
  compare(other: Rational): number {
    const difference = this.numerator * other.denominator - other.numerator * this.denominator;
    return difference < 0n ? -1 : difference > 0n ? 1 : 0;
  }

  equals(other: Rational): boolean {
    return this.compare(other) === 0;
  }

  toNumber(): number {
    // Both may be far beyond doubles: drop the same number of low bits first.
    const bits = Math.max(this.numerator.toString(2).length, this.denominator.toString(2).length);
    const drop = BigInt(Math.max(bits - 1000, 0));
    return Number(this.numerator >> drop) / Number(this.denominator >> drop);
  }

  toString(): string {
    return this.denominator === 1n ? `${this.numerator}` : `${this.numerator}/${this.denominator}`;
  }

  toJSON(): string {
    return this.toString();
  }
}

/** The least common multiple of the denominators: what all the fractions become integers by. */
export function commonDenominator(values: Iterable<Rational>): bigint {
  let common = 1n;
  for (const { denominator } of values) common = (common / greatestDivisor(common, denominator)) * denominator;
  return common;
}
