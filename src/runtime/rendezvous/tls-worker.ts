/**
 * The thread that has a process's encrypted connections (tls-tunnel.ts). The program is told of those whose peers have proved that
 * they know the secret, and of no others: strangers come faster than its thread can make and forget sockets, streams and timers.
 */
import { Socket } from "node:net";
import { connect, createSecureContext, type TLSSocket } from "node:tls";
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { afterRunning } from "../comm/index.ts";
import type { GateRules, ProvenPeer } from "./stranger-gate.ts";
import { describeTlsError, listenSecurely } from "./tls-listener.ts";

/** `id` names a request; of `pair` and `drop` a connection. */
export type ToTunnel =
  | {
      readonly kind: "listen";
      readonly id: number;
      readonly host: string;
      readonly port: number;
      readonly rules: GateRules;
    }
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
      /** Who has come to a listener. */
      readonly peer?: ProvenPeer;
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

/**
 * Connections to its ports of which the program has been told and that it has not taken yet: its thread may be blocked for long.
 * As many as wait to be accepted without TLS, or as many as may come at once; more are turned away.
 */
const MAX_OFFERED = 512;
/** Refusals that it has not heard of yet: more are not told. */
const MAX_UNHEARD = 64;
/** Of an idle connection: a host that vanished is noticed without traffic. */
const KEEP_ALIVE_MS = 5_000;
/** After the program's end has closed, how long the peer may take to close its own, ms. */
const LINGER_MS = 5_000;
/** Connections of which only that is awaited; the oldest goes when there are more. */
const MAX_LINGERING = 64;

const port = parentPort as MessagePort;
const { identity, open, unheard } = workerData as TunnelData;
const common = { ...identity, minVersion: "TLSv1.3", rejectUnauthorized: true, allowHalfOpen: true } as const;
/** Of connections that this side makes: to read the files' text takes more memory than the rest of one. */
const secureContext = createSecureContext(common);
const streams = new Map<number, { readonly stream: TLSSocket; readonly isIncoming: boolean }>();
let numOffered = 0;
const listeners = new Map<number, () => void>();
let nextStream = 1;

const tell = (message: FromTunnel) => port.postMessage(message);

port.on("message", (message: ToTunnel) => {
  if (message.kind === "listen") listen(message);
  else if (message.kind === "connect") call(message);
  else if (message.kind === "close") {
    listeners.get(message.id)?.();
    listeners.delete(message.id);
  } else {
    const { stream, isIncoming = false } = streams.get(message.id) ?? {};
    streams.delete(message.id);
    if (message.kind === "drop") stream?.destroy();
    else join(stream, message.fd);
    if (isIncoming) numOffered--;
  }
});

function listen({ id, host, port: wanted, rules }: Extract<ToTunnel, { kind: "listen" }>): void {
  const refused = (reason: string) => {
    if (Atomics.load(unheard, 0) >= MAX_UNHEARD) return;
    Atomics.add(unheard, 0, 1);
    tell({ kind: "refused", id, reason });
  };
  const maxOffered = Math.max(MAX_OFFERED, rules.maxStrangers);
  const close = listenSecurely(
    { host, port: wanted, rules, tls: common },
    {
      refused,
      listening: (real) => tell({ kind: "listening", id, port: real }),
      failed: ({ message, code }) => {
        listeners.delete(id);
        tell({ kind: "failed", id, reason: message, code });
      },
      proven(stream, peer) {
        if (numOffered < maxOffered) offer(stream, id, peer);
        else {
          refused(`${peer.name} came while ${maxOffered} others were waiting to be taken`);
          stream.destroy();
        }
      },
    },
  );
  listeners.set(id, close);
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
  const timer = afterRunning(timeoutMs, () =>
    fail(`${where} did not answer within ${Math.ceil(timeoutMs)} ms`, "ETIMEDOUT"),
  );
  // Whether it is of this world the secret says: any certificate of the authority will do.
  const stream = connect({ ...common, secureContext, host, port: to, checkServerIdentity: () => undefined });
  let isConnected = false;
  stream.once("connect", () => {
    isConnected = true;
  });
  stream.on("error", (error: NodeJS.ErrnoException) => {
    const isTls = isConnected && error.code !== "ECONNRESET" && error.code !== "EPIPE";
    fail(isTls ? `${where} ${describeTlsError(error)}` : error.message, error.code, isTls);
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
    offer(stream, id);
  });
}

/** Asks for a pair of sockets for a connection. */
function offer(stream: TLSSocket, id: number, peer?: ProvenPeer): void {
  const { remoteAddress, remotePort, localAddress } = stream;
  stream.setNoDelay(true);
  stream.setKeepAlive(true, KEEP_ALIVE_MS);
  // From here on each side ends by itself, so that what the other one has said last arrives.
  stream.allowHalfOpen = true;
  const number = nextStream++;
  streams.set(number, { stream, isIncoming: peer !== undefined });
  if (peer !== undefined) numOffered++;
  const told = { kind: "ready", id, stream: number, remoteAddress, remotePort, localAddress } as const;
  tell(peer === undefined ? told : { ...told, peer });
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
