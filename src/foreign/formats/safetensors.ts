/**
 * safetensors: an 8-byte little-endian header length, a JSON header, then the tensors' bytes
 * (https://github.com/huggingface/safetensors, "Format"). The header is read and checked without touching the data:
 * what the reference implementation refuses is refused (header beyond 100 MB, offsets outside the file, holes, overlaps,
 * a size that is not shape times dtype), and duplicate keys too. Nothing is allocated from a number that the file
 * states before that number was checked against the file's size. Data need not be aligned: reads copy.
 */
import { FormatError, show } from "../../core/index.ts";
import type { ByteSource } from "./byte-source.ts";
import { parseStrictJson } from "./json.ts";
import { decodeUtf8 } from "./text-file.ts";

/** Bits of one element, by the names that safetensors uses. */
export const SAFETENSORS_DTYPE_BITS = {
  BOOL: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
} as const;

export type SafetensorsDType = keyof typeof SAFETENSORS_DTYPE_BITS;

/** What a header says of one tensor. */
export interface SafetensorsTensor {
  readonly name: string;
  readonly dtype: SafetensorsDType;
  readonly shape: readonly number[];
  readonly numElements: number;
  /** First byte and end, counted from the start of the file. */
  readonly begin: number;
  readonly end: number;
}

export interface SafetensorsHeader {
  readonly where: string;
  /** First byte of the data, counted from the start of the file. */
  readonly dataOffset: number;
  readonly metadata: Readonly<Record<string, string>>;
  /** By name, in the order of their data. */
  readonly tensors: ReadonlyMap<string, SafetensorsTensor>;
}

/** The reference implementation's bound on a header, bytes. */
export const MAX_HEADER_BYTES = 100_000_000;
/** No tensor of a model has more dims; a longer list is a broken file. */
const MAX_DIMS = 32;

type Fail = (problem: string, field?: string) => never;

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function readMetadata(value: unknown, fail: Fail): Readonly<Record<string, string>> {
  if (!isRecord(value)) fail(`is ${show(value)}; expected an object of strings`, "__metadata__");
  const metadata: Record<string, string> = Object.create(null);
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== "string") fail(`${show(key)} is ${show(text)}; expected a string`, "__metadata__");
    metadata[key] = text;
  }
  return Object.freeze(metadata);
}

/** Product of a shape, `undefined` beyond 2^53. */
function product(shape: readonly number[]): number | undefined {
  if (shape.includes(0)) return 0;
  let count = 1;
  for (const dim of shape) {
    count *= dim;
    if (!Number.isSafeInteger(count)) return undefined;
  }
  return count;
}

function readTensor(
  name: string,
  entry: unknown,
  dataOffset: number,
  dataBytes: number,
  fail: Fail,
): SafetensorsTensor {
  const field = show(name);
  if (!isRecord(entry)) fail(`is ${show(entry)}; expected {dtype, shape, data_offsets}`, field);
  const { dtype, shape, data_offsets: offsets } = entry;
  for (const key of Object.keys(entry)) {
    if (key !== "dtype" && key !== "shape" && key !== "data_offsets") fail(`has the unknown key ${show(key)}`, field);
  }
  if (typeof dtype !== "string" || !Object.hasOwn(SAFETENSORS_DTYPE_BITS, dtype)) {
    fail(`dtype is ${show(dtype)}; expected one of ${Object.keys(SAFETENSORS_DTYPE_BITS).join(", ")}`, field);
  }
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
  if (!Array.isArray(shape) || shape.length > MAX_DIMS || !shape.every(isCount)) {
    fail(`shape is ${show(shape)}; expected at most ${MAX_DIMS} integers, 0 or more`, field);
  }
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount)) {
    fail(`data_offsets is ${show(offsets)}; expected [begin, end]`, field);
  }
  const [begin, end] = offsets as [number, number];
  if (begin > end || end > dataBytes) {
    fail(`data_offsets is ${show(offsets)}; expected begin <= end <= ${dataBytes}, the bytes of data`, field);
  }
  const numElements = product(shape as number[]);
  const bits = SAFETENSORS_DTYPE_BITS[dtype as SafetensorsDType];
  // Below 2^50 bytes every product here is exact; a file of that size does not exist.
  if (numElements === undefined || numElements > 2 ** 50 || (numElements * bits) / 8 !== end - begin) {
    const needed = numElements === undefined ? "more than 2^53 elements" : `${(numElements * bits) / 8} bytes`;
    fail(`shape ${show(shape)} of ${dtype} has ${needed}, but data_offsets span ${end - begin}`, field);
  }
  return Object.freeze({
    name,
    dtype: dtype as SafetensorsDType,
    shape: Object.freeze(shape as number[]),
    numElements,
    begin: dataOffset + begin,
    end: dataOffset + end,
  });
}

/**
 * Reads and checks a header. Reads 8 bytes and the header, never the data.
 * @throws FormatError saying which tensor and which rule
 */
export function readSafetensorsHeader(source: ByteSource): SafetensorsHeader {
  const { where, sizeBytes } = source;
  const fail: Fail = (problem, field) => {
    throw new FormatError(where, problem, field === undefined ? {} : { field });
  };
  if (sizeBytes < 8) fail(`has ${sizeBytes} bytes; a safetensors file has at least 8`);
  const lengthBytes = new Uint8Array(8);
  source.read(lengthBytes, 0);
  const headerBytes = new DataView(lengthBytes.buffer).getBigUint64(0, true);
  if (headerBytes > BigInt(Math.min(MAX_HEADER_BYTES, sizeBytes - 8))) {
    fail(
      `states a header of ${headerBytes} bytes; expected at most ${Math.min(MAX_HEADER_BYTES, sizeBytes - 8)} ` +
        `(the file has ${sizeBytes} bytes). Is it a safetensors file, and complete?`,
    );
  }
  const bytes = new Uint8Array(Number(headerBytes));
  source.read(bytes, 8);
  if (bytes[0] !== 0x7b) fail("the header does not begin with {");
  const header = parseStrictJson(decodeUtf8(bytes, where), where) as Record<string, unknown>;

  const dataOffset = 8 + bytes.length;
  const dataBytes = sizeBytes - dataOffset;
  let metadata: Readonly<Record<string, string>> = Object.freeze({});
  const tensors: SafetensorsTensor[] = [];
  for (const [name, entry] of Object.entries(header)) {
    // A null stands for no metadata, as in the reference implementation.
    if (name === "__metadata__") metadata = entry === null ? metadata : readMetadata(entry, fail);
    else tensors.push(readTensor(name, entry, dataOffset, dataBytes, fail));
  }
  // The data must be covered exactly: an overlap lets one byte mean two things, a hole hides bytes.
  tensors.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let covered = dataOffset;
  for (const tensor of tensors) {
    if (tensor.begin !== covered) {
      const kind = tensor.begin < covered ? "overlaps the tensor before it" : "leaves a hole before it";
      fail(
        `data_offsets begin at ${tensor.begin - dataOffset}, which ${kind} (ends at ${covered - dataOffset})`,
        show(tensor.name),
      );
    }
    covered = tensor.end;
  }
  if (covered !== sizeBytes) fail(`has ${sizeBytes - covered} bytes after the last tensor that no tensor covers`);
  return Object.freeze({
    where,
    dataOffset,
    metadata,
    tensors: new Map(tensors.map((tensor) => [tensor.name, tensor])),
  });
}
