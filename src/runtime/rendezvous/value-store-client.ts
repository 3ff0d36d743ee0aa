/** A rank's side of its world's store (value-store.ts): checks arguments, keeps deadlines, and says who is missing. */
import {
  type ChoraleError,
  ClosedError,
  InvalidArgumentError,
  type RankActivity,
  show,
  TimeoutError,
} from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { afterRunning, DEFAULT_TIMEOUT_MS, type RunningTimer } from "../comm/index.ts";
import { MAX_KEY_CHARS, MAX_TEXT_BYTES, type StoreAnswer, type StoreAsk } from "./value-store.ts";

/** How long the store may take to say who has come to a barrier whose deadline has passed, ms. */
const LAST_WORDS_MS = 1_000;

export interface StoreOptions {
  /** Deadline of the call, ms; 60 s by default. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * What the ranks of a world tell each other beside collectives: values by key, counters, barriers. It stands with the
 * launcher, or with rank 0 of another launcher's world: what a rank has set stays when the rank dies, and in the generations
 * that follow. Values are text of at most 64 KiB.
 *
 * Calls fail with `TimeoutError` at their deadline, `ClosedError` once this rank has left the generation, and
 * `InvalidArgumentError` for keys, values and counters that cannot be; `barrier`, and `get` of a key that is not there, also with
 * `RankFailedError` when the generation fails.
 */
export interface WorldStore {
  /** Sets a key's value, and gives it to all that wait for it. */
  set(key: string, value: string, options?: StoreOptions): Promise<void>;
  /** Gives a key's value, once some rank has set it. */
  get(key: string, options?: StoreOptions): Promise<string>;
  /** Gives a key's value if it is there. */
  find(key: string, options?: StoreOptions): Promise<string | undefined>;
  /** Removes a key. @returns whether it was there */
  delete(key: string, options?: StoreOptions): Promise<boolean>;
  /** Adds to a counter, which begins at 0; `find` and `get` give it as text. @returns its new value, which no other rank got */
  add(key: string, amount?: number, options?: StoreOptions): Promise<number>;
  /** Waits until every rank of this generation has called it with the same name as often. */
  barrier(name: string, options?: StoreOptions): Promise<void>;
}

interface Asked {
  /** It waits for what other ranks do. */
  readonly waits: boolean;
  answer(answer: StoreAnswer): void;
  fail(error: unknown): void;
}

export class StoreClient implements WorldStore {
  readonly #worldSize: number;
  readonly #send: (id: number, ask: StoreAsk) => void;
  readonly #asked = new Map<number, Asked>();
  /** How many barriers of a name this rank has come through. */
  readonly #passed = new Map<string, number>();
  #nextId = 1;
  #failure: ChoraleError | undefined;
  #over: Error | undefined;

  constructor(worldSize: number, send: (id: number, ask: StoreAsk) => void) {
    this.#worldSize = worldSize;
    this.#send = send;
  }

  /** Takes an answer. */
  take(id: number, answer: StoreAnswer): void {
    this.#asked.get(id)?.answer(answer);
  }

