/** The rows of a benchmark as nccl-tests' table. */
import { operationInfo } from "../../../collectives/index.ts";
import type { BenchRow, Measurement } from "./bench-types.ts";

const WIDTHS = {
  size: 12,
  count: 12,
  type: 8,
  redop: 6,
  root: 6,
  time: 9,
  algbw: 8,
  busbw: 8,
  wrong: 7,
  roof: 8,
} as const;
const right = (text: string, width: number) => text.padStart(width);

/** Three significant digits, as nccl-tests has them: `0.59`, `12.3`, `4567`. */
export function timeText(us: number): string {
  return us >= 100 ? us.toFixed(0) : us >= 10 ? us.toFixed(1) : us.toFixed(2);
}

function group(m: Measurement | null): string {
  if (m === null) {
    return [
      right("N/A", WIDTHS.time),
      right("N/A", WIDTHS.algbw),
      right("N/A", WIDTHS.busbw),
      right("N/A", WIDTHS.wrong),
    ].join("");
  }
  return [
    right(timeText(m.timeUs), WIDTHS.time),
    right(m.algbwGBps.toFixed(2), WIDTHS.algbw),
    right(m.busbwGBps.toFixed(2), WIDTHS.busbw),
    right(m.wrong === null ? "N/A" : String(m.wrong), WIDTHS.wrong),
  ].join("");
}

/** The share of the memory roofline, where rows have it. */
function roofline({ roofline: out }: BenchRow): string {
  if (out === undefined) return "";
  return right(out === null ? "N/A" : `${Math.round(100 * out)} %`, WIDTHS.roof);
}

/**
 * The lines above the rows.
 * @param onMemory rows have a share of the memory roofline
 */
export function tableHeader(onMemory = false): string[] {
  const before = WIDTHS.size + WIDTHS.count + WIDTHS.type + WIDTHS.redop + WIDTHS.root;
  const each = WIDTHS.time + WIDTHS.algbw + WIDTHS.busbw + WIDTHS.wrong;
  const columns = (names: readonly (readonly [string, number])[]) =>
    names.map(([name, width]) => right(name, width)).join("");
  const left = (a: readonly string[]) =>
    columns(a.map((name, i) => [name, Object.values(WIDTHS)[i] as number] as const));
  const four = (names: readonly [string, string, string, string]) =>
    columns([
      [names[0], WIDTHS.time],
      [names[1], WIDTHS.algbw],
      [names[2], WIDTHS.busbw],
      [names[3], WIDTHS.wrong],
    ]);
  return [
    `#${right("out-of-place", before + Math.floor((each + 12) / 2) - 1)}${right("in-place", each - 2)}`,
    `#${left(["size", "count", "type", "redop", "root"]).slice(1)}${four(["time", "algbw", "busbw", "#wrong"])}${four(["time", "algbw", "busbw", "#wrong"])}${onMemory ? right("roof", WIDTHS.roof) : ""}`,
    `#${left(["(B)", "(elements)", "", "", ""]).slice(1)}${four(["(us)", "(GB/s)", "(GB/s)", ""])}${four(["(us)", "(GB/s)", "(GB/s)", ""])}`.trimEnd(),
  ];
}

/** One row of the table. */
export function tableRow(row: BenchRow): string {
  return [
    right(String(row.sizeBytes), WIDTHS.size),
    right(String(row.count), WIDTHS.count),
    right(row.dtype, WIDTHS.type),
    right(row.redop, WIDTHS.redop),
    right(String(row.root), WIDTHS.root),
    group(row),
    group(row.inPlace),
    roofline(row),
  ].join("");
}

/** The lines below the rows: wrong elements, and the mean bus bandwidth over all sizes and both forms. */
export function tableFooter(rows: readonly BenchRow[]): string[] {
  const all = rows.flatMap((row) => (row.inPlace === null ? [row] : [row, row.inPlace]));
  const checked = all.filter((m) => m.wrong !== null);
  const wrong = checked.reduce((total, m) => total + (m.wrong ?? 0), 0);
  const mean = all.length === 0 ? 0 : all.reduce((total, m) => total + m.busbwGBps, 0) / all.length;
  const ok = checked.length === 0 ? "not checked (--check checks)" : `${wrong} ${wrong === 0 ? "OK" : "FAILED"}`;
  const isBarrier = rows.every(
    (row) => operationInfo(row.op).input === "none" && operationInfo(row.op).output === "none",
  );
  return [`# Wrong elements : ${ok}`, ...(isBarrier ? [] : [`# Avg bus bandwidth : ${mean.toFixed(4)} GB/s`])];
}
