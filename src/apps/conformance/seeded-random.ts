/**
 * Random data that every rank can make for every other rank: an element is a hash of (seed, rank, index), so that a
 * slice of any rank's input is there without the rest of it and without asking that rank.
 */
import { DTYPES, type DType, type TypedArray } from "../../core/index.ts";

/** The finalizer of MurmurHash3: every input bit changes half of the output bits. */
export function mix(x: number): number {
  let h = x | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** A hash of several numbers. */
export function hashOf(...values: readonly number[]): number {
  let h = 0x9e3779b9;
  for (const value of values) h = mix(h ^ mix(value + 0x7f4a7c15));
  return h;
}

/** The element of a list that a hash names. */
export function pick<T>(list: readonly T[], hash: number): T {
  return list[hash % list.length] as T;
}

/**
 * `bits`: any pattern, NaNs included, for operations that copy. `numbers`: magnitudes in [1/8, 2) and zeros. `factors`:
 * magnitudes in [1/2, 2), whose products neither overflow nor lose bits to underflow. Integers are always any pattern.
 */
export type Fill = "bits" | "numbers" | "factors";

interface Layout {
  readonly exponent: number;
  readonly mantissaBits: number;
  readonly signBit: number;
}
const LAYOUT = {
  f16: { exponent: 15, mantissaBits: 10, signBit: 15 },
  bf16: { exponent: 127, mantissaBits: 7, signBit: 15 },
  f8e4m3: { exponent: 7, mantissaBits: 3, signBit: 7 },
  f8e5m2: { exponent: 15, mantissaBits: 2, signBit: 7 },
  f32: { exponent: 127, mantissaBits: 23, signBit: 31 },
  f64: { exponent: 1023, mantissaBits: 20, signBit: 31 }, // the upper word
} as const satisfies Record<string, Layout>;

/** Fills `out` with elements [start, start + out.length) of what `rank` has under `seed`. */
export function fillRandom(dtype: DType, fill: Fill, seed: number, rank: number, start: number, out: TypedArray): void {
  const { isFloat, sizeBytes } = DTYPES[dtype];
  const isWide = sizeBytes === 8;
  // Words for every dtype: a loop that stores into arrays of all classes is several times slower.
  const isOwn = sizeBytes >= 4;
  const words = isOwn ? new Uint32Array(out.buffer, out.byteOffset, out.byteLength >>> 2) : new Uint32Array(out.length);
  fillHashes(words, start, hashOf(seed, rank), isWide);
  if (isFloat && fill !== "bits") shapeNumbers(words, LAYOUT[dtype as keyof typeof LAYOUT], fill, isWide);
  // The lower bytes of the words.
  if (sizeBytes === 2) new Uint16Array(out.buffer, out.byteOffset, out.length).set(words);
  if (sizeBytes === 1) new Uint8Array(out.buffer, out.byteOffset, out.length).set(words);
}

/** A hash of each element; of wide ones a hash of that in the lower word. */
function fillHashes(words: Uint32Array, start: number, salt: number, isWide: boolean): void {
  const step = isWide ? 2 : 1;
  for (let i = step - 1, k = start; i < words.length; i += step, k++) {
    const h = mix(Math.imul(k, 0x9e3779b1) ^ salt);
    words[i] = h;
    if (isWide) words[i - 1] = mix(h + 1);
  }
}

/** Makes hashes patterns of floats of like magnitudes; of wide floats, their upper words. */
function shapeNumbers(words: Uint32Array, layout: Layout, fill: Fill, isWide: boolean): void {
  const { exponent, mantissaBits, signBit } = layout;
  const [lowest, scales] = fill === "factors" ? [exponent - 1, 1] : [exponent - 3, 3];
  const mantissas = (1 << mantissaBits) - 1;
  const step = isWide ? 2 : 1;
  for (let i = step - 1; i < words.length; i += step) {
    const h = words[i]!;
    const sign = ((h >>> 6) & 1) << signBit;
    const scale = lowest + ((h >>> 7) & scales);
    words[i] = fill === "numbers" && (h & 0x3f) === 0 ? 0 : sign | (scale << mantissaBits) | ((h >>> 9) & mantissas);
  }
}

/** A 32-bit hash of the bytes of an array: equal on all ranks when the results are bit-identical. */
export function digest(array: TypedArray): number {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let h = hashOf(bytes.length);
  if (bytes.byteOffset % 4 === 0) {
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >>> 2);
    for (let i = 0; i < words.length; i++) h = (Math.imul(h ^ (words[i] ?? 0), 0x01000193) + 0x3c6ef372) | 0;
    for (let i = bytes.length & ~3; i < bytes.length; i++) h = Math.imul(h ^ (bytes[i] ?? 0), 0x01000193);
  } else {
    let i = 0;
    for (; i + 4 <= bytes.length; i += 4) {
      const word =
        (bytes[i] ?? 0) | ((bytes[i + 1] ?? 0) << 8) | ((bytes[i + 2] ?? 0) << 16) | ((bytes[i + 3] ?? 0) << 24);
      h = (Math.imul(h ^ word, 0x01000193) + 0x3c6ef372) | 0;
    }
    for (; i < bytes.length; i++) h = Math.imul(h ^ (bytes[i] ?? 0), 0x01000193);
  }
  return h >>> 0;
}
