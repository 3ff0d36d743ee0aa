/**
 * Connections between two ranks that know the same secret: one listens (`PeerDoor`), the other knocks. Both prove
 * themselves by the handshake (handshake.ts) before a byte of data is read, and each connection has keys of its own. A
 * stranger gets a nonce, bounded memory and a bounded time, and is told nothing.
 */
import type { Socket } from "node:net";
import { FormatError, InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { runningTime } from "../comm/index.ts";
import type { Channel, ChannelKeys } from "./channel.ts";
import { checkSecret, PROTOCOL } from "./handshake.ts";
import { callIn } from "./handshake-caller.ts";
import { Entrance } from "./handshake-listener.ts";
import { transportFor } from "./socket-transports.ts";
import type { TlsIdentity } from "./tls-identity.ts";

/** How the handshake's first message of who knocks begins. */
const WORD = { kind: "knock", field: "introduction" } as const;

/** Connections that have not proved themselves yet: as many, or all that are awaited. */
const MAX_STRANGERS = 256;

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

interface DoorOptions {
  readonly secret: string;
  readonly host: string;
  /** 0, the system's choice by default. */
  readonly port?: number;
  readonly handshakeMs?: number;
  /** Takes connections over TLS only. */
  readonly tls?: TlsIdentity | undefined;
  /** How another address is chosen, for the error of one that cannot be listened on. */
  readonly howToChoose?: string;
  /** How many may come at once. */
  readonly numCallers?: number;
  /** What the connecting side is called in errors; `rank` by default. */
  readonly caller?: string;
  /** Says why a peer that knows the secret is not let in; `undefined` when it is. */
  readonly refuse: (introduction: Introduction) => string | undefined;
  readonly welcome: (introduction: Introduction, socket: PeerSocket) => void;
  /** Is told why a connection was refused. */
  readonly onRefused?: (reason: string) => void;
}

export class PeerDoor {
  readonly #entrance: Entrance;

  private constructor(options: DoorOptions) {
    const { secret, handshakeMs, caller = "rank", numCallers = 0, refuse, welcome, onRefused } = options;
    this.#entrance = new Entrance({
      secret,
      handshakeMs,
      maxStrangers: Math.max(MAX_STRANGERS, numCallers),
      onRefused,
      word: WORD,
      admit: (text, peer) => {
        const introduction = parseIntroduction(text, peer);
        const refused = refuse(introduction);
        if (refused !== undefined) {
          return { answer: { refused }, refused: `${caller} ${introduction.from} (${peer}): ${refused}` };
        }
        return {
          answer: {},
          enter: (channel, keys) => {
            handOver(channel, keys, (socket) => welcome(introduction, socket));
            return undefined;
          },
        };
      },
    });
  }

  /** Listens. @throws UnavailableError when the address cannot be listened on */
  static async open(options: DoorOptions): Promise<PeerDoor> {
    const door = new PeerDoor(options);
    const { host, port = 0, tls } = options;
    const how = options.howToChoose ?? "Name an address of this host.";
    const what = `the address ${host}${port === 0 ? "" : `:${port}`} to listen on`;
    await door.#entrance.open({ host, port }, tls, (why) => new UnavailableError(what, why, how));
    return door;
  }

  /** The real port. */
  get port(): number {
    return this.#entrance.port;
  }
  /** Why connections were refused. */
  get refusals(): readonly string[] {
    return this.#entrance.refusals;
  }

  /** Listens no more, and drops strangers. Connections that were let in stay. */
  close(): void {
    this.#entrance.close("a connection was still unknown when all ranks had come");
  }
}

/**
 * Connects to a rank that listens, and proves itself.
 * @throws FormatError when what listens there is no rank; InvalidArgumentError with its reason when it refuses, or has
 *   another secret; the connection's error when nobody listens
 */
export async function knock(
  to: { readonly host: string; readonly port: number },
  introduction: Introduction,
  options: {
    readonly secret: string;
    readonly timeoutMs: number;
    readonly tls?: TlsIdentity | undefined;
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
  const until = runningTime() + options.timeoutMs;
  const socket = await transportFor(options.tls).connect(to, options.timeoutMs);
  return callIn(socket, {
    secret,
    peer,
    word: WORD,
    claims: JSON.stringify(introduction),
    timeoutMs: Math.max(1, until - runningTime()),
    problems: {
      unknown: () => `is no rank of chorale that speaks protocol ${PROTOCOL}`,
      unproven: "cannot prove that it knows the secret",
      stranger: () =>
        new InvalidArgumentError(names.secret, described("another one (not shown)"), `the one that ${peer} has`),
      late: () => new FormatError(peer, `did not answer within ${Math.ceil(options.timeoutMs)} ms`),
    },
    enter: (channel, keys, { refused }) => {
      if (refused !== undefined)
        throw new InvalidArgumentError(names.self, described("refused"), `one that ${peer} takes: ${String(refused)}`);
      return { value: new Promise<PeerSocket>((resolve) => handOver(channel, keys, resolve)) };
    },
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
