/** How tensors print: dtype, shape and values, nested and aligned as NumPy does, with the middle of long dims left out. */
import type { DType, TypedArray } from "./dtype.ts";
import { isSmallFloat } from "./float-formats.ts";
import { decodeValue, encodeValue } from "./values.ts";

/** Tensors of more elements are summarised, and a long dim then shows this many at either end: NumPy's defaults. */
const MAX_ELEMENTS = 1000;
const EDGE = 3;

/** Prints a tensor's dtype, shape and values. */
export function tensorText(dtype: DType, shape: readonly number[], data: TypedArray): string {
  return `${headText(dtype, shape)} ${valuesText(dtype, shape, data)}`;
}

/** `Tensor f32 [2, 3]` */
export function headText(dtype: DType, shape: readonly number[]): string {
  return `Tensor ${dtype} [${shape.join(", ")}]`;
}

function valuesText(dtype: DType, shape: readonly number[], data: TypedArray): string {
  const isLong = data.length > MAX_ELEMENTS;
  const shown = (dim: number): readonly (number | undefined)[] =>
    isLong && dim > 2 * EDGE
      ? [0, 1, 2, undefined, dim - 3, dim - 2, dim - 1]
      : Array.from({ length: dim }, (_, i) => i);
  const texts: string[] = [];
  const tree = (depth: number, index: number): Tree => {
    if (depth === shape.length) return texts.push(scalarText(dtype, data[index] ?? 0)) - 1;
    const dim = shape[depth] ?? 0;
    return shown(dim).map((i) => (i === undefined ? "..." : tree(depth + 1, index * dim + i)));
  };
  const root = tree(0, 0);
  const width = Math.max(0, ...texts.map((text) => text.length));
  return render(root, texts, width, 1);
}

/** Index of a text, a dim's entries, or what stands for those left out. */
type Tree = number | "..." | Tree[];

function render(tree: Tree, texts: readonly string[], width: number, indent: number): string {
  if (tree === "...") return tree;
  if (typeof tree === "number") return texts[tree]?.padStart(width) ?? "";
  const parts = tree.map((part) => render(part, texts, width, indent + 1));
  const isInnermost = tree.every((part) => !Array.isArray(part));
  return `[${parts.join(isInnermost ? ", " : `,\n${" ".repeat(indent)}`)}]`;
}

/** The fewest digits that give the same element again. */
function scalarText(dtype: DType, element: number | bigint): string {
  const value = decodeValue(dtype, element);
  const isShort = dtype === "f32" || isSmallFloat(dtype);
  if (Object.is(value, -0)) return "-0";
  if (typeof value === "bigint" || !isShort || !Number.isFinite(value)) return String(value);
  const same = (text: string) =>
    dtype === "f32" ? Math.fround(Number(text)) === value : encodeValue(dtype, Number(text)) === element;
  for (let digits = 1; digits <= 9; digits++) {
    const text = value.toPrecision(digits);
    if (same(text)) return String(Number(text));
  }
  return String(value);
}

/** What JSON can carry of a value: 64-bit integers and floats that are not finite become text. */
export function jsonValue(value: number | bigint): number | string {
  return typeof value === "bigint" || !Number.isFinite(value) ? String(value) : value;
}
