/**
 * Bootstrap for ranks that are threads of one process: a key-value store in the launcher's thread, reached over each
 * worker's message port. The threads backend does not need it (its ranks share memory from the start); engines that
 * exchange ids do.
 */
import { type RankActivity, TimeoutError } from "../../core/index.ts";
import { afterRunning, type Bootstrap, DEFAULT_TIMEOUT_MS } from "../comm/index.ts";
import { checkValue, describeKey, type WorldFailure } from "../rendezvous/internal.ts";
import type { FromRank, ToRank } from "./messages.ts";

type BootstrapRequest = Extract<FromRank, { kind: `bootstrap-${string}` }>;
/** The launcher's side, for one generation: keeps the values, and answers the ranks that wait for them. */
export class BootstrapStore {
  readonly #generation: number;
  readonly #values = new Map<string, Uint8Array>();
  readonly #waiting = new Map<string, ((message: ToRank) => void)[]>();
  readonly #ranks: ((message: ToRank) => void)[] = [];
  #failure: WorldFailure | undefined;

  constructor(generation: number) {
    this.#generation = generation;
  }

  addRank(reply: (message: ToRank) => void): void {
    this.#ranks.push(reply);
  }

  /** Answers a request; one of another generation came late, and is dropped. */
  handle(message: BootstrapRequest, reply: (message: ToRank) => void): void {
    const generation = this.#generation;
    if (message.generation !== generation) return;
    switch (message.kind) {
      case "bootstrap-set":
        this.#values.set(message.key, message.value);
        for (const waiter of this.#waiting.get(message.key) ?? []) {
          waiter({ kind: "bootstrap-value", generation, key: message.key, value: message.value });
        }
        this.#waiting.delete(message.key);
        return;
      case "bootstrap-get": {
        const value = this.#values.get(message.key);
        if (value !== undefined) reply({ kind: "bootstrap-value", generation, key: message.key, value });
        else this.#waiting.set(message.key, [...(this.#waiting.get(message.key) ?? []), reply]);
        return;
      }
      case "bootstrap-fail":
        this.fail(message);
    }
  }

  /** Tells every rank, once, that the world is over. */
  fail({ rank, message }: WorldFailure): void {
    if (this.#failure !== undefined) return;
    this.#failure = { rank, message };
    const generation = this.#generation;
    for (const reply of this.#ranks) reply({ kind: "bootstrap-failed", generation, rank, message });
  }
}

/** A rank's side. */
export class PortBootstrap implements Bootstrap {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly #post: (message: FromRank) => void;
  readonly #waiting = new Map<string, ((value: Uint8Array | Error) => void)[]>();
  readonly #listeners: ((cause: WorldFailure) => void)[] = [];
  #failure: WorldFailure | undefined;
  #closed: Error | undefined;

  constructor(rank: number, worldSize: number, generation: number, post: (message: FromRank) => void) {
    this.rank = rank;
    this.worldSize = worldSize;
    this.generation = generation;
    this.#post = post;
  }

  /** Takes a message that came from the launcher; one of another generation is dropped. */
  receive(message: ToRank): void {
    if (!("generation" in message) || message.generation !== this.generation) return;
    if (message.kind === "bootstrap-value") {
      for (const resolve of this.#waiting.get(message.key) ?? []) resolve(message.value);
      this.#waiting.delete(message.key);
    } else if (message.kind === "bootstrap-failed" && this.#failure === undefined) {
      this.#failure = { rank: message.rank, message: message.message };
      for (const listener of this.#listeners) listener(this.#failure);
    }
  }

  /** Ends it: whoever waits for a key gets `cause`. */
  close(cause: Error): void {
    if (this.#closed !== undefined) return;
    this.#closed = cause;
    for (const waiters of [...this.#waiting.values()]) for (const leave of waiters) leave(cause);
    this.#waiting.clear();
    this.#listeners.length = 0;
  }

  async set(key: string, value: Uint8Array): Promise<void> {
    checkValue(value);
    if (this.#closed !== undefined) throw this.#closed;
    this.#post({ kind: "bootstrap-set", generation: this.generation, key, value: value.slice() });
  }

  get(key: string, options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<Uint8Array> {
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    return new Promise((resolve, reject) => {
      const leave = () => {
        timer.cancel();
        options.signal?.removeEventListener("abort", onAbort);
        const others = (this.#waiting.get(key) ?? []).filter((waiter) => waiter !== onValue);
        if (others.length === 0) this.#waiting.delete(key);
        else this.#waiting.set(key, others);
      };
      const onValue = (value: Uint8Array | Error) => {
        leave();
        if (value instanceof Error) reject(value);
        else resolve(value);
      };
      const onAbort = () => {
        leave();
        reject(options.signal?.reason);
      };
      const timer = afterRunning(timeoutMs, () => {
        leave();
        const me: RankActivity = { rank: this.rank, arrived: true };
        reject(new TimeoutError(describeKey(key), timeoutMs, [me]));
      });
      if (this.#closed !== undefined) return onValue(this.#closed);
      if (options.signal?.aborted) return onAbort();
      options.signal?.addEventListener("abort", onAbort);
      this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), onValue]);
      this.#post({ kind: "bootstrap-get", generation: this.generation, key });
    });
  }

  fail({ rank, message }: WorldFailure): void {
    this.#post({ kind: "bootstrap-fail", generation: this.generation, rank, message });
  }

  onFailure(listener: (cause: WorldFailure) => void): void {
    if (this.#failure !== undefined) listener(this.#failure);
    else this.#listeners.push(listener);
  }
}

/** The bootstrap of a world of one. */
export function soloBootstrap(generation: number): Bootstrap {
  const store = new BootstrapStore(generation);
  const door: PortBootstrap = new PortBootstrap(0, 1, generation, (message) => {
    if (message.kind.startsWith("bootstrap-"))
      store.handle(message as BootstrapRequest, (reply) => door.receive(reply));
  });
  return door;
}
