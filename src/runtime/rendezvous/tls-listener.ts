/**
 * One port of the thread that has a process's encrypted connections (tls-worker.ts). Who connects there has to show a certificate
 * of the authority, then to prove that it knows the secret: until then it costs the program's thread nothing.
 */
import { createServer, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket, type TlsOptions } from "node:tls";
import { afterRunning } from "../comm/index.ts";
import type { Channel } from "./channel.ts";
import { type GateRules, HANDSHAKE_MS, type ProvenPeer, peerName, StrangerGate } from "./stranger-gate.ts";

/** A peer that has said nothing for so long waits for us to speak first: it has no TLS, and is told so, ms. */
const SILENCE_MS = 4_000;
/** Connections that have not shown a certificate yet, unless more may lack the secret; the oldest goes when there are more. */
const MAX_STRANGERS = 256;
/** The first byte of a TLS handshake record. */
const TLS_HANDSHAKE = 0x16;
/** A frame of the rendezvous (channel.ts), which only a peer without TLS can read. */
const PLAIN_HINT = (() => {
  const text = Buffer.from(JSON.stringify({ kind: "tls" }));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, text]);
})();

const LEFT = "left during the TLS handshake, or shows a certificate that is refused: expired, or of another authority";

interface PortOptions {
  readonly host: string;
  readonly port: number;
  readonly rules: GateRules;
  readonly tls: TlsOptions;
}

interface PortListener {
  listening(port: number): void;
  failed(error: NodeJS.ErrnoException): void;
  /** Takes a connection whose peer has proved itself. What it sent beyond that is still to be read. */
  proven(stream: TLSSocket, peer: ProvenPeer): void;
  refused(reason: string): void;
}

interface Stranger {
  readonly socket: Socket;
  readonly name: string;
}

/** What no two connections to a port have in common. */
function pathOf({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}

/** Listens. @returns ends that, and drops those that have not proved themselves */
export function listenSecurely({ host, port, rules, tls }: PortOptions, listener: PortListener): () => void {
  const strangers = new Map<string, Stranger>();
  const maxStrangers = Math.max(MAX_STRANGERS, rules.maxStrangers);
  const gate = new StrangerGate(rules, {
    proven(channel: Channel, peer) {
      const stream = channel.socket as TLSSocket;
      const rest = channel.release();
      if (rest.length > 0) stream.unshift(rest);
      listener.proven(stream, peer);
      return undefined;
    },
    refused: listener.refused,
  });
  /** Ends one, if it is not over yet. */
  const refuse = (path: string, stranger: Stranger | undefined, why: string) => {
    if (stranger === undefined || strangers.get(path) !== stranger) return;
    strangers.delete(path);
    listener.refused(`${stranger.name} ${why}`);
    stranger.socket.destroy();
  };

  const secure = createTlsServer({ ...tls, requestCert: true, handshakeTimeout: HANDSHAKE_MS }, (stream) => {
    stream.on("error", () => {});
    const path = pathOf(stream);
    const stranger = strangers.get(path);
    // Where it has left its socket is about to close.
    if (stranger === undefined) stream.destroy();
    else {
      strangers.delete(path);
      gate.greet(stream, stranger.name);
    }
  });
  secure.on("tlsClientError", (error: NodeJS.ErrnoException, stream) => {
    const path = pathOf(stream);
    refuse(path, strangers.get(path), describeTlsError(error));
    stream.destroy();
  });
  // Who ends its side before it has proved itself is done with: a handshake is not waited for any more.
  const server = createServer({ allowHalfOpen: false, noDelay: true }, (socket) => {
    const path = pathOf(socket);
    const stranger: Stranger = { socket, name: peerName(socket) };
    // One that left from the same port, but has not closed here yet.
    refuse(path, strangers.get(path), LEFT);
    strangers.set(path, stranger);
    const [oldest] = strangers;
    if (strangers.size > maxStrangers && oldest !== undefined)
      refuse(...oldest, "had not shown a certificate yet, and made room for another");
    const silent = afterRunning(SILENCE_MS, () => {
      listener.refused(`${stranger.name} said nothing: it uses no TLS, or is not a peer`);
      strangers.delete(path);
      socket.end(PLAIN_HINT, () => socket.destroySoon());
    });
    socket.on("error", () => {});
    socket.once("close", () => {
      silent.cancel();
      refuse(path, stranger, LEFT);
    });
    socket.once("readable", () => {
      silent.cancel();
      const first = socket.read() as Buffer | null;
      if (first === null) socket.destroy();
      else if (first[0] !== TLS_HANDSHAKE) refuse(path, stranger, "uses no TLS, or is not a peer");
      else {
        socket.unshift(first);
        secure.emit("connection", socket);
      }
    });
  });
  server.once("error", listener.failed);
  server.listen({ host, port }, () => {
    server.off("error", listener.failed).on("error", () => {});
    const address = server.address();
    listener.listening(typeof address === "object" && address !== null ? address.port : 0);
  });
  return () => {
    server.close();
    for (const { socket } of strangers.values()) socket.destroy();
    gate.close("its listener has closed");
  };
}

/** What the errors of OpenSSL and of Node mean to somebody who wants two processes to meet. */
export function describeTlsError(error: NodeJS.ErrnoException): string {
  const { code = "" } = error;
  // OpenSSL's own text tells of its source files.
  const message = /^ERR_SSL|:error:/.test(`${code}${error.message}`) ? "its signature is wrong" : error.message;
  if (/WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST|BAD_RECORD_TYPE|UNEXPECTED_MESSAGE/.test(code)) {
    return "uses no TLS, or is not a peer";
  }
  if (code === "ECONNRESET") return LEFT;
  if (code === "ERR_TLS_HANDSHAKE_TIMEOUT") return `did not end the TLS handshake within ${HANDSHAKE_MS / 1000} s`;
  if (/PEER_DID_NOT_RETURN_A_CERTIFICATE/.test(code)) return "shows no certificate";
  if (/ALERT/.test(code)) return `refuses this side's certificate (${code})`;
  return `shows a certificate that is refused: ${message} (${code})`;
}
