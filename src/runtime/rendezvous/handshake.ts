/**
 * How a rank and the store prove to each other that they know the secret, without sending it: each draws a nonce, and
 * each sends an HMAC-SHA256 of both nonces, of its role and of what it claims (the scheme of RFC 2195 made mutual, as in
 * ISO/IEC 9798-4). A recorded exchange is worth nothing: the other side's nonce is new each time.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { ChannelKeys } from "./channel.ts";

/** Number of the exchange's form; both sides must speak the same. */
export const PROTOCOL = 1;
const NONCE_BYTES = 32;
/** Shorter secrets can be guessed. */
export const MIN_SECRET_CHARS = 16;

/** What a rank says of itself; the store compares it with its own. */
export interface Claims {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  /** Of chorale. */
  readonly version: string;
  /** Engine and version, `NCCL 2.28.3`. */
  readonly engine: string;
  /** Names the machine: ranks of one store share memory. */
  readonly host: string;
  readonly pid: number;
}

/** Checks a secret. @throws InvalidArgumentError that does not show it */
export function checkSecret(secret: string): Buffer {
  if (secret.length < MIN_SECRET_CHARS) {
    throw new InvalidArgumentError(
      "CHORALE_SECRET",
      described(`of ${secret.length} characters`),
      `${MIN_SECRET_CHARS} at least`,
    );
  }
  return Buffer.from(secret, "utf8");
}

export function newNonce(): string {
  return randomBytes(NONCE_BYTES).toString("hex");
}

/** Reads a nonce that came over the wire. @throws FormatError */
export function parseNonce(value: unknown, peer: string): string {
  if (typeof value !== "string" || !/^[0-9a-f]{64}$/.test(value)) throw new FormatError(peer, "sent no nonce");
  return value;
}

export interface Nonces {
  readonly store: string;
  readonly rank: string;
}

/** The proof of one side: `text` is what it claims or answers. */
export function prove(secret: Buffer, role: "store" | "rank", nonces: Nonces, text: string): string {
  return derive(secret, `proof of the ${role}`, nonces, text).toString("hex");
}

/** Compares in constant time. */
export function isProof(given: unknown, expected: string): boolean {
  if (typeof given !== "string" || given.length !== expected.length) return false;
  return timingSafeEqual(Buffer.from(given, "latin1"), Buffer.from(expected, "latin1"));
}

/** The keys of the frames that follow. */
export function sessionKeys(secret: Buffer, side: "store" | "rank", nonces: Nonces): ChannelKeys {
  const fromStore = derive(secret, "frames of the store", nonces, "");
  const fromRank = derive(secret, "frames of the rank", nonces, "");
  return side === "store" ? { send: fromStore, receive: fromRank } : { send: fromRank, receive: fromStore };
}

function derive(secret: Buffer, purpose: string, nonces: Nonces, text: string): Buffer {
  const parts = [`chorale rendezvous ${PROTOCOL}`, purpose, nonces.store, nonces.rank, text];
  return createHmac("sha256", secret).update(parts.join("\n")).digest();
}

/** Says who claims what, for errors. */
export function describeClaims(claims: Claims): string {
  const { worldSize, generation, version, engine, host, pid } = claims;
  return `process ${pid} on ${host}: chorale ${version}, ${engine}, ${worldSize} ranks, generation ${generation}`;
}

/** Reads claims. @throws FormatError */
export function parseClaims(text: string, peer: string): Claims {
  const refuse = (): never => {
    throw new FormatError(peer, "sent claims that cannot be read");
  };
  let value: Partial<Record<keyof Claims, unknown>>;
  try {
    value = JSON.parse(text) as typeof value;
  } catch {
    return refuse();
  }
  if (typeof value !== "object" || value === null) return refuse();
  const count = (key: keyof Claims) => {
    const number = value[key];
    return typeof number === "number" && Number.isSafeInteger(number) && number >= 0 ? number : refuse();
  };
  const word = (key: keyof Claims) => {
    const text = value[key];
    return typeof text === "string" && text.length <= 200 ? text : refuse();
  };
  return {
    rank: count("rank"),
    worldSize: count("worldSize"),
    generation: count("generation"),
    version: word("version"),
    engine: word("engine"),
    host: word("host"),
    pid: count("pid"),
  };
}

/** Says which of two ranks' claims should agree and do not; empty when all agree. */
export function differences(ours: Claims, theirs: Claims, spansHosts = false): readonly string[] {
  const keys = ["version", "engine", "worldSize", "generation", "host"] as const;
  const names = {
    version: "version of chorale",
    engine: "engine",
    worldSize: "number of ranks",
    generation: "generation",
    host: "host",
  };
  const compared = keys.filter((key) => key !== "host" || !spansHosts);
  return compared.filter((key) => ours[key] !== theirs[key]).map((key) => names[key]);
}
