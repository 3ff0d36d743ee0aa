/** A rank's side of the rendezvous (rendezvous-store.ts): joins it, and is the rank's `Bootstrap` afterwards. */
import type { Socket } from "node:net";
import {
  AbortedError,
  ClosedError,
  FormatError,
  InvalidArgumentError,
  MismatchError,
  type MismatchSide,
  type RankActivity,
  RankFailedError,
  TimeoutError,
} from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { afterRunning, type Bootstrap, DEFAULT_TIMEOUT_MS, runningTime } from "../comm/index.ts";
import { checkValue, describeKey, type WorldFailure } from "./bootstrap-value.ts";
import type { Channel } from "./channel.ts";
import { type Claims, checkSecret, PROTOCOL } from "./handshake.ts";
import { callIn } from "./handshake-caller.ts";
import { transportFor } from "./socket-transports.ts";
import type { TlsIdentity } from "./tls-identity.ts";
import type { StoreAnswer } from "./value-store.ts";
import { StoreClient } from "./value-store-client.ts";

/** Pauses between attempts to reach a store that is not there yet, ms. */
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 500;
/** How long the handshake may take, ms: the host may be busy loading its GPU's libraries. */
const HANDSHAKE_MS = 15_000;

interface JoinOptions {
  readonly secret: string;
  readonly claims: Claims;
  readonly host: string;
  readonly port: number;
  /** How long the store is looked for, ms; 60 s by default. */
  readonly timeoutMs?: number;
  /** Connects over TLS. */
  readonly tls?: TlsIdentity | undefined;
}

type Message = Readonly<Record<string, unknown>>;

/** An answer to a `set` or a `get`, or why there is none. */
type Answer = (value: string | undefined, error?: Error) => void;

export class TcpBootstrap implements Bootstrap {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly #channel: Channel;
  readonly #localAddress: string;
  readonly #joined: Set<number>;
  readonly #answers = new Map<number, Answer>();
  readonly #listeners: ((cause: WorldFailure) => void)[] = [];
  /** The store of programs. */
  readonly store: StoreClient;
  #nextId = 1;
  #failure: WorldFailure | undefined;
  #over: Error | undefined;

  private constructor(claims: Claims, channel: Channel, joined: readonly number[], failure: WorldFailure | undefined) {
    this.rank = claims.rank;
    this.worldSize = claims.worldSize;
    this.generation = claims.generation;
    this.#channel = channel;
    this.#joined = new Set([...joined, claims.rank]);
    this.#failure = failure;
    this.#localAddress = (channel.socket.localAddress ?? "").replace(/^::ffff:/, "");
    channel.socket.unref();
    this.store = new StoreClient(claims.worldSize, (id, ask) => channel.send({ kind: "store", id, ask }));
  }

