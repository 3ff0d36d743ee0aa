/** The rows of a benchmark of programs as a table: nccl-tests' columns, beside the built-in choice and the ratio. */
import { timeText } from "../collectives/result-table.ts";
import type { ProgramRow } from "./program-types.ts";

const right = (text: string, width: number) => text.padStart(width);

/** The lines above the rows. */
export function programHeader(): string[] {
  return [
    `#${right("program", 65)}${right("built-in choice", 44)}`,
    "#       size       count    type redop  root     time   algbw   busbw #wrong     time   algbw   busbw #wrong   ratio  choice",
    "#        (B)  (elements)                         (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
  ];
}

function figures({ timeUs, algbwGBps, busbwGBps, wrong }: ProgramRow["builtIn"] | ProgramRow): string {
  const count = wrong === null ? "N/A" : String(wrong);
  return `${right(timeText(timeUs), 9)}${right(algbwGBps.toFixed(2), 8)}${right(busbwGBps.toFixed(2), 8)}${right(count, 7)}`;
}

/** One row of the table. */
export function programRow(row: ProgramRow): string {
  const { sizeBytes, count, dtype, redop, root, ratio, builtIn } = row;
  const call = `${right(String(sizeBytes), 12)}${right(String(count), 12)}${right(dtype, 8)}${right(redop, 6)}${right(String(root), 6)}`;
  return `${call}${figures(row)}${figures(builtIn)}${right(`${ratio.toFixed(2)}x`, 8)}  ${builtIn.name}`;
}

/** The lines below the rows. */
export function programFooter(rows: readonly ProgramRow[]): string[] {
  const checked = rows.filter(({ wrong }) => wrong !== null);
  const wrong = checked.reduce((sum, row) => sum + (row.wrong ?? 0) + (row.builtIn.wrong ?? 0), 0);
  const faster = rows.filter(({ ratio }) => ratio > 1).map(({ sizeBytes }) => sizeBytes);
  return [
    `# Wrong elements : ${checked.length === 0 ? "not checked (--check checks)" : `${wrong} ${wrong === 0 ? "OK" : "FAILED"}`}`,
    `# ratio: how many times as fast as the built-in choice, same loops; faster at ${faster.length} of ${rows.length} sizes`,
  ];
}