  /** The generation has failed: ends every call that waits for other ranks. What is there can still be read and set. */
  fail(error: ChoraleError): void {
    this.#failure ??= error;
    for (const asked of [...this.#asked.values()]) if (asked.waits) asked.fail(error);
  }

  /** This rank has left the generation, or the store is gone: ends every call, and refuses later ones. */
  end(error: Error): void {
    this.#over ??= error;
    for (const asked of [...this.#asked.values()]) asked.fail(error);
  }

  async set(key: string, value: string, options?: StoreOptions): Promise<void> {
    if (typeof value !== "string") throw new InvalidArgumentError("value", value, "text");
    const sizeBytes = Buffer.byteLength(JSON.stringify(value));
    if (sizeBytes > MAX_TEXT_BYTES) {
      throw new InvalidArgumentError(
        "value",
        described(`${sizeBytes} bytes`),
        `text of at most ${MAX_TEXT_BYTES} bytes as JSON`,
      );
    }
    await this.#ask({ op: "set", key: checkKey(key), value }, `store.set(${show(key)})`, options);
  }

  async get(key: string, options?: StoreOptions): Promise<string> {
    const what = `store.get(${show(key)}), which no rank has set,`;
    const op = this.#failure === undefined ? "get" : "find";
    const { value } = await this.#ask({ op, key: checkKey(key) }, what, options);
    if (value === undefined && this.#failure !== undefined) throw this.#failure;
    return String(value);
  }

  async find(key: string, options?: StoreOptions): Promise<string | undefined> {
    const { value } = await this.#ask({ op: "find", key: checkKey(key) }, `store.find(${show(key)})`, options);
    return value === undefined ? undefined : String(value);
  }

  async delete(key: string, options?: StoreOptions): Promise<boolean> {
    return (
      (await this.#ask({ op: "delete", key: checkKey(key) }, `store.delete(${show(key)})`, options)).value === true
    );
  }

  async add(key: string, amount = 1, options?: StoreOptions): Promise<number> {
    if (!Number.isSafeInteger(amount)) throw new InvalidArgumentError("amount", amount, "a whole number within 2^53");
    return Number(
      (await this.#ask({ op: "add", key: checkKey(key), amount }, `store.add(${show(key)})`, options)).value,
    );
  }

  async barrier(name: string, options?: StoreOptions): Promise<void> {
    const nth = this.#passed.get(checkKey(name, "name")) ?? 0;
    if (this.#failure !== undefined) throw this.#failure;
    await this.#ask({ op: "barrier", key: name, nth }, `store.barrier(${show(name)})`, options);
    this.#passed.set(name, nth + 1);
  }

  #ask(ask: StoreAsk, what: string, options: StoreOptions = {}): Promise<StoreAnswer> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
    if (typeof timeoutMs !== "number" || !(timeoutMs > 0)) {
      throw new InvalidArgumentError("timeoutMs", timeoutMs, "a number of milliseconds above 0");
    }
    return new Promise((resolve, reject) => {
      if (this.#over !== undefined) return reject(this.#over);
      if (signal?.aborted) return reject(signal.reason);
      const id = this.#nextId++;
      let lastWords: RunningTimer | undefined;
      const settle = (then: () => void) => {
        timer.cancel();
        lastWords?.cancel();
        signal?.removeEventListener("abort", onAbort);
        this.#asked.delete(id);
        then();
      };
      const fail = (error: unknown) => settle(() => reject(error));
      const onAbort = () => {
        this.#leave(id);
        fail(signal?.reason);
      };
      const timer = afterRunning(timeoutMs, () => {
        const late = (arrived?: readonly number[]) =>
          fail(new TimeoutError(what, timeoutMs, this.#activity(ask, arrived)));
        // An answer that was under way comes before this one, and counts.
        this.#leave(id, ({ arrived }) => late(arrived));
        lastWords = afterRunning(LAST_WORDS_MS, late);
      });
      this.#asked.set(id, {
        waits: ask.op === "get" || ask.op === "barrier",
        answer: (answer) =>
          answer.error === undefined
            ? settle(() => resolve(answer))
            : fail(
                new InvalidArgumentError(
                  ask.op === "barrier" ? "barrier" : "key",
                  "key" in ask ? ask.key : "",
                  answer.error,
                ),
              ),
        fail,
      });
      signal?.addEventListener("abort", onAbort);
      this.#send(id, ask);
    });
  }

  /** Takes a question back. */
  #leave(of: number, then: (answer: StoreAnswer) => void = () => {}): void {
    const id = this.#nextId++;
    const end = () => void this.#asked.delete(id);
    this.#asked.set(id, {
      waits: false,
      answer: (answer) => {
        end();
        then(answer);
      },
      fail: end,
    });
    this.#send(id, { op: "leave", of });
  }

  #activity(ask: StoreAsk, arrived: readonly number[] | undefined): RankActivity[] {
    if (ask.op !== "barrier" || arrived === undefined) return [];
    // Without strands the error would say what their last collective was, of which nothing is known here.
    return Array.from({ length: this.#worldSize }, (_, rank) => ({
      rank,
      arrived: arrived.includes(rank),
      strands: [],
    }));
  }
}

function checkKey(key: string, argument = "key"): string {
  if (typeof key === "string" && key.length > 0 && key.length <= MAX_KEY_CHARS) return key;
  throw new InvalidArgumentError(argument, key, `text of 1 to ${MAX_KEY_CHARS} characters`);
}

/** The store of a rank that has left its generation. */
export function storeOver(generation: number): ClosedError {
  return new ClosedError(
    "the store",
    `was left with generation ${generation}: ask for that of the world that rebuild() gave`,
  );
}
