/** The thread that has a process's encrypted connections (tls-tunnel.ts). It loads nothing but Node's own modules. */
import { createServer, Socket } from "node:net";
import { connect, createSecureContext, createServer as createTlsServer, type TLSSocket } from "node:tls";
import { type MessagePort, parentPort, workerData } from "node:worker_threads";

/** `id` names a request; of `pair` and `drop` a connection. */
export type ToTunnel =
  | { readonly kind: "listen"; readonly id: number; readonly host: string; readonly port: number }
  | { readonly kind: "close"; readonly id: number }
  | {
      readonly kind: "connect";
      readonly id: number;
      readonly host: string;
      readonly port: number;
      readonly timeoutMs: number;
    }
  | { readonly kind: "pair"; readonly id: number; readonly fd: number }
  | { readonly kind: "drop"; readonly id: number };

/** `id` names the request, or the listener. */
export type FromTunnel =
  | { readonly kind: "listening"; readonly id: number; readonly port: number }
  | { readonly kind: "refused"; readonly id: number; readonly reason: string }
  | {
      readonly kind: "failed";
      readonly id: number;
      readonly reason: string;
      readonly code?: string | undefined;
      /** It is about TLS, and trying again will not help. */
      readonly isTls?: boolean;
    }
  | {
      readonly kind: "ready";
      readonly id: number;
      readonly isIncoming: boolean;
      /** The connection, for `pair` and `drop`. */
      readonly stream: number;
      readonly remoteAddress: string | undefined;
      readonly remotePort: number | undefined;
      readonly localAddress: string | undefined;
    };

export interface TunnelData {
  readonly identity: { readonly ca: string; readonly cert: string; readonly key: string };
  /** Number of connections whose last bytes have not been sent. */
  readonly open: Int32Array;
  /** Number of refusals that the program's thread has not heard of. */
  readonly unheard: Int32Array;
}

/** How long a connection may take for its TLS handshake, ms. */
const HANDSHAKE_MS = 10_000;
/** A peer that has said nothing for so long waits for us to speak first: it has no TLS, and is told so, ms. */
const SILENCE_MS = 4_000;
/** Connections of which the program has not been told yet; the oldest goes when there are more. */
const MAX_STRANGERS = 256;
/** Those of which it has been told and that it has not taken yet. Its thread may be blocked for long, or be slower than this one. */
const MAX_OFFERED = 64;
/** Refusals that it has not heard of yet: more are not told. */
const MAX_UNHEARD = 64;
/** Of an idle connection: a host that vanished is noticed without traffic. */
const KEEP_ALIVE_MS = 5_000;
/** After the program's end has closed, how long the peer may take to close its own, ms. */
const LINGER_MS = 5_000;
/** Connections of which only that is awaited; the oldest goes when there are more. */
const MAX_LINGERING = 64;
/** The first byte of a TLS handshake record. */
const TLS_HANDSHAKE = 0x16;
/** A frame of the rendezvous (channel.ts), which only a peer without TLS can read. */
const PLAIN_HINT = (() => {
  const text = Buffer.from(JSON.stringify({ kind: "tls" }));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, text]);
})();

const port = parentPort as MessagePort;
const { identity, open, unheard } = workerData as TunnelData;
const common = { ...identity, minVersion: "TLSv1.3", rejectUnauthorized: true, allowHalfOpen: true } as const;
/** Of connections that this side makes: to read the files' text takes more memory than the rest of one. */
const secureContext = createSecureContext(common);
const streams = new Map<number, { readonly stream: TLSSocket; readonly isIncoming: boolean }>();
/** Incoming connections that wait until the program has taken others: each goes on when it is called. */
const waiting = new Set<() => void>();
let numOffered = 0;
const listeners = new Map<number, () => void>();
let nextStream = 1;

const tell = (message: FromTunnel) => port.postMessage(message);

/** A timer that hears what has come first, where this thread did not run for a while: as `afterRunning` of runtime/comm. */
function later(ms: number, then: () => void): { cancel(): void } {
  let last: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    last = setImmediate(then);
  }, ms);
  return {
    cancel() {
      clearTimeout(timer);
      clearImmediate(last);
    },
  };
}

