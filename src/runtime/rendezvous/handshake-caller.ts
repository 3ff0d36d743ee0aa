/** The calling side of the handshake (handshake.ts), for ranks and launchers: handshake-listener.ts is the other one. */
import type { Socket } from "node:net";
import { FormatError } from "../../core/index.ts";
import { afterRunning } from "../comm/index.ts";
import { Channel, type ChannelKeys, type ChannelListener } from "./channel.ts";
import { isProof, newNonce, PROTOCOL, parseNonce, prove, sessionKeys } from "./handshake.ts";
import { refusePlain } from "./tls-identity.ts";

type Message = Readonly<Record<string, unknown>>;

interface HandshakeCall<T> {
  readonly secret: Buffer;
  /** Of the other end, for errors. */
  readonly peer: string;
  /** The kind of this end's first message, and the field in which it says what it claims. */
  readonly word: { readonly kind: string; readonly field: string };
  readonly claims: string;
  readonly timeoutMs: number;
  readonly problems: {
    /** The other end does not begin as one that speaks this protocol. */
    readonly unknown: (hello: Message) => string;
    /** It cannot prove that it knows the secret. */
    readonly unproven: string;
    /** It says that this end does not know its secret. */
    readonly stranger: () => Error;
    readonly late: () => Error;
  };
  /**
   * Both ends have proved themselves.
   * @returns what the handshake gives, and who hears the other end from now on; nobody when the channel was let go
   * @throws what the other end's answer says
   */
  readonly enter: (channel: Channel, keys: ChannelKeys, answer: Message) => HandshakeEnd<T>;
}

interface HandshakeEnd<T> {
  readonly value: T | Promise<T>;
  readonly inside?: ChannelListener;
}

/** Proves itself to who listens there. @throws FormatError when that is none of ours, and what `problems` and `enter` say */
export function callIn<T>(socket: Socket, call: HandshakeCall<T>): Promise<T> {
  const { secret, peer, word, claims, problems } = call;
  return new Promise((resolve, reject) => {
    const own = newNonce();
    let nonces: { readonly store: string; readonly rank: string } | undefined;
    let inside: ChannelListener | undefined;
    const stop = (error: Error) => {
      timer.cancel();
      channel.destroy();
      reject(error);
    };
    const timer = afterRunning(call.timeoutMs, () => stop(problems.late()));
    const begin = (hello: Message) => {
      refusePlain(hello, peer);
      if (hello["kind"] !== "hello" || hello["protocol"] !== PROTOCOL)
        throw new FormatError(peer, problems.unknown(hello));
      nonces = { store: parseNonce(hello["nonce"], peer), rank: own };
      const proof = prove(secret, "rank", nonces, claims);
      channel.send({ kind: word.kind, nonce: own, [word.field]: claims, proof });
      return nonces;
    };
    const channel: Channel = new Channel(socket, peer, {
      message: (message) => {
        if (inside !== undefined) return inside.message(message);
        if (nonces === undefined) return void begin(message);
        if (message["kind"] === "stranger") throw problems.stranger();
        const { answer, proof } = message;
        if (typeof answer !== "string" || !isProof(proof, prove(secret, "store", nonces, answer)))
          throw new FormatError(peer, problems.unproven);
        const end = call.enter(channel, sessionKeys(secret, "rank", nonces), JSON.parse(answer) as Message);
        timer.cancel();
        inside = end.inside;
        resolve(end.value);
      },
      end: (error) => {
        if (inside !== undefined) inside.end(error);
        else stop(error ?? new FormatError(peer, "closed the connection during the handshake"));
      },
    });
  });
}
