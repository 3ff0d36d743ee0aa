/**
 * Brands: numbers that were checked once. A `Rank` is an integer in [0, worldSize), `Bytes` a count of bytes that fits
 * a JavaScript number exactly.
 */
import { InvalidArgumentError } from "./errors.ts";

declare const brand: unique symbol;
type Brand<T, B extends string> = T & { readonly [brand]: B };

export type Rank = Brand<number, "Rank">;
export type Bytes = Brand<number, "Bytes">;
/** An address in a device's memory. Addresses need all 64 bits, hence bigint. */
export type DevicePtr = Brand<bigint, "DevicePtr">;

/**
 * Checks that `value` is a rank of a world of `worldSize` ranks.
 * @throws InvalidArgumentError when it is not an integer in [0, worldSize)
 */
export function rank(value: number, worldSize: number, argument = "rank"): Rank {
  if (!Number.isInteger(value) || value < 0 || value >= worldSize) {
    throw new InvalidArgumentError(argument, value, `an integer from 0 to ${worldSize - 1}`);
  }
  return value as Rank;
}

/**
 * Checks that `value` is a count of bytes.
 * @throws InvalidArgumentError when it is not an integer in [0, 2^53)
 */
export function bytes(value: number, argument = "bytes"): Bytes {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new InvalidArgumentError(argument, value, "an integer number of bytes, 0 or more");
  }
  return value as Bytes;
}
