/** A mesh drawn as text: one table per place on the outer axes, rows and columns are the last two. */
import type { Axis } from "./axes.ts";

/** Ranks past this many are not drawn. */
const MAX_RANKS = 4096;

/** What a drawing shows of a `DeviceMesh`. */
export interface DrawableMesh {
  readonly label: string;
  /** Number of ranks. */
  readonly size: number;
  readonly axes: readonly Axis[];
  coordsOf(rank: number): Readonly<Record<string, number>>;
}

/**
 * Draws the ranks of a mesh.
 * @example
 * import { createMesh, formatGrid } from "chorale/mesh";
 *
 * console.log(formatGrid(createMesh({ dp: 2, tp: 3 })));
 * //      tp 0  1  2
 * // dp 0    0  1  2
 * //    1    3  4  5
 */
export function formatGrid(mesh: DrawableMesh): string {
  if (mesh.size > MAX_RANKS) return `${mesh.label} (${mesh.size} ranks, too many to draw)`;
  const [column, row, ...outer] = [...mesh.axes].reverse();
  const columnSize = column?.size ?? 1;
  const rowSize = row?.size ?? 1;
  const width = String(mesh.size - 1).length;
  const rowName = row?.name ?? "";
  const left = row === undefined ? 0 : rowName.length + 1 + String(rowSize - 1).length;
  const head = `${" ".repeat(left === 0 ? 0 : left + 1)}${column?.name ?? ""}`;
  const cells = (values: readonly number[]) => values.map((value) => String(value).padStart(width)).join("  ");
  const indices = Array.from({ length: columnSize }, (_, index) => index);

  const table = (first: number) => {
    const lines = [`${head} ${cells(indices)}`];
    for (let r = 0; r < rowSize; r++) {
      const name = row === undefined ? "" : `${r === 0 ? rowName : " ".repeat(rowName.length)} ${r}`;
      const ranks = indices.map((c) => first + r * columnSize + c);
      lines.push(`${name.padEnd(head.length)} ${cells(ranks)}`);
    }
    return lines.join("\n");
  };
  const tables: string[] = [];
  for (let first = 0; first < mesh.size; first += rowSize * columnSize) {
    const at = mesh.coordsOf(first);
    const place = outer.reverse().map(({ name }) => `${name} ${at[name]}`);
    outer.reverse();
    tables.push(place.length === 0 ? table(first) : `${place.join(", ")}\n${table(first)}`);
  }
  return tables.join("\n\n");
}