port.on("message", (message: ToTunnel) => {
  if (message.kind === "listen") listen(message);
  else if (message.kind === "connect") call(message);
  else if (message.kind === "close") listeners.get(message.id)?.();
  else {
    const { stream, isIncoming = false } = streams.get(message.id) ?? {};
    streams.delete(message.id);
    if (message.kind === "drop") stream?.destroy();
    else join(stream, message.fd);
    if (isIncoming) numOffered--;
    offerWaiting();
  }
});

function offerWaiting(): void {
  for (const goOn of waiting) {
    if (numOffered >= MAX_OFFERED) return;
    waiting.delete(goOn);
    numOffered++;
    goOn();
  }
}

function listen({ id, host, port: wanted }: Extract<ToTunnel, { kind: "listen" }>): void {
  const strangers = new Map<string, Socket>();
  const refuse = (peer: string, why: string) => {
    if (Atomics.load(unheard, 0) >= MAX_UNHEARD) return;
    Atomics.add(unheard, 0, 1);
    tell({ kind: "refused", id, reason: `${peer} ${why}` });
  };
  const nameOf = ({ remoteAddress, remotePort }: Socket) =>
    remoteAddress === undefined ? "a peer that is gone" : `${remoteAddress}:${remotePort}`;
  const secure = createTlsServer({ ...common, requestCert: true, handshakeTimeout: HANDSHAKE_MS }, (stream) => {
    const peer = nameOf(stream);
    const goOn = () => {
      strangers.delete(peer);
      offer(stream, id, true);
    };
    stream.on("error", () => {});
    stream.once("close", () => waiting.delete(goOn));
    waiting.add(goOn);
    offerWaiting();
  });
  secure.on("tlsClientError", (error: NodeJS.ErrnoException, socket) => {
    refuse(nameOf(socket), describe(error));
    socket.destroy();
  });
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    const peer = nameOf(socket);
    // One that left from the same port, but has not closed here yet.
    strangers.get(peer)?.destroy();
    strangers.delete(peer);
    strangers.set(peer, socket);
    const [oldest] = strangers;
    if (strangers.size > MAX_STRANGERS && oldest !== undefined) {
      strangers.delete(oldest[0]);
      refuse(oldest[0], "did not show a certificate, or was not taken in time, and made room for another");
      oldest[1].destroy();
    }
    const silent = later(SILENCE_MS, () => {
      refuse(peer, "said nothing: it uses no TLS, or is no peer");
      socket.end(PLAIN_HINT, () => socket.destroySoon());
    });
    socket.on("error", () => {});
    socket.once("close", () => {
      silent.cancel();
      if (strangers.get(peer) === socket) strangers.delete(peer);
    });
    socket.once("readable", () => {
      silent.cancel();
      const first = socket.read() as Buffer | null;
      if (first === null) {
        socket.destroy();
        return;
      }
      if (first[0] !== TLS_HANDSHAKE) {
        refuse(peer, "uses no TLS, or is no peer");
        socket.destroy();
        return;
      }
      socket.unshift(first);
      secure.emit("connection", socket);
    });
  });
  server.once("error", (error: NodeJS.ErrnoException) =>
    tell({ kind: "failed", id, reason: error.message, code: error.code }),
  );
  server.listen({ host, port: wanted }, () => {
    server.on("error", () => {});
    listeners.set(id, () => {
      listeners.delete(id);
      server.close();
      for (const socket of strangers.values()) socket.destroy();
    });
    const address = server.address();
    tell({ kind: "listening", id, port: typeof address === "object" && address !== null ? address.port : 0 });
  });
}

