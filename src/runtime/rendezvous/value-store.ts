/**
 * The store that a world's programs use: values by key, counters, and barriers that need no collective. It stands with whoever
 * supervises the world, so it outlives the ranks that wrote to it, and the generations. It asks no network: what ranks ask
 * comes as plain data, by whatever way they reach it. What one rank can make it hold is bounded.
 */

/** Longest value, bytes of its JSON: what is large belongs in files or collectives. */
export const MAX_TEXT_BYTES = 64 * 1024;
export const MAX_KEY_CHARS = 256;
/** Most keys, and characters of all keys and values together. */
const MAX_KEYS = 16_384;
const MAX_TOTAL_CHARS = 64 * 1024 * 1024;
/** Questions of one rank that may be open. */
const MAX_OPEN = 1_024;

/** What a rank asks. Each question has a number; `leave` takes back the question `of` that waits. */
export type StoreAsk =
  | { readonly op: "set"; readonly key: string; readonly value: string }
  | { readonly op: "get" | "find" | "delete"; readonly key: string }
  | { readonly op: "add"; readonly key: string; readonly amount: number }
  | { readonly op: "barrier"; readonly key: string; readonly nth: number }
  | { readonly op: "leave"; readonly of: number };

/** The answer, or why there is none. */
export interface StoreAnswer {
  readonly value?: string | number | boolean;
  /** What is wrong with the argument, as the end of a sentence. */
  readonly error?: string;
  /** Of a question that was taken back: the ranks that have come to the barrier. */
  readonly arrived?: readonly number[];
}

/** A rank of the current generation, as the store knows it. */
export interface Asker {
  readonly rank: number;
  readonly worldSize: number;
  answer(id: number, answer: StoreAnswer): void;
}

interface Open {
  readonly asker: Asker;
  readonly id: number;
  readonly place: Map<string, Open[]>;
  readonly name: string;
}

export class ValueStore {
  readonly #values = new Map<string, string>();
  /** Who waits for a key, and who has come to a barrier. */
  readonly #waiting = new Map<string, Open[]>();
  readonly #barriers = new Map<string, Open[]>();
  readonly #open = new Map<Asker, Map<number, Open>>();
  #totalChars = 0;

  /** Answers a question, now or when its answer is there. */
  ask(asker: Asker, id: number, ask: StoreAsk): void {
    const isFull = (this.#open.get(asker)?.size ?? 0) >= MAX_OPEN;
    if (ask.op === "barrier" && !isFull) this.#arrive(asker, id, `${ask.key}#${ask.nth}`);
    else if (ask.op === "get" && !isFull) {
      const known = this.#values.get(ask.key);
      if (known === undefined) this.#wait({ asker, id, place: this.#waiting, name: ask.key });
      else asker.answer(id, { value: known });
    } else asker.answer(id, this.#now(asker, ask));
  }

  /** Drops what a rank waits for: it is gone, or in another generation. What it has set stays. */
  forget(asker: Asker): void {
    for (const open of [...(this.#open.get(asker)?.values() ?? [])]) this.#drop(open);
  }

  /** Drops all that ranks wait for: a generation is over. Values stay. */
  restart(): void {
    for (const asker of [...this.#open.keys()]) this.forget(asker);
  }

  #now(asker: Asker, ask: StoreAsk): StoreAnswer {
    switch (ask.op) {
      case "set": {
        const error = this.#put(ask.key, ask.value);
        return error === undefined ? {} : { error };
      }
      case "find": {
        const value = this.#values.get(ask.key);
        return value === undefined ? {} : { value };
      }
      case "delete": {
        const value = this.#values.get(ask.key);
        if (value !== undefined) this.#totalChars -= ask.key.length + value.length;
        return { value: this.#values.delete(ask.key) };
      }
      case "add": {
        const before = this.#values.get(ask.key) ?? "0";
        const sum = Number(before) + ask.amount;
        if (!/^-?\d+$/.test(before)) return { error: `a key of a whole number; its value is ${clipped(before)}` };
        if (!Number.isSafeInteger(sum)) return { error: `a sum within 2^53; the counter stands at ${before}` };
        const error = this.#put(ask.key, String(sum));
        return error === undefined ? { value: sum } : { error };
      }
      case "leave": {
        const open = this.#open.get(asker)?.get(ask.of);
        // It was answered already, and that answer is on its way.
        if (open === undefined) return {};
        const arrived = (open.place.get(open.name) ?? []).map((one) => one.asker.rank);
        this.#drop(open);
        return { arrived };
      }
      case "get":
      case "barrier":
        return { error: `fewer than ${MAX_OPEN} waiting calls of a rank` };
    }
  }

  /** @returns why it is refused */
  #put(key: string, value: string): string | undefined {
    const before = this.#values.get(key);
    const total = this.#totalChars + value.length - (before?.length ?? -key.length);
    if (total > MAX_TOTAL_CHARS || (before === undefined && this.#values.size >= MAX_KEYS)) {
      return `at most ${MAX_KEYS} keys of ${MAX_TOTAL_CHARS} characters in all; the store holds ${this.#values.size} of ${this.#totalChars}`;
    }
    this.#values.set(key, value);
    this.#totalChars = total;
    for (const open of [...(this.#waiting.get(key) ?? [])]) {
      this.#drop(open);
      open.asker.answer(open.id, { value });
    }
    return undefined;
  }

  #arrive(asker: Asker, id: number, name: string): void {
    const here = this.#barriers.get(name) ?? [];
    if (here.some((one) => one.asker === asker)) {
      asker.answer(id, { error: "one call of a barrier of this name at a time" });
      return;
    }
    this.#wait({ asker, id, place: this.#barriers, name });
    const all = this.#barriers.get(name) ?? [];
    if (all.length < asker.worldSize) return;
    for (const open of [...all]) {
      this.#drop(open);
      open.asker.answer(open.id, {});
    }
  }

  #wait(open: Open): void {
    const { asker, id, place, name } = open;
    place.set(name, [...(place.get(name) ?? []), open]);
    const own = this.#open.get(asker) ?? new Map<number, Open>();
    own.set(id, open);
    this.#open.set(asker, own);
  }

  #drop(open: Open): void {
    const { asker, id, place, name } = open;
    const others = (place.get(name) ?? []).filter((one) => one !== open);
    if (others.length === 0) place.delete(name);
    else place.set(name, others);
    const own = this.#open.get(asker);
    own?.delete(id);
    if (own?.size === 0) this.#open.delete(asker);
  }
}

/** Whether what a rank sent is a question, with all its parts within their limits. */
export function isStoreAsk(value: unknown): value is StoreAsk {
  if (typeof value !== "object" || value === null) return false;
  const { op, key, value: text, amount, nth, of } = value as Readonly<Record<string, unknown>>;
  if (op === "leave") return Number.isSafeInteger(of);
  if (typeof key !== "string" || key.length === 0 || key.length > MAX_KEY_CHARS) return false;
  if (op === "set") return typeof text === "string" && text.length <= MAX_TEXT_BYTES;
  if (op === "add") return Number.isSafeInteger(amount);
  if (op === "barrier") return Number.isSafeInteger(nth);
  return op === "get" || op === "find" || op === "delete";
}

function clipped(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}...` : text);
}
