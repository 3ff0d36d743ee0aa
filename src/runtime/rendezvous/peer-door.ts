/**
 * Connections between two ranks that know the same secret: one listens (`PeerDoor`), the other knocks. Both prove
 * themselves by the handshake (handshake.ts) before a byte of data is read, and each connection has keys of its own. A
 * stranger gets a nonce, bounded memory and a bounded time, and is told nothing.
 */
import { connect, createServer, type Server, type Socket } from "node:net";
import { FormatError, InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { afterRunning } from "../comm/index.ts";
import { Channel, type ChannelKeys, LISTEN_ERRORS } from "./channel.ts";
import { checkSecret, isProof, newNonce, PROTOCOL, parseNonce, prove, sessionKeys } from "./handshake.ts";

/** How long a stranger may take to prove itself, ms. */
const HANDSHAKE_MS = 10_000;
/** Connections that have not proved themselves yet; the oldest goes when there are more. */
const MAX_STRANGERS = 256;
/** What is said of strangers in errors. */
const MAX_REFUSALS = 16;

/** What the knocking rank says of itself. Both sides compare everything but `from` and `index` with their own. */
export interface Introduction {
  readonly from: number;
  readonly to: number;
  /** Which of the connections of this pair. */
  readonly index: number;
  readonly worldSize: number;
  readonly generation: number;
  /** Of chorale and of the frames. */
  readonly version: string;
}

/** A connection whose ends have proved themselves; the stream is paused. */
export interface PeerSocket {
  readonly socket: Socket;
  /** What was read beyond the handshake. */
  readonly rest: Uint8Array;
  readonly keys: ChannelKeys;
}

export interface DoorOptions {
  readonly secret: string;
  readonly host: string;
  /** 0, the system's choice by default. */
  readonly port?: number;
  readonly handshakeMs?: number;
  /** How another address is chosen, for the error of one that cannot be listened on. */
  readonly howToChoose?: string;
  /** What the connecting side is called in errors; `rank` by default. */
  readonly caller?: string;
  /** Says why a peer that knows the secret is not let in; `undefined` when it is. */
  readonly refuse: (introduction: Introduction) => string | undefined;
  readonly welcome: (introduction: Introduction, socket: PeerSocket) => void;
  /** Is told why a connection was refused. */
  readonly onRefused?: (reason: string) => void;
}

export class PeerDoor {
  readonly #secret: Buffer;
  readonly #options: DoorOptions;
  readonly #server: Server;
  /** Ends each of them, with a reason. */
  readonly #strangers = new Set<(reason: string) => void>();
  readonly #refused: string[] = [];

  private constructor(options: DoorOptions) {
    this.#secret = checkSecret(options.secret);
    this.#options = options;
    this.#server = createServer((socket) => this.#greet(socket));
    this.#server.unref();
  }

  /** Listens. @throws UnavailableError when the address cannot be listened on */
  static async open(options: DoorOptions): Promise<PeerDoor> {
    const door = new PeerDoor(options);
    const { host, port = 0 } = options;
    await new Promise<void>((resolve, reject) => {
      door.#server.once("error", (error: NodeJS.ErrnoException) => {
        const why = LISTEN_ERRORS[error.code ?? ""] ?? error.message;
        const how = options.howToChoose ?? "Name an address of this host: backendOptions.host, or CHORALE_TCP_HOST.";
        reject(new UnavailableError(`the address ${host}${port === 0 ? "" : `:${port}`} to listen on`, why, how));
      });
      door.#server.listen({ host, port }, resolve);
    });
    return door;
  }

  /** The real port. */
  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }
  /** Why connections were refused. */
  get refusals(): readonly string[] {
    return this.#refused;
  }
  /** How many connections have not proved themselves yet. */
  get numStrangers(): number {
    return this.#strangers.size;
  }

  /** Listens no more, and drops strangers. Connections that were let in stay. */
  close(): void {
    this.#server.close();
    for (const refuse of [...this.#strangers]) refuse("a connection was still unknown when all ranks had come");
  }

  #greet(socket: Socket): void {
    const peer = `${socket.remoteAddress ?? "somebody"}:${socket.remotePort ?? 0}`;
    const nonce = newNonce();
    const leave = () => {
      clearTimeout(timer);
      return this.#strangers.delete(refuse);
    };
    const refuse = (reason: string) => {
      if (!leave()) return;
      this.#note(reason);
      channel.destroy();
    };
    const timer = setTimeout(
      () => refuse(`${peer} did not prove itself in time`),
      this.#options.handshakeMs ?? HANDSHAKE_MS,
    ).unref();
    const channel: Channel = new Channel(socket, peer, {
      message: (message) => {
        leave();
        this.#admit(channel, peer, nonce, message);
      },
      end: (error) => refuse(error?.message ?? `${peer} left before it had proved itself`),
    });
    this.#strangers.add(refuse);
    const [oldest] = this.#strangers;
    if (this.#strangers.size > MAX_STRANGERS) oldest?.("a connection that did not prove itself made room for another");
    channel.send({ kind: "hello", protocol: PROTOCOL, nonce });
  }

  #note(reason: string): void {
    if (this.#refused.length < MAX_REFUSALS) this.#refused.push(reason);
    this.#options.onRefused?.(reason);
  }

  /** @throws FormatError, which ends the connection */
  #admit(channel: Channel, peer: string, nonce: string, message: Readonly<Record<string, unknown>>): void {
    if (message["kind"] !== "knock" || typeof message["introduction"] !== "string") {
      throw new FormatError(peer, "did not begin with a handshake");
    }
    const text = message["introduction"];
    const nonces = { store: nonce, rank: parseNonce(message["nonce"], peer) };
    if (!isProof(message["proof"], prove(this.#secret, "rank", nonces, text))) {
      this.#note(`${peer} does not know the secret`);
      channel.send({ kind: "stranger" });
      channel.close();
      return;
    }
    const introduction = parseIntroduction(text, peer);
    const refusal = this.#options.refuse(introduction);
    const answer = JSON.stringify(refusal === undefined ? {} : { refused: refusal });
    channel.send({ kind: "answer", answer, proof: prove(this.#secret, "store", nonces, answer) });
    if (refusal !== undefined) {
      this.#note(`${this.#options.caller ?? "rank"} ${introduction.from} (${peer}): ${refusal}`);
      channel.close();
      return;
    }
    const keys = sessionKeys(this.#secret, "store", nonces);
    handOver(channel, keys, (socket) => this.#options.welcome(introduction, socket));
  }
}

/**
 * Connects to a rank that listens, and proves itself.
 * @throws FormatError when what listens there is no rank; InvalidArgumentError with its reason when it refuses, or has
 *   another secret; the connection's error when nobody listens
 */
export function knock(
  to: { readonly host: string; readonly port: number },
  introduction: Introduction,
  options: {
    readonly secret: string;
    readonly timeoutMs: number;
    /** What both sides and the secret are called in errors. */
    readonly names?: { readonly peer: string; readonly self: string; readonly secret: string };
  },
): Promise<PeerSocket> {
  const secret = checkSecret(options.secret);
  const names = options.names ?? {
    peer: `rank ${introduction.to} at ${to.host}:${to.port}`,
    self: `rank ${introduction.from}`,
    secret: "the secret",
  };
  const { peer } = names;
  return new Promise((resolve, reject) => {
    const socket = connect(to);
    const own = newNonce();
    const text = JSON.stringify(introduction);
    let nonces: { readonly store: string; readonly rank: string } | undefined;
    const timer = afterRunning(options.timeoutMs, () => {
      stop(new FormatError(peer, `did not answer within ${Math.ceil(options.timeoutMs)} ms`));
    });
    const stop = (error: Error) => {
      timer.cancel();
      channel.destroy();
      reject(error);
    };
    const channel: Channel = new Channel(socket, peer, {
      message: (message) => {
        if (nonces === undefined) {
          if (message["kind"] !== "hello" || message["protocol"] !== PROTOCOL) {
            throw new FormatError(peer, `is no rank of chorale that speaks protocol ${PROTOCOL}`);
          }
          nonces = { store: parseNonce(message["nonce"], peer), rank: own };
          const proof = prove(secret, "rank", nonces, text);
          channel.send({ kind: "knock", nonce: own, introduction: text, proof });
          return;
        }
        const { answer } = message;
        if (message["kind"] === "stranger") {
          stop(new InvalidArgumentError(names.secret, "not shown", `the one that ${peer} has`));
          return;
        }
        if (typeof answer !== "string" || !isProof(message["proof"], prove(secret, "store", nonces, answer))) {
          throw new FormatError(peer, "cannot prove that it knows the secret");
        }
        const { refused } = JSON.parse(answer) as { readonly refused?: unknown };
        if (refused !== undefined) {
          stop(new InvalidArgumentError(names.self, "refused", `${String(refused)} (by ${peer})`));
          return;
        }
        timer.cancel();
        handOver(channel, sessionKeys(secret, "rank", nonces), resolve);
      },
      end: (error) => stop(error ?? new FormatError(peer, "closed the connection during the handshake")),
    });
  });
}

/** Gives a channel's socket away once everything that the handshake wrote has left. */
function handOver(channel: Channel, keys: ChannelKeys, take: (socket: PeerSocket) => void): void {
  const { socket } = channel;
  const rest = channel.release();
  socket.write(Buffer.alloc(0), () => take({ socket, rest, keys }));
}

/** @throws FormatError */
function parseIntroduction(text: string, peer: string): Introduction {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Said below.
  }
  const { from, to, index, worldSize, generation, version } = (value ?? {}) as Partial<
    Record<keyof Introduction, unknown>
  >;
  const numbers = [from, to, index, worldSize, generation];
  if (!numbers.every((one) => Number.isSafeInteger(one) && (one as number) >= 0) || typeof version !== "string") {
    throw new FormatError(peer, "introduced itself in a way that cannot be read");
  }
  return { from, to, index, worldSize, generation, version } as Introduction;
}