  /**
   * Joins; tries again while nobody listens.
   * @throws TimeoutError when there is no store in time; InvalidArgumentError when its secret is another, or the rank's
   *   place is taken; MismatchError naming both sides when versions, engines, hosts, sizes or generations differ;
   *   FormatError when what listens there is no store, or cannot prove that it knows the secret
   */
  static async join(options: JoinOptions): Promise<TcpBootstrap> {
    const { host, port, claims, timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    const secret = checkSecret(options.secret);
    const until = runningTime() + timeoutMs;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const socket = await reach(host, port, Math.max(1, until - runningTime()), options.tls);
      if (!(socket instanceof Error))
        return TcpBootstrap.#shake(socket, `rendezvous at ${host}:${port}`, secret, claims, {
          timeoutMs,
          leftMs: Math.max(1, until - runningTime()),
        });
      if (runningTime() + pause > until) {
        const me: RankActivity = { rank: claims.rank, arrived: true };
        const zero: RankActivity = { rank: 0, arrived: false };
        throw new TimeoutError(
          `joining the rendezvous at ${host}:${port}`,
          timeoutMs,
          claims.rank === 0 ? [me] : [me, zero],
          {
            cause: socket,
          },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  static #shake(
    socket: Socket,
    peer: string,
    secret: Buffer,
    claims: Claims,
    limit: { readonly timeoutMs: number; readonly leftMs: number },
  ): Promise<TcpBootstrap> {
    const handshakeMs = Math.min(HANDSHAKE_MS, limit.leftMs);
    const late = () => {
      const text = `did not answer within ${Math.ceil(handshakeMs)} ms: it is not a chorale rendezvous`;
      const silent = new FormatError(peer, text);
      if (handshakeMs === HANDSHAKE_MS) return silent;
      return new TimeoutError(`joining the ${peer}`, limit.timeoutMs, [], { cause: silent });
    };
    return callIn(socket, {
      secret,
      peer,
      word: { kind: "join", field: "claims" },
      claims: JSON.stringify(claims),
      timeoutMs: handshakeMs,
      problems: {
        unknown: ({ kind, protocol }) =>
          kind === "hello"
            ? `speaks protocol ${String(protocol)}; rank ${claims.rank} speaks ${PROTOCOL}`
            : "is not a chorale rendezvous",
        unproven: "cannot prove that it knows CHORALE_SECRET: it is not the store of this world",
        stranger: () => {
          const expected = `the secret that the ${peer} was started with`;
          return new InvalidArgumentError("CHORALE_SECRET", described("another one"), expected);
        },
        late,
      },
      enter: (channel, keys, answer) => {
        const { joined, failure } = checkAnswer(answer);
        channel.secure(keys);
        const door = new TcpBootstrap(claims, channel, joined, failure);
        const inside = { message: (message: Message) => door.#receive(message), end: (e?: Error) => door.#lost(e) };
        return { value: door, inside };
      },
    });
  }

  /** The address of this host at which the store was reached. */
  get localAddress(): string {
    return this.#localAddress;
  }

  async set(key: string, value: Uint8Array): Promise<void> {
    checkValue(value);
    await this.#ask(
      { kind: "set", key, value: Buffer.from(value).toString("base64") },
      `setting ${JSON.stringify(key)}`,
    );
  }

  async get(key: string, options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<Uint8Array> {
    const value = await this.#ask({ kind: "get", key }, describeKey(key), options);
    return Uint8Array.from(Buffer.from(value ?? "", "base64"));
  }

  fail({ rank, message }: WorldFailure): void {
    this.#channel.send({ kind: "fail", rank, message });
  }

  onFailure(listener: (cause: WorldFailure) => void): void {
    if (this.#failure !== undefined) listener(this.#failure);
    else this.#listeners.push(listener);
  }

  /** Leaves: the end of this connection is no failure. */
  close(): void {
    if (this.#over !== undefined) return;
    this.#channel.send({ kind: "bye" });
    this.#finish(new ClosedError("the rendezvous", "was left by this rank"));
    this.#channel.close();
  }

  #ask(
    message: object,
    what: string,
    { timeoutMs = DEFAULT_TIMEOUT_MS, signal }: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      if (this.#over !== undefined) return reject(this.#over);
      if (signal?.aborted) return reject(signal.reason);
      const id = this.#nextId++;
      const answer: Answer = (value, error) => {
        timer.cancel();
        signal?.removeEventListener("abort", onAbort);
        this.#answers.delete(id);
        if (this.#answers.size === 0) this.#channel.socket.unref();
        if (error === undefined) resolve(value);
        else reject(error);
      };
      const onAbort = () => answer(undefined, signal?.reason ?? new AbortedError("aborted"));
      const timer = afterRunning(timeoutMs, () =>
        answer(undefined, new TimeoutError(what, timeoutMs, this.#activity())),
      );
      signal?.addEventListener("abort", onAbort);
      this.#answers.set(id, answer);
      this.#channel.socket.ref();
      this.#channel.send({ ...message, id });
    });
  }

  #activity(): RankActivity[] {
    return Array.from({ length: this.worldSize }, (_, rank) => ({ rank, arrived: this.#joined.has(rank) }));
  }

  #receive(message: Message): void {
    const { kind, id, value, error, rank, message: text } = message;
    if (kind === "answer" && typeof id === "number") {
      const problem =
        typeof error === "string" ? new InvalidArgumentError("value", described("refused"), error) : undefined;
      this.#answers.get(id)?.(typeof value === "string" ? value : undefined, problem);
    } else if (kind === "joined" && typeof rank === "number") this.#joined.add(rank);
    else if (kind === "store-answer" && typeof id === "number") this.store.take(id, message["answer"] as StoreAnswer);
    else if (kind === "failed" && typeof rank === "number") this.#fail({ rank, message: String(text) });
    else if (kind === "closed") this.#finish(new ClosedError("the rendezvous", "was closed by its host"));
  }

  #fail(cause: WorldFailure): void {
    if (this.#failure !== undefined || this.#over !== undefined) return;
    this.#failure = cause;
    this.store.fail(new RankFailedError(cause.rank, this.generation, new Error(cause.message)));
    for (const listener of this.#listeners) listener(cause);
  }

  #lost(error: Error | undefined): void {
    const why = error === undefined ? "the connection to the rendezvous ended" : error.message;
    this.#fail({ rank: 0, message: `${why}: its host is gone` });
    this.#finish(new ClosedError("the rendezvous", "is gone", { cause: error }));
  }

  #finish(error: Error): void {
    if (this.#over !== undefined) return;
    this.#over = error;
    for (const answer of [...this.#answers.values()]) answer(undefined, error);
    this.store.end(error);
  }
}

/** Connects. @returns the error when nobody listens @throws InvalidArgumentError where the peers do not agree on TLS */
async function reach(host: string, port: number, timeoutMs: number, tls?: TlsIdentity): Promise<Socket | Error> {
  let socket: Socket;
  try {
    socket = await transportFor(tls).connect({ host, port }, timeoutMs);
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw error;
    return error as Error;
  }
  if (!socket.connecting) return socket;
  return new Promise((resolve) => {
    const timer = afterRunning(timeoutMs, () => socket.destroy(new Error("no answer")));
    const settle = (result: Socket | Error) => {
      timer.cancel();
      socket.removeAllListeners();
      if (result instanceof Error) socket.on("error", () => {});
      resolve(result);
    };
    socket.once("connect", () => settle(socket));
    socket.once("error", settle);
  });
}

/** @throws MismatchError, InvalidArgumentError where the store does not let this rank in */
function checkAnswer(answer: Message) {
  const { refused, sides, joined, failure } = answer as {
    readonly refused?: string;
    readonly sides?: readonly [{ readonly problem: string }, ...MismatchSide[]];
    readonly joined?: readonly number[];
    readonly failure?: WorldFailure;
  };
  if (sides !== undefined) {
    const [{ problem }, ...both] = sides;
    throw new MismatchError(problem, both);
  }
  if (refused !== undefined)
    throw new InvalidArgumentError("rank", described("refused"), `a place that is free: ${refused}`);
  return { joined: joined ?? [], failure };
}
