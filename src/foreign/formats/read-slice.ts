/**
 * Reads a rectangle of a tensor straight from its file into the caller's f32 memory: the rows and columns that one
 * rank holds. f32 whose rows lie side by side in the target is read in place; everything else passes through a bounce buffer
 * of at most 4 MiB, so reading a shard never needs more memory than the shard.
 */
import { decodeTable, FormatError, InvalidArgumentError, show } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { ByteSource } from "./byte-source.ts";
import type { SafetensorsTensor } from "./safetensors.ts";

/** Which part of a tensor, as a matrix of shape[0] rows and the product of the other dims as columns. */
export interface Slice {
  /** [start, end) of the first dim; all by default. */
  readonly rows?: readonly [number, number];
  /** [start, end) of the other dims, flattened; all by default. */
  readonly columns?: readonly [number, number];
  /** Elements from one row to the next in the target; the slice's width by default. */
  readonly stride?: number;
}

/** Largest bounce buffer, bytes. */
const BOUNCE_BYTES = 4 * 1024 * 1024;
/** Each row of a column slice is read by itself when it has at least this many bytes; otherwise whole rows are read. */
const SEPARATE_READ_BYTES = 16 * 1024;

/** Reads little-endian elements at the start of `bytes` into `into[at...]`. */
type Convert = (bytes: Uint8Array, from: number, count: number, into: Float32Array, at: number) => void;

/** Views 16-bit elements; the bounce buffer is aligned, and rows begin at even offsets of it. */
const u16 = (bytes: Uint8Array, from: number, count: number) =>
  new Uint16Array(bytes.buffer, bytes.byteOffset + from, count);

const CONVERT: { readonly [D in "F32" | "F64" | "F16" | "BF16"]: Convert } = {
  F32(bytes, from, count, into, at) {
    into.set(new Float32Array(bytes.buffer, bytes.byteOffset + from, count), at);
  },
  F64(bytes, from, count, into, at) {
    into.set(new Float64Array(bytes.buffer, bytes.byteOffset + from, count), at);
  },
  F16(bytes, from, count, into, at) {
    const source = u16(bytes, from, count);
    const table = decodeTable("f16");
    for (let i = 0; i < count; i++) into[at + i] = table[source[i]!]!;
  },
  BF16(bytes, from, count, into, at) {
    const source = u16(bytes, from, count);
    const target = new Uint32Array(into.buffer, into.byteOffset, into.length);
    for (let i = 0; i < count; i++) target[at + i] = source[i]! << 16;
  },
};

const ELEMENT_BYTES = { F32: 4, F64: 8, F16: 2, BF16: 2 } as const;

function range(name: string, value: readonly [number, number] | undefined, limit: number): readonly [number, number] {
  if (value === undefined) return [0, limit];
  const [start, end] = value;
  if (!Number.isInteger(start) || !Number.isInteger(end) || start < 0 || end < start || end > limit) {
    throw new InvalidArgumentError(name, value, `0 <= start <= end <= ${limit}`);
  }
  return value;
}

/**
 * Reads a slice of `tensor` into `into` as f32. f64 is rounded to the nearest f32, the others are exact.
 * Shapes: rows x columns elements, row r at `into[r * stride]`; what lies between rows is left alone.
 * @throws InvalidArgumentError when the slice is outside the tensor, or does not fit `into`
 * @throws FormatError when the tensor is not f32, f64, f16 or bf16, or the file ends early
 */
export function readSliceF32(
  source: ByteSource,
  tensor: SafetensorsTensor,
  into: Float32Array,
  slice: Slice = {},
): void {
  const { dtype, shape } = tensor;
  if (dtype !== "F32" && dtype !== "F64" && dtype !== "F16" && dtype !== "BF16") {
    throw new FormatError(source.where, `has dtype ${dtype}; expected F32, F16, BF16 or F64`, {
      field: show(tensor.name),
    });
  }
  const numRows = shape[0] ?? 1;
  const numColumns = numRows === 0 ? 0 : tensor.numElements / numRows;
  const [row0, row1] = range("rows", slice.rows, numRows);
  const [column0, column1] = range("columns", slice.columns, numColumns);
  const rows = row1 - row0;
  const width = column1 - column0;
  const stride = slice.stride ?? width;
  if (!Number.isInteger(stride) || stride < width) {
    throw new InvalidArgumentError("stride", stride, `an integer of at least the slice's width, ${width}`);
  }
  if (rows === 0 || width === 0) return;
  const needed = (rows - 1) * stride + width;
  if (needed > into.length) {
    throw new InvalidArgumentError("into", described(`${into.length} elements`), `at least ${needed} elements`);
  }

  const size = ELEMENT_BYTES[dtype];
  const wholeRows = width === numColumns;
  if (dtype === "F32" && wholeRows && stride === width) {
    const bytes = new Uint8Array(into.buffer, into.byteOffset, rows * width * 4);
    source.read(bytes, tensor.begin + row0 * numColumns * 4);
    return;
  }
  const convert = CONVERT[dtype];
  if (wholeRows || width * size >= SEPARATE_READ_BYTES) {
    readRuns(source, tensor, into, {
      // Rows that lie side by side on both sides are one long run.
      runs: wholeRows && stride === width ? 1 : rows,
      length: wholeRows && stride === width ? rows * width : width,
      first: row0 * numColumns + column0,
      step: numColumns,
      stride,
      size,
      convert,
    });
    return;
  }
  // Narrow columns: read blocks of whole rows, keep the columns.
  const rowBytes = numColumns * size;
  const rowsAtOnce = Math.max(1, Math.min(rows, Math.floor(BOUNCE_BYTES / rowBytes)));
  // The last row of a block is read only as far as its last column.
  const bounce = new Uint8Array(rowsAtOnce * rowBytes);
  for (let row = 0; row < rows; row += rowsAtOnce) {
    const block = Math.min(rowsAtOnce, rows - row);
    const length = (block - 1) * rowBytes + width * size;
    source.read(bounce.subarray(0, length), tensor.begin + (row0 + row) * rowBytes + column0 * size);
    for (let i = 0; i < block; i++) convert(bounce, i * rowBytes, width, into, (row + i) * stride);
  }
}

interface Runs {
  readonly runs: number;
  readonly length: number;
  readonly first: number;
  readonly step: number;
  readonly stride: number;
  readonly size: number;
  readonly convert: Convert;
}

function readRuns(source: ByteSource, tensor: SafetensorsTensor, into: Float32Array, run: Runs): void {
  const { runs, length, first, step, stride, size, convert } = run;
  const atOnce = Math.min(length, BOUNCE_BYTES / size);
  const bounce = new Uint8Array(atOnce * size);
  for (let r = 0; r < runs; r++) {
    for (let done = 0; done < length; done += atOnce) {
      const count = Math.min(atOnce, length - done);
      source.read(bounce.subarray(0, count * size), tensor.begin + (first + r * step + done) * size);
      convert(bounce, 0, count, into, r * stride + done);
    }
  }
}
