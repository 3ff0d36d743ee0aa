/** `sim --measured FILE`: the output of nccl-tests (or rccl-tests, or `chorale bench --json`) beside what was simulated. */
import { FormatError } from "../../core/index.ts";
import { parseStrictJson, readTextFile } from "../../foreign/formats/index.ts";

/** More is no table of a benchmark. */
const MAX_FILE_BYTES = 16 * 2 ** 20;

export interface MeasuredPoint {
  readonly sizeBytes: number;
  readonly timeUs: number;
}

/** The place of the first `time` column among a row's words, by the header; nccl-tests leaves columns out in older versions. */
function timeColumn(header: string): number {
  return header.replace(/^#/, "").trim().split(/\s+/).indexOf("time");
}

function fromJson(text: string, where: string): MeasuredPoint[] {
  const { rows } = parseStrictJson(text, where) as { rows?: unknown };
  if (!Array.isArray(rows)) throw new FormatError(where, "has no `rows`");
  return rows.map((row: { sizeBytes?: unknown; timeUs?: unknown } | null, index) => {
    const [sizeBytes, timeUs] = [row?.sizeBytes, row?.timeUs];
    if (typeof sizeBytes !== "number" || typeof timeUs !== "number") {
      throw new FormatError(where, "expected a row with the numbers sizeBytes and timeUs", { field: `rows.${index}` });
    }
    return { sizeBytes, timeUs };
  });
}

function fromTable(text: string): MeasuredPoint[] {
  const points: MeasuredPoint[] = [];
  let column = -1;
  for (const line of text.split(/\r?\n/)) {
    // MPI launchers put the rank's name before a line.
    const plain = line.replace(/^\[[^\]]*\](<\w+>)?:?/, "");
    if (/^\s*#.*\bsize\b.*\btime\b/.test(plain)) column = timeColumn(plain.trim());
    if (!/^\s*\d+\s+\d+\s+\w+\s/.test(plain)) continue;
    const words = plain.trim().split(/\s+/);
    points.push({ sizeBytes: Number(words[0]), timeUs: Number(words[column < 0 ? 5 : column]) });
  }
  return points;
}

/** `# nThread 1 nGpus 8 minBytes …`: ranks of one process, as nccl-tests and rccl-tests say above the table. */
function ranksPerProcess(text: string): number | undefined {
  const match = /^[^\n]*#\s*nThread (\d{1,4}) nGpus (\d{1,4})\b/m.exec(text);
  return match === null ? undefined : Number(match[1]) * Number(match[2]);
}

export interface Measured {
  readonly points: readonly MeasuredPoint[];
  /** Where the file says it. */
  readonly ranksPerProcess?: number;
}

/**
 * Reads measured times, ascending by size; of a size that stands there twice, the last counts.
 * @throws FormatError when there are no rows, or one has no time
 */
export function readMeasured(path: string): Measured {
  const text = readTextFile(path, MAX_FILE_BYTES);
  const points = text.trimStart().startsWith("{") ? fromJson(text, path) : fromTable(text);
  const used = points.filter(({ sizeBytes }) => sizeBytes > 0);
  if (used.length === 0)
    throw new FormatError(
      path,
      "has no rows: expected the output of nccl-tests, or JSON with {rows: [{sizeBytes, timeUs}]}",
    );
  const bad = used.find(
    ({ sizeBytes, timeUs }) => !(timeUs > 0 && Number.isFinite(timeUs) && Number.isSafeInteger(sizeBytes)),
  );
  if (bad !== undefined) throw new FormatError(path, `has a row of ${bad.sizeBytes} bytes without a time`);
  const bySize = new Map(used.map((point) => [point.sizeBytes, point]));
  const ranks = ranksPerProcess(text);
  return {
    points: [...bySize.values()].sort((a, b) => a.sizeBytes - b.sizeBytes),
    ...(ranks !== undefined && { ranksPerProcess: ranks }),
  };
}

export interface Comparison {
  readonly name: string;
  readonly rows: readonly {
    readonly sizeBytes: number;
    readonly measuredUs: number;
    readonly timeUs: number;
    /** Simulated over measured, less one. */
    readonly error: number;
    /** Whether the printed uncertainty holds the measured time. */
    readonly isWithin: boolean;
  }[];
  readonly medianError: number;
  readonly shareWithin: number;
}

/** Sets a curve beside the measurement. */
export function compareWithMeasured(
  name: string,
  points: readonly { readonly sizeBytes: number; readonly timeUs: number; readonly uncertainty: number }[],
  measured: readonly MeasuredPoint[],
): Comparison {
  const times = new Map(measured.map(({ sizeBytes, timeUs }) => [sizeBytes, timeUs]));
  const rows = points.flatMap(({ sizeBytes, timeUs, uncertainty }) => {
    const measuredUs = times.get(sizeBytes);
    if (measuredUs === undefined) return [];
    const isWithin = measuredUs >= timeUs / (1 + uncertainty) && measuredUs <= timeUs * (1 + uncertainty);
    return [{ sizeBytes, measuredUs, timeUs, error: timeUs / measuredUs - 1, isWithin }];
  });
  const errors = rows.map(({ error }) => Math.abs(error)).sort((a, b) => a - b);
  const middle = errors.length >> 1;
  const upper = errors[middle] ?? 0;
  return {
    name,
    rows,
    medianError: errors.length % 2 === 1 ? upper : (upper + (errors[middle - 1] ?? upper)) / 2,
    shareWithin: rows.filter(({ isWithin }) => isWithin).length / Math.max(1, rows.length),
  };
}

const percent = (value: number) => `${value >= 0 ? "+" : ""}${(100 * value).toFixed(1)} %`;

/** The comparison as a table. */
export function printComparison({ name, rows, medianError, shareWithin }: Comparison): string {
  return [
    `# ${name} beside the measurement`,
    "#       size    measured   simulated     error",
    "#        (B)        (us)        (us)",
    ...rows.map(
      ({ sizeBytes, measuredUs, timeUs, error, isWithin }) =>
        `${String(sizeBytes).padStart(12)}  ${measuredUs.toFixed(2).padStart(10)}  ${timeUs.toFixed(2).padStart(10)}  ${percent(error).padStart(8)}${isWithin ? "" : "  outside the expected range"}`,
    ),
    `# median ${(100 * medianError).toFixed(1)} % off; the expected range holds ${Math.round(100 * shareWithin)} % of ${rows.length} sizes`,
  ].join("\n");
}
