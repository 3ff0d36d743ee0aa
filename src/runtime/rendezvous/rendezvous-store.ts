/**
 * The rendezvous of ranks that are processes: a key-value store behind a TCP port, hosted by one of them or by their
 * launcher. A rank joins by the handshake (handshake.ts); one that is of another world, version or generation, or whose
 * place is taken, is refused with the reason. A connection that ends before its rank has left is a rank that died: all others are
 * told. What a stranger sends ends the stranger's connection and nothing else.
 */
import { FormatError, InvalidArgumentError, MismatchError, TimeoutError, UnavailableError } from "../../core/index.ts";
import { afterRunning, type RunningTimer } from "../comm/index.ts";
import { MAX_VALUE_BYTES, type WorldFailure } from "./bootstrap-value.ts";
import type { Channel, ChannelKeys, ChannelListener } from "./channel.ts";
import { type Claims, describeClaims, differences, parseClaims } from "./handshake.ts";
import { type Admission, Entrance } from "./handshake-listener.ts";
import type { TlsIdentity } from "./tls-identity.ts";
import { type Asker, isStoreAsk, ValueStore } from "./value-store.ts";

/** Connections that have not proved themselves yet: as many, or all ranks, which may come at once. */
const MAX_STRANGERS = 64;
/** Most keys, and bytes of all values: ranks exchange ids and addresses. */
const MAX_KEYS = 16_384;
const MAX_TOTAL_BYTES = 64 * 1024 * 1024;
const MAX_KEY_CHARS = 256;
/** Questions of one rank that may be open. */
const MAX_WAITING = 1_024;

export interface StoreOptions {
  readonly secret: string;
  /** What every rank must agree with; `rank` is the host's own. */
  readonly claims: Claims;
  /** Loopback by default. */
  readonly host?: string;
  /** 0, the system's choice by default: `port` says which it is. */
  readonly port?: number;
  /** After this long the world fails unless all ranks have joined, ms. */
  readonly joinTimeoutMs?: number;
  /** The ranks need not be on one host. */
  readonly spansHosts?: boolean;
  /** How long a connection may take to prove itself, ms; 10 s by default. */
  readonly handshakeMs?: number;
  /** Takes connections over TLS only. */
  readonly tls?: TlsIdentity | undefined;
  /** Is told first, and once, that the world is over. */
  readonly onFailed?: () => void;
  /** Is told why a connection was refused. */
  readonly onRefused?: (reason: string) => void;
}

interface Member {
  readonly claims: Claims;
  readonly channel: Channel;
  readonly asker: Asker;
  readonly waiting: Set<string>;
  left: boolean;
}

interface Question {
  readonly member: Member;
  readonly id: number;
}

export class RendezvousStore {
  readonly #claims: Claims;
  readonly #options: StoreOptions;
  readonly #entrance: Entrance;
  readonly #members = new Map<number, Member>();
  readonly #values = new Map<string, string>();
  readonly #waiting = new Map<string, Question[]>();
  /** What the ranks' programs keep. */
  readonly #programs = new ValueStore();
  #totalBytes = 0;
  #failure: WorldFailure | undefined;
  #timer: RunningTimer | undefined;
  #closed = false;

