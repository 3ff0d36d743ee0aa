/**
 * Signatures of frames: an HMAC-SHA-256 over the frame's number and its text, so that no frame can be changed, repeated,
 * left out or moved without notice.
 */
import { createHmac, timingSafeEqual } from "node:crypto";

const MAC_BYTES = 32;

/** A text with its signature behind it. */
export function signed(key: Buffer, number: number, text: Buffer): Buffer {
  return Buffer.concat([text, macOf(key, number, text)]);
}

/** The text of a signed frame; `undefined` when the signature is not right. */
export function verifiedText(key: Buffer, number: number, frame: Buffer): Buffer | undefined {
  const text = frame.subarray(0, Math.max(0, frame.length - MAC_BYTES));
  const mac = frame.subarray(text.length);
  return mac.length === MAC_BYTES && timingSafeEqual(mac, macOf(key, number, text)) ? text : undefined;
}

function macOf(key: Buffer, number: number, text: Buffer): Buffer {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(number));
  return createHmac("sha256", key).update(counter).update(text).digest();
}