function call({ id, host, port: to, timeoutMs }: Extract<ToTunnel, { kind: "connect" }>): void {
  const where = `${host}:${to}`;
  let isSettled = false;
  const fail = (reason: string, code?: string, isTls = false) => {
    if (isSettled) return;
    isSettled = true;
    timer.cancel();
    tell({ kind: "failed", id, reason, code, isTls });
    stream.destroy();
  };
  const timer = later(timeoutMs, () => fail(`${where} did not answer within ${Math.ceil(timeoutMs)} ms`, "ETIMEDOUT"));
  // Whether it is of this world the secret says: any certificate of the authority will do.
  const stream = connect({ ...common, secureContext, host, port: to, checkServerIdentity: () => undefined });
  let isConnected = false;
  stream.once("connect", () => {
    isConnected = true;
  });
  stream.on("error", (error: NodeJS.ErrnoException) => {
    const isTls = isConnected && error.code !== "ECONNRESET" && error.code !== "EPIPE";
    fail(isTls ? `${where} ${describe(error)}` : error.message, error.code, isTls);
  });
  const left = () => {
    const why =
      "closed the encrypted connection without a word: it does not accept this side's certificate, or is ending";
    fail(isSecure ? `${where} ${why}` : `${where} closed the connection during the handshake`, "ECONNRESET", isSecure);
  };
  let isSecure = false;
  stream.once("secureConnect", () => {
    isSecure = true;
  });
  stream.once("close", left);
  stream.once("end", left);
  // The listening side speaks first; before it does, it may still refuse this side's certificate.
  stream.once("readable", () => {
    // At its end nothing is there to be read, and `end` follows.
    if (isSettled || stream.readableLength === 0) {
      stream.resume();
      return;
    }
    isSettled = true;
    timer.cancel();
    offer(stream, id, false);
  });
}

/** Asks for a pair of sockets for a connection. */
function offer(stream: TLSSocket, id: number, isIncoming: boolean): void {
  const { remoteAddress, remotePort, localAddress } = stream;
  stream.setNoDelay(true);
  stream.setKeepAlive(true, KEEP_ALIVE_MS);
  const number = nextStream++;
  streams.set(number, { stream, isIncoming });
  tell({ kind: "ready", id, isIncoming, stream: number, remoteAddress, remotePort, localAddress });
}

/** Joins a connection with the end of a pair; each goes with the other. */
function join(stream: TLSSocket | undefined, fd: number): void {
  const inner = new Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
  let isCounted = true;
  const sent = () => {
    if (isCounted) Atomics.sub(open, 0, 1);
    isCounted = false;
    Atomics.notify(open, 0);
  };
  inner.on("error", () => {});
  if (stream === undefined || stream.destroyed) {
    inner.destroy();
    sent();
    return;
  }
  stream.once("finish", sent);
  stream.once("close", () => {
    sent();
    inner.destroySoon();
  });
  inner.once("close", () => {
    if (!stream.writableFinished && !inner.readableEnded) stream.destroy();
  });
  inner.once("end", () => linger(stream));
  stream.pipe(inner);
  inner.pipe(stream);
}

const lingering = new Set<TLSSocket>();

/** Gives the peer a moment to close a connection that the program has left. Strangers may be left faster than they close. */
function linger(stream: TLSSocket): void {
  const timer = setTimeout(() => stream.destroy(), LINGER_MS).unref();
  lingering.add(stream);
  stream.once("close", () => {
    clearTimeout(timer);
    lingering.delete(stream);
  });
  for (const one of lingering) {
    if (lingering.size <= MAX_LINGERING) break;
    // What the program said last goes out first.
    if (!one.writableFinished) continue;
    lingering.delete(one);
    one.destroy();
  }
}

/** What the errors of OpenSSL and of Node mean to somebody who wants two processes to meet. */
function describe(error: NodeJS.ErrnoException): string {
  const { code = "" } = error;
  // OpenSSL's own text tells of its source files.
  const message = /^ERR_SSL|:error:/.test(`${code}${error.message}`) ? "its signature is wrong" : error.message;
  if (/WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST|BAD_RECORD_TYPE|UNEXPECTED_MESSAGE/.test(code)) {
    return "uses no TLS, or is no peer";
  }
  if (code === "ECONNRESET") return "left during the TLS handshake, or shows a certificate of another authority";
  if (/PEER_DID_NOT_RETURN_A_CERTIFICATE/.test(code)) return "shows no certificate";
  if (/ALERT/.test(code)) return `refuses this side's certificate (${code})`;
  return `shows a certificate that is refused: ${message} (${code})`;
}
