/**
 * X.509 certificates made at test time, with node:crypto alone: an authority, and certificates that it signs. Ed25519, in DER by
 * hand (X.690, RFC 5280, RFC 8410): no openssl is needed, and nothing secret is kept in the repository.
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const { length } = body;
  if (length < 128) return Buffer.concat([Buffer.from([tag, length]), body]);
  const digits = length < 256 ? [length] : [length >>> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, 0x80 | digits.length, ...digits]), body]);
}
const sequence = (...parts: readonly Uint8Array[]) => der(0x30, ...parts);
const oid = (...bytes: readonly number[]) => der(0x06, Buffer.from(bytes));
const ED25519 = sequence(oid(0x2b, 0x65, 0x70));
const COMMON_NAME = oid(0x55, 0x04, 0x03);
const name = (text: string) => sequence(der(0x31, sequence(COMMON_NAME, der(0x0c, Buffer.from(text)))));
/** GeneralizedTime: 20260101000000Z. */
const time = (at: Date) => der(0x18, Buffer.from(`${at.toISOString().replace(/[-:T]|\.\d+/g, "")}`));
/** Basic constraints: an authority, critical. */
const IS_CA = der(
  0xa3,
  sequence(
    sequence(
      oid(0x55, 0x1d, 0x13),
      der(0x01, Buffer.from([0xff])),
      der(0x04, sequence(der(0x01, Buffer.from([0xff])))),
    ),
  ),
);

const pem = (what: string, bytes: Uint8Array) => {
  const lines = Buffer.from(bytes).toString("base64").replace(/.{64}/g, "$&\n").trim();
  return `-----BEGIN ${what}-----\n${lines}\n-----END ${what}-----\n`;
};

export interface Made {
  readonly cert: string;
  readonly key: string;
}

const DAY_MS = 86_400_000;

export class Authority {
  readonly cert: string;
  readonly #name: string;
  readonly #key: KeyObject;

  constructor(text = "chorale test authority") {
    this.#name = text;
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    this.#key = privateKey;
    this.cert = this.#sign(text, publicKey, IS_CA);
  }

  /** Makes a key, and a certificate of it. @param fromDays, toDays when it is valid, from now */
  issue(subject = "host", fromDays = -1, toDays = 1): Made {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const cert = this.#sign(subject, publicKey, undefined, fromDays, toDays);
    return { cert, key: privateKey.export({ type: "pkcs8", format: "pem" }) as string };
  }

  #sign(subject: string, key: KeyObject, extensions?: Uint8Array, fromDays = -1, toDays = 1): string {
    const serial = randomBytes(8);
    serial[0] = 1;
    const at = (days: number) => time(new Date(Date.now() + days * DAY_MS));
    const body = sequence(
      der(0xa0, der(0x02, Buffer.from([2]))),
      der(0x02, serial),
      ED25519,
      name(this.#name),
      sequence(at(fromDays), at(toDays)),
      name(subject),
      key.export({ type: "spki", format: "der" }),
      ...(extensions === undefined ? [] : [extensions]),
    );
    const signature = sign(null, body, this.#key);
    return pem("CERTIFICATE", sequence(body, ED25519, der(0x03, Buffer.from([0]), signature)));
  }
}

/** Writes the files that a host needs. @returns their paths, as `launch({ tls })` takes them */
export function writeTls(folder: string, authority: Authority, { cert, key } = authority.issue()) {
  const files = { ca: join(folder, "ca.pem"), cert: join(folder, "cert.pem"), key: join(folder, "key.pem") };
  writeFileSync(files.ca, authority.cert);
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key, { mode: 0o600 });
  return files;
}
