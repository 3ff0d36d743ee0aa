/**
 * The checksum of frames (option `checksum`): CRC-32 (that of zlib and Ethernet, RFC 1952), which finds damage, and no intention.
 * Two words follow each head: the sum of the payload, and the sum of the head with that word. So a head is verified before its
 * length is believed, and a payload before anybody hears that it is there.
 */
import { crc32 } from "node:zlib";
import { FormatError } from "../../../core/index.ts";
import { describeWords } from "../../comm/index.ts";
import { HEAD_BYTES, type Head, KIND, nameOfKind } from "./frame.ts";

/** What follows the head of each frame in a world with checksums. */
export const SUMS_BYTES = 8;
/** A head with its sums. */
export const SUMMED_HEAD_BYTES = HEAD_BYTES + SUMS_BYTES;
/** Where the sums are, in words. */
const PAYLOAD_SUM = HEAD_BYTES / 4;
const HEAD_SUM = PAYLOAD_SUM + 1;

/** Writes the sums of the frame whose head is at byte `at`. `words` are those of `bytes`. */
export function sealHead(bytes: Uint8Array, words: Int32Array, at: number, payload: Uint8Array | undefined): void {
  words[at / 4 + PAYLOAD_SUM] = payload === undefined ? 0 : crc32(payload);
  words[at / 4 + HEAD_SUM] = crc32(bytes.subarray(at, at + 4 * HEAD_SUM));
}

const hex = (sum: number) => `0x${(sum >>> 0).toString(16).padStart(8, "0")}`;
const CAUSES = "Memory, a network card or the way between the hosts damages data";

/**
 * Verifies a head with its sums.
 * @param peer who sent it, for errors
 * @param nth number of the frame among those of its connection
 * @returns the sum that its payload is to have
 * @throws FormatError
 */
export function verifyHead(bytes: Uint8Array, words: Int32Array, peer: string, nth: number): number {
  const sum = crc32(bytes.subarray(0, 4 * HEAD_SUM));
  const said = (words[HEAD_SUM] ?? 0) >>> 0;
  if (sum !== said) {
    const what = `its head (${SUMMED_HEAD_BYTES} bytes) has the sum ${hex(sum)} and says ${hex(said)}`;
    throw new FormatError(peer, `sent frame ${nth} of this connection with a wrong checksum: ${what}. ${CAUSES}.`);
  }
  return (words[PAYLOAD_SUM] ?? 0) >>> 0;
}

/** Goes on with the sum of a payload, part by part, from 0. */
export const addToSum = (part: Uint8Array, sum: number): number => crc32(part, sum);

/** Verifies the sum of a whole payload. @throws FormatError */
export function verifyPayload(head: Head, sum: number, said: number, peer: string, nth: number): void {
  if (sum === said) return;
  const what = `its ${head.bytes} bytes, ${partOf(head)}, have the sum ${hex(sum)}, and its head says ${hex(said)}`;
  throw new FormatError(
    peer,
    `sent frame ${nth} of this connection with a wrong checksum: ${what}. ${CAUSES}, or the program wrote into a buffer during its call.`,
  );
}

/** What a payload is a part of. */
function partOf({ kind, seq, print, offset, bytes, total }: Head): string {
  if (kind === KIND.control) return "of a control frame";
  const place = kind === KIND.put ? `for byte ${offset}` : `${offset} to ${offset + bytes} of ${total}`;
  return `${nameOfKind(kind)} ${place} of ${describeWords(print.call, print.count)} #${seq}`;
}
