/** Sizes for people. `K M G T` are 1024-based, as nccl-tests and the command line have them; GB/s is 1e9 bytes a second. */
import { type Bytes, bytes } from "./brands.ts";
import { InvalidArgumentError } from "./errors.ts";

const SUFFIXES = ["", "K", "M", "G", "T", "P"] as const;

/**
 * Reads a size such as `512`, `4K`, `1.5G` or `16MiB` (1024-based), in bytes.
 * @throws InvalidArgumentError for anything else, and for a size that is not a whole number of bytes
 * @example
 * parseSize("4K") // 4096
 */
export function parseSize(text: string, argument = "size"): Bytes {
  const match = /^(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:iB|B)?$/i.exec(String(text).trim());
  if (match === null) {
    throw new InvalidArgumentError(argument, text, "a size such as 512, 4K, 1.5M or 2G (K, M, G are 1024-based)");
  }
  const scale = 1024 ** SUFFIXES.indexOf((match[2] ?? "").toUpperCase() as (typeof SUFFIXES)[number]);
  const sizeBytes = Number(match[1]) * scale;
  if (sizeBytes > Number.MAX_SAFE_INTEGER) throw new InvalidArgumentError(argument, text, "a size below 8P");
  return bytes(sizeBytes, argument);
}

/**
 * Writes a size with the largest suffix that leaves at least 1, three significant digits.
 * @example
 * formatSize(1536) // "1.5 KiB"
 */
export function formatSize(sizeBytes: number): string {
  let value = sizeBytes;
  let index = 0;
  while (Math.abs(value) >= 1024 && index < SUFFIXES.length - 1) {
    value /= 1024;
    index++;
  }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${Number(value.toFixed(digits))} ${index === 0 ? "B" : `${SUFFIXES[index]}iB`}`;
}
