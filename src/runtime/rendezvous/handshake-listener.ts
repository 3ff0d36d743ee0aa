/**
 * The listening side of the handshake (handshake.ts), for the store and for the doors of ranks and launchers: strangers have to
 * pass a gate first (stranger-gate.ts).
 */
import { type Channel, type ChannelKeys, type ChannelListener, LISTEN_ERRORS } from "./channel.ts";
import { checkSecret, prove, sessionKeys } from "./handshake.ts";
import type { Address, Listening } from "./socket-transport-contract.ts";
import { transportFor } from "./socket-transports.ts";
import type { GateListener, GateRules, ProvenPeer } from "./stranger-gate.ts";
import type { TlsIdentity } from "./tls-identity.ts";

/** What is kept of strangers for errors. */
const MAX_REFUSALS = 64;

/** What becomes of a peer that knows the secret. `answer` is sent to it, signed. */
export type Admission =
  | { readonly answer: object; readonly refused: string }
  /** @returns who hears the peer from now on; nobody when the channel was let go */
  | { readonly answer: object; readonly enter: (channel: Channel, keys: ChannelKeys) => ChannelListener | undefined };

interface EntranceOptions extends GateRules {
  /** Judges what a peer that knows the secret claims. @throws FormatError, which ends the connection */
  readonly admit: (claims: string, peer: string) => Admission;
  /** Is told why a connection was refused. */
  readonly onRefused?: ((reason: string) => void) | undefined;
}

export class Entrance implements GateListener {
  readonly #secret: Buffer;
  readonly #options: EntranceOptions;
  readonly #refusals: string[] = [];
  #listening: Listening | undefined;

  /** @throws InvalidArgumentError for a secret that is too short */
  constructor(options: EntranceOptions) {
    this.#secret = checkSecret(options.secret);
    this.#options = options;
  }

  /** The port that is listened on. */
  get port(): number {
    return this.#listening?.port ?? 0;
  }
  /** Why connections were refused. */
  get refusals(): readonly string[] {
    return this.#refusals;
  }

  /** Listens. @param unavailable makes the error of an address that cannot be listened on, of the reason */
  async open(at: Address, tls: TlsIdentity | undefined, unavailable: (why: string) => Error): Promise<void> {
    const { secret, word, maxStrangers, handshakeMs } = this.#options;
    try {
      this.#listening = await transportFor(tls).listen(at, { secret, word, maxStrangers, handshakeMs }, this);
    } catch (error) {
      const { code = "", message } = error as NodeJS.ErrnoException;
      throw unavailable(LISTEN_ERRORS[code] ?? message);
    }
  }

  /** Listens no more, and drops strangers. */
  close(reason: string): void {
    this.#listening?.close(reason);
  }

  proven(channel: Channel, { name, claims, nonces }: ProvenPeer): ChannelListener | undefined {
    // The peer is one of ours, though perhaps not of this world.
    const admission = this.#options.admit(claims, name);
    const answer = JSON.stringify(admission.answer);
    channel.send({ kind: "answer", answer, proof: prove(this.#secret, "store", nonces, answer) });
    if ("enter" in admission) return admission.enter(channel, sessionKeys(this.#secret, "store", nonces));
    this.refused(admission.refused);
    channel.close();
    return undefined;
  }

  /** Keeps why a connection was refused. */
  refused(reason: string): void {
    if (this.#refusals.length < MAX_REFUSALS) this.#refusals.push(reason);
    this.#options.onRefused?.(reason);
  }
}
