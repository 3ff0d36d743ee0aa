/**
 * The listening side of the handshake (handshake.ts), for the store and for the doors of ranks and launchers: who does not
 * know the secret costs bounded memory and a bounded time, is told nothing, and reaches nobody.
 */
import type { Socket } from "node:net";
import { FormatError } from "../../core/index.ts";
import { afterRunning } from "../comm/index.ts";
import { Channel, type ChannelKeys, type ChannelListener } from "./channel.ts";
import { checkSecret, isProof, newNonce, PROTOCOL, parseNonce, prove, sessionKeys } from "./handshake.ts";

/** How long a stranger may take to prove itself, ms: longer than any rank does. */
const HANDSHAKE_MS = 10_000;
/** What is kept of strangers for errors. */
const MAX_REFUSALS = 64;

/** What becomes of a peer that knows the secret. `answer` is sent to it, signed. */
export type Admission =
  | { readonly answer: object; readonly refused: string }
  /** @returns who hears the peer from now on; nobody when the channel was let go */
  | { readonly answer: object; readonly enter: (channel: Channel, keys: ChannelKeys) => ChannelListener | undefined };

interface EntranceOptions {
  readonly secret: string;
  /** The kind of a peer's first message, and the field in which it says what it claims. */
  readonly word: { readonly kind: string; readonly field: string };
  /** Connections that have not proved themselves yet; the oldest goes when there are more. */
  readonly maxStrangers: number;
  readonly handshakeMs?: number | undefined;
  /** Judges what a peer that knows the secret claims. @throws FormatError, which ends the connection */
  readonly admit: (claims: string, peer: string) => Admission;
  /** Is told why a connection was refused. */
  readonly onRefused?: ((reason: string) => void) | undefined;
}

export class Entrance {
  readonly #secret: Buffer;
  readonly #options: EntranceOptions;
  /** Ends each of them, with a reason. */
  readonly #strangers = new Set<(reason: string) => void>();
  readonly #refusals: string[] = [];

  /** @throws InvalidArgumentError for a secret that is too short */
  constructor(options: EntranceOptions) {
    this.#secret = checkSecret(options.secret);
    this.#options = options;
  }

  /** Why connections were refused. */
  get refusals(): readonly string[] {
    return this.#refusals;
  }
  /** How many connections have not proved themselves yet. */
  get numStrangers(): number {
    return this.#strangers.size;
  }

  /** Drops all strangers. */
  close(reason: string): void {
    for (const refuse of [...this.#strangers]) refuse(reason);
  }

  /** Takes a connection that has just come. */
  greet(socket: Socket): void {
    const { maxStrangers, handshakeMs = HANDSHAKE_MS } = this.#options;
    const peer = `${socket.remoteAddress ?? "somebody"}:${socket.remotePort ?? 0}`;
    const nonce = newNonce();
    let inside: ChannelListener | undefined;
    const leave = () => {
      timer.cancel();
      return this.#strangers.delete(refuse);
    };
    const refuse = (reason: string) => {
      if (!leave()) return;
      this.note(reason);
      channel.destroy();
    };
    const timer = afterRunning(handshakeMs, () => refuse(`${peer} did not prove itself in time`), true);
    const channel: Channel = new Channel(socket, peer, {
      message: (message) => {
        if (inside !== undefined) inside.message(message);
        else {
          inside = this.#judge(channel, peer, nonce, message);
          leave();
        }
      },
      end: (error) => {
        if (inside !== undefined) inside.end(error);
        else refuse(error?.message ?? `${peer} left before it had proved itself`);
      },
    });
    this.#strangers.add(refuse);
    const [oldest] = this.#strangers;
    if (this.#strangers.size > maxStrangers) oldest?.("a connection that did not prove itself made room for another");
    channel.send({ kind: "hello", protocol: PROTOCOL, nonce });
  }

  /** Keeps why a connection was refused. */
  note(reason: string): void {
    if (this.#refusals.length < MAX_REFUSALS) this.#refusals.push(reason);
    this.#options.onRefused?.(reason);
  }

  /** @throws FormatError, which ends the connection */
  #judge(
    channel: Channel,
    peer: string,
    nonce: string,
    message: Readonly<Record<string, unknown>>,
  ): ChannelListener | undefined {
    const { word, admit } = this.#options;
    const claims = message[word.field];
    if (message["kind"] !== word.kind || typeof claims !== "string") {
      throw new FormatError(peer, "did not begin with a handshake");
    }
    const nonces = { store: nonce, rank: parseNonce(message["nonce"], peer) };
    if (!isProof(message["proof"], prove(this.#secret, "rank", nonces, claims))) {
      this.note(`${peer} does not know the secret`);
      channel.send({ kind: "stranger" });
      channel.close();
      return undefined;
    }
    // From here on the peer is one of ours, though perhaps not of this world.
    const admission = admit(claims, peer);
    const answer = JSON.stringify(admission.answer);
    channel.send({ kind: "answer", answer, proof: prove(this.#secret, "store", nonces, answer) });
    if ("enter" in admission) return admission.enter(channel, sessionKeys(this.#secret, "store", nonces));
    this.note(admission.refused);
    channel.close();
    return undefined;
  }
}