  private constructor(options: StoreOptions) {
    this.#claims = options.claims;
    this.#options = options;
    this.#entrance = new Entrance({
      secret: options.secret,
      handshakeMs: options.handshakeMs,
      maxStrangers: Math.max(MAX_STRANGERS, options.claims.worldSize),
      onRefused: options.onRefused,
      word: { kind: "join", field: "claims" },
      admit: (text, peer) => this.#admit(parseClaims(text, peer), peer),
    });
  }

  /**
   * Opens the store.
   * @throws UnavailableError when the address cannot be listened on; InvalidArgumentError for a secret that is too short
   */
  static async open(options: StoreOptions): Promise<RendezvousStore> {
    const store = new RendezvousStore(options);
    const { host = "127.0.0.1", port = 0, joinTimeoutMs, tls } = options;
    const how = "Name a free one of rank 0's host in CHORALE_RDZV=HOST:PORT.";
    const what = `the rendezvous address ${host}:${port}`;
    await store.#entrance.open({ host, port }, tls, (why) => new UnavailableError(what, why, how));
    if (joinTimeoutMs !== undefined)
      store.#timer = afterRunning(joinTimeoutMs, () => store.#tooLate(joinTimeoutMs), true);
    return store;
  }

  /** The port that is listened on. */
  get port(): number {
    return this.#entrance.port;
  }

  get numJoined(): number {
    return this.#members.size;
  }

  /** Tells every rank, once, that the world is over. */
  fail(cause: WorldFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = cause;
    this.#timer?.cancel();
    this.#options.onFailed?.();
    for (const { channel } of this.#members.values()) channel.send({ kind: "failed", ...cause });
  }

  /** Ends it; ranks that are still there are told that this is no failure. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#timer?.cancel();
    this.#entrance.close("a connection was still unknown when the rendezvous ended");
    for (const { channel } of this.#members.values()) {
      channel.send({ kind: "closed" });
      channel.close();
    }
  }

  #tooLate(timeoutMs: number): void {
    const { worldSize } = this.#claims;
    if (this.#members.size === worldSize) return;
    const ranks = Array.from({ length: worldSize }, (_, rank) => ({ rank, arrived: this.#members.has(rank) }));
    const { refusals } = this.#entrance;
    const refused = refusals.length === 0 ? "" : `; refused: ${refusals.slice(0, 5).join("; ")}`;
    const missing = ranks.find(({ arrived }) => !arrived)?.rank ?? -1;
    this.fail({ rank: missing, message: new TimeoutError("the rendezvous", timeoutMs, ranks).message + refused });
  }

  #admit(claims: Claims, peer: string): Admission {
    const refusal = this.#refusal(claims);
    if (refusal !== undefined) return { answer: refusal, refused: `rank ${claims.rank} (${peer}): ${refusal.refused}` };
    return {
      answer: { joined: [...this.#members.keys()], failure: this.#failure },
      enter: (channel, keys) => this.#enter(claims, channel, keys),
    };
  }

  #enter(claims: Claims, channel: Channel, keys: ChannelKeys): ChannelListener {
    channel.secure(keys);
    // Ranks leave when they are done, and only those that wait for something keep their own process: the store keeps none.
    channel.socket.unref();
    const { rank, worldSize } = claims;
    const asker: Asker = {
      rank,
      worldSize,
      answer: (id, answer) => channel.send({ kind: "store-answer", id, answer }),
    };
    const member: Member = { claims, channel, asker, waiting: new Set(), left: false };
    this.#members.set(claims.rank, member);
    for (const other of this.#members.values()) other.channel.send({ kind: "joined", rank: claims.rank });
    if (this.#members.size === this.#claims.worldSize) this.#timer?.cancel();
    return { message: (message) => this.#handle(member, message), end: (error) => this.#gone(member, error) };
  }

  #refusal(claims: Claims): { readonly refused: string; readonly sides?: readonly object[] } | undefined {
    const differing = differences(this.#claims, claims, this.#options.spansHosts === true);
    if (differing.length > 0) {
      const sides = [this.#claims, claims].map((side) => ({ rank: side.rank, call: describeClaims(side) }));
      const problem = `ranks that join must agree on the ${differing.join(", ")}`;
      return { refused: new MismatchError(problem, sides).message, sides: [{ problem }, ...sides] };
    }
    if (claims.rank >= claims.worldSize) {
      return { refused: new InvalidArgumentError("rank", claims.rank, `0 to ${claims.worldSize - 1}`).message };
    }
    const taken = this.#members.get(claims.rank);
    return taken === undefined
      ? undefined
      : { refused: `rank ${claims.rank} has joined already, from process ${taken.claims.pid} on ${taken.claims.host}` };
  }

  #handle(member: Member, message: Readonly<Record<string, unknown>>): void {
    const { kind, key, value, id, rank, message: text } = message;
    const peer = `rank ${member.claims.rank}`;
    switch (kind) {
      case "set":
        if (!isKey(key) || typeof value !== "string" || !isId(id))
          throw new FormatError(peer, "sent a `set` with an invalid key, value or id");
        member.channel.send({ kind: "answer", id, ...this.#set(key, value) });
        return;
      case "get": {
        if (!isKey(key) || !isId(id)) throw new FormatError(peer, "sent a `get` with an invalid key or id");
        const known = this.#values.get(key);
        if (known !== undefined) {
          member.channel.send({ kind: "answer", id, value: known });
          return;
        }
        if (member.waiting.size >= MAX_WAITING) throw new FormatError(peer, `asks for more than ${MAX_WAITING} keys`);
        member.waiting.add(key);
        this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), { member, id }]);
        return;
      }
      case "store":
        if (!isId(id) || !isStoreAsk(message["ask"])) throw new FormatError(peer, "asked the store what it cannot");
        this.#programs.ask(member.asker, id, message["ask"]);
        return;
      case "fail":
        if (typeof rank !== "number" || typeof text !== "string")
          throw new FormatError(peer, "sent a `fail` with an invalid rank or text");
        this.fail({ rank, message: text });
        return;
      case "bye":
        member.left = true;
        return;
      default:
        throw new FormatError(peer, "sent a frame of unknown kind");
    }
  }

  #set(key: string, value: string): { readonly error?: string } {
    const sizeBytes = Buffer.byteLength(value, "base64");
    if (sizeBytes > MAX_VALUE_BYTES) return { error: `${sizeBytes} bytes; expected at most ${MAX_VALUE_BYTES}` };
    const before = this.#values.get(key);
    const total = this.#totalBytes + value.length - (before?.length ?? 0);
    if (total > MAX_TOTAL_BYTES || (before === undefined && this.#values.size >= MAX_KEYS)) {
      return { error: `the store holds ${this.#values.size} keys of ${this.#totalBytes} bytes and takes no more` };
    }
    this.#values.set(key, value);
    this.#totalBytes = total;
    for (const { member, id } of this.#waiting.get(key) ?? []) {
      member.waiting.delete(key);
      member.channel.send({ kind: "answer", id, value });
    }
    this.#waiting.delete(key);
    return {};
  }

  #gone(member: Member, error: Error | undefined): void {
    const { rank, pid } = member.claims;
    this.#programs.forget(member.asker);
    if (this.#closed || member.left) return;
    const why = error === undefined ? "its connection ended" : error.message;
    this.fail({ rank, message: `process ${pid} closed its connection without leaving the rendezvous: ${why}` });
  }
}

function isKey(key: unknown): key is string {
  return typeof key === "string" && key.length > 0 && key.length <= MAX_KEY_CHARS;
}

function isId(id: unknown): id is number {
  return typeof id === "number" && Number.isSafeInteger(id);
}
