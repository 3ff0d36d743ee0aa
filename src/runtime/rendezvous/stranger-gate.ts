/**
 * What a connection goes through before its peer has proved that it knows the secret (handshake.ts): who does not know it costs
 * bounded memory and a bounded time, is told nothing, and reaches nobody. Over TLS the thread with the encrypted connections
 * has the gate (tls-worker.ts), and strangers cost the program's thread nothing.
 */
import type { Socket } from "node:net";
import { FormatError } from "../../core/index.ts";
import { afterRunning } from "../comm/index.ts";
import { Channel, type ChannelListener } from "./channel.ts";
import { checkSecret, isProof, type Nonces, newNonce, PROTOCOL, parseNonce, prove } from "./handshake.ts";

/** How long a stranger may take to prove itself, ms, and before that for its TLS handshake: longer than any rank does. */
export const HANDSHAKE_MS = 10_000;

/** Plain data, which can be sent to a thread. */
export interface GateRules {
  readonly secret: string;
  /** The kind of a peer's first message, and the field in which it says what it claims. */
  readonly word: { readonly kind: string; readonly field: string };
  /** Connections that have not proved themselves yet; the oldest goes when there are more. */
  readonly maxStrangers: number;
  readonly handshakeMs?: number | undefined;
}

/** A peer that knows the secret. Plain data too. */
export interface ProvenPeer {
  /** For errors. */
  readonly name: string;
  /** What it says of itself, not read yet. */
  readonly claims: string;
  readonly nonces: Nonces;
}

export interface GateListener {
  /**
   * Takes a peer that has proved itself.
   * @returns who hears it from now on; nobody when the channel was let go
   * @throws FormatError, which ends the connection
   */
  proven(channel: Channel, peer: ProvenPeer): ChannelListener | undefined;
  /** Is told why a connection was refused. */
  refused(reason: string): void;
}

/** The name of a connection's other end. */
export function peerName({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress ?? "somebody"}:${remotePort ?? 0}`;
}

export class StrangerGate {
  readonly #secret: Buffer;
  readonly #rules: GateRules;
  readonly #listener: GateListener;
  /** Ends each of them, with a reason; and its name. */
  readonly #strangers = new Map<(reason: string) => void, string>();

  /** @throws InvalidArgumentError for a secret that is too short */
  constructor(rules: GateRules, listener: GateListener) {
    this.#secret = checkSecret(rules.secret);
    this.#rules = rules;
    this.#listener = listener;
  }

  /** Drops all strangers. */
  close(reason: string): void {
    for (const refuse of [...this.#strangers.keys()]) refuse(reason);
  }

  /** Takes a connection that has just come. It does not keep the process alive until its peer has proved itself. */
  greet(socket: Socket, name = peerName(socket)): void {
    const { maxStrangers, handshakeMs = HANDSHAKE_MS } = this.#rules;
    const nonce = newNonce();
    let inside: ChannelListener | undefined;
    const leave = () => {
      timer.cancel();
      return this.#strangers.delete(refuse);
    };
    const refuse = (reason: string) => {
      if (!leave()) return;
      this.#listener.refused(reason);
      channel.destroy();
    };
    const timer = afterRunning(handshakeMs, () => refuse(`${name} did not prove itself in time`), true);
    const channel: Channel = new Channel(socket, name, {
      message: (message) => {
        if (inside !== undefined) inside.message(message);
        else {
          inside = this.#judge(channel, name, nonce, message);
          leave();
        }
      },
      end: (error) => {
        if (inside !== undefined) inside.end(error);
        else if (error instanceof FormatError) refuse(error.message);
        else refuse(`${name} left before it had proved itself${error === undefined ? "" : `: ${error.message}`}`);
      },
    });
    socket.unref();
    this.#strangers.set(refuse, name);
    const [oldest] = this.#strangers;
    if (this.#strangers.size > maxStrangers && oldest !== undefined) {
      const [refuseOldest, nameOfOldest] = oldest;
      refuseOldest(`${nameOfOldest} had not proved itself yet, and made room for another`);
    }
    channel.send({ kind: "hello", protocol: PROTOCOL, nonce });
  }

  /** @throws FormatError, which ends the connection */
  #judge(
    channel: Channel,
    name: string,
    nonce: string,
    message: Readonly<Record<string, unknown>>,
  ): ChannelListener | undefined {
    const { word } = this.#rules;
    const claims = message[word.field];
    if (message["kind"] !== word.kind || typeof claims !== "string") {
      throw new FormatError(name, "did not begin with a handshake");
    }
    const nonces = { store: nonce, rank: parseNonce(message["nonce"], name) };
    if (!isProof(message["proof"], prove(this.#secret, "rank", nonces, claims))) {
      this.#listener.refused(`${name} does not know the secret`);
      channel.send({ kind: "stranger" });
      channel.close();
      return undefined;
    }
    channel.socket.ref();
    return this.#listener.proven(channel, { name, claims, nonces });
  }
}
