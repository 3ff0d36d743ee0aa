/** What every bootstrap says of its values and failures, whether it runs over message ports or over sockets. */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Bootstrap } from "../comm/index.ts";

/** Largest value, bytes: ids and addresses are small, data belongs in collectives. */
export const MAX_VALUE_BYTES = 64 * 1024;

/** @throws InvalidArgumentError for a value that is too large */
export function checkValue({ byteLength }: Uint8Array): void {
  if (byteLength <= MAX_VALUE_BYTES) return;
  throw new InvalidArgumentError("value", described(`${byteLength} bytes`), `at most ${MAX_VALUE_BYTES} bytes`);
}

/** What `get` waits for, as text for messages. */
export function describeKey(key: string): string {
  return `bootstrap key ${JSON.stringify(key)}, which no rank has set,`;
}

/** Who ended the world, and how. */
export type WorldFailure = Parameters<Bootstrap["fail"]>[0];
