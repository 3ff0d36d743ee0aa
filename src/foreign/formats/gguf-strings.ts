/**
 * Long lists of strings in GGUF metadata: tokens and merges, a million at most. `@huggingface/gguf` makes a decoder and a
 * copy for each string, which takes ten times as long as the whole header otherwise; here they are read in one walk, and
 * the library is given the header with these lists empty. Anything that breaks the specification (ggml/docs/gguf.md) ends
 * the walk: the library then finds it and says what is wrong.
 */
import type { ByteSource } from "./byte-source.ts";

/** Shorter lists are left to the library, as are longer ones, which it refuses. */
const MIN_STRINGS = 1000;
const MAX_STRINGS = 1_000_000;
const WINDOW_BYTES = 1 << 20;

const STRING = 8;
const ARRAY = 9;
/** Bytes of a value, by type, of all types but strings and arrays. */
const SIZES: Readonly<Record<number, number>> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };

export interface LongStrings {
  /** The lists, by their keys. */
  readonly lists: ReadonlyMap<string, readonly string[]>;
  /** The file in which these lists are empty. */
  readonly rest: ByteSource;
  /** Bytes that `rest` lacks. */
  readonly removedBytes: number;
}

/** Ends the walk: the header breaks the specification, or is cut off. */
const STOP = Symbol("stop");

/** Reads a file from front to back. */
class Reader {
  readonly #source: ByteSource;
  readonly #end: number;
  at: number;
  #window: Buffer = Buffer.alloc(0);
  #start = 0;

  constructor(source: ByteSource, at: number, end: number) {
    this.#source = source;
    this.at = at;
    this.#end = end;
  }

  /** Skips `count` bytes. @returns where they lie in the window */
  #take(count: number): number {
    if (this.at + count > this.#end) throw STOP;
    if (this.at < this.#start || this.at + count > this.#start + this.#window.length) {
      this.#window = Buffer.alloc(Math.min(Math.max(count, WINDOW_BYTES), this.#end - this.at));
      this.#source.read(this.#window, this.at);
      this.#start = this.at;
    }
    const place = this.at - this.#start;
    this.at += count;
    return place;
  }

  skip(count: number): void {
    if (this.at + count > this.#end) throw STOP;
    this.at += count;
  }
  u32(): number {
    const place = this.#take(4);
    return this.#window.readUInt32LE(place);
  }
  count(): number {
    const place = this.#take(8);
    if (this.#window.readUInt32LE(place + 4) !== 0) throw STOP;
    return this.#window.readUInt32LE(place);
  }
  text(): string {
    const length = this.count();
    const place = this.#take(length);
    return this.#window.toString("utf8", place, place + length);
  }
}

/**
 * Finds and reads the long lists of strings.
 * @param numEntries how many metadata entries there are; the first begins at byte 24
 * @param maxBytes the largest header that is read
 */
export function readLongStrings(source: ByteSource, numEntries: number, maxBytes: number): LongStrings {
  const reader = new Reader(source, 24, Math.min(source.sizeBytes, maxBytes));
  const lists = new Map<string, readonly string[]>();
  /** Bytes of a list, from its number of strings to its end. */
  const cuts: { readonly begin: number; readonly end: number }[] = [];
  try {
    for (let entry = 0; entry < numEntries; entry++) {
      const key = reader.text();
      const list = readValue(reader);
      // Where a key occurs twice, its last value counts, as in the library.
      lists.delete(key);
      if (list === undefined) continue;
      lists.set(key, list.strings);
      cuts.push({ begin: list.begin, end: reader.at });
    }
  } catch (error) {
    if (error !== STOP) throw error;
  }
  return { lists, ...without(source, cuts) };
}

/** Skips a value. @returns it, if it is a long list of strings */
function readValue(reader: Reader): { readonly begin: number; readonly strings: readonly string[] } | undefined {
  const type = reader.u32();
  if (type === STRING) {
    reader.skip(reader.count());
    return undefined;
  }
  if (type !== ARRAY) {
    reader.skip(SIZES[type] ?? Number.POSITIVE_INFINITY);
    return undefined;
  }
  const elements = reader.u32();
  const begin = reader.at;
  const count = reader.count();
  if (elements !== STRING) {
    reader.skip(count * (SIZES[elements] ?? Number.POSITIVE_INFINITY));
    return undefined;
  }
  if (count > MAX_STRINGS) throw STOP;
  const strings: string[] = [];
  for (let i = 0; i < count; i++) strings.push(reader.text());
  return count < MIN_STRINGS ? undefined : { begin, strings };
}

/** The source in which each cut is the number 0. */
function without(source: ByteSource, cuts: readonly { readonly begin: number; readonly end: number }[]) {
  const removedBytes = cuts.reduce((sum, { begin, end }) => sum + end - begin - 8, 0);
  if (cuts.length === 0) return { rest: source, removedBytes };
  const zero = new Uint8Array(8);
  /** Pieces of the new file: where each begins, how long it is, and its place in the source; zeros have none. */
  const pieces: { at: number; length: number; from: number | undefined }[] = [];
  let [at, from] = [0, 0];
  for (const { begin, end } of [...cuts, { begin: source.sizeBytes, end: source.sizeBytes }]) {
    pieces.push({ at, length: begin - from, from });
    at += begin - from;
    if (begin < end) pieces.push({ at, length: 8, from: undefined });
    if (begin < end) at += 8;
    from = end;
  }
  const rest: ByteSource = {
    where: source.where,
    sizeBytes: source.sizeBytes - removedBytes,
    read(into, position) {
      for (const piece of pieces) {
        const first = Math.max(position, piece.at);
        const last = Math.min(position + into.length, piece.at + piece.length);
        if (first >= last) continue;
        const part = into.subarray(first - position, last - position);
        if (piece.from === undefined) part.set(zero.subarray(first - piece.at, last - piece.at));
        else source.read(part, piece.from + first - piece.at);
      }
    },
    close: () => source.close(),
  };
  return { rest, removedBytes };
}
