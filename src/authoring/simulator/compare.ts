/** Several plans side by side over sizes: a table, who is fastest where, and at which size the lead changes. */

export interface SizePoint {
  readonly sizeBytes: number;
  readonly timeUs: number;
}
export interface Curve {
  readonly name: string;
  readonly points: readonly SizePoint[];
}
export interface Crossover {
  /** Fastest up to the size, and from there on. */
  readonly below: string;
  readonly above: string;
  readonly sizeBytes: number;
}

/** Time of a curve at a size, straight lines between its points in time over size. */
function timeAt(curve: Curve, sizeBytes: number): number {
  const { points } = curve;
  let i = points.findIndex((point) => point.sizeBytes >= sizeBytes);
  if (i < 0) i = points.length - 1;
  const right = points[i]!;
  const left = points[Math.max(0, i - 1)]!;
  if (left === right || right.sizeBytes === left.sizeBytes) return right.timeUs;
  const share = (sizeBytes - left.sizeBytes) / (right.sizeBytes - left.sizeBytes);
  return left.timeUs + share * (right.timeUs - left.timeUs);
}

/**
 * Finds the sizes at which the fastest curve changes. All curves must have the same sizes, ascending.
 * @example
 * crossovers([{ name: "a", points: [{ sizeBytes: 0, timeUs: 1 }, { sizeBytes: 100, timeUs: 11 }] }, { name: "b", points: [{ sizeBytes: 0, timeUs: 6 }, { sizeBytes: 100, timeUs: 6 }] }])[0]?.sizeBytes // 50
 */
export function crossovers(curves: readonly Curve[]): Crossover[] {
  const sizes = curves[0]?.points.map((point) => point.sizeBytes) ?? [];
  const fastest = (sizeBytes: number) =>
    curves.reduce((best, curve) => (timeAt(curve, sizeBytes) < timeAt(best, sizeBytes) ? curve : best));
  const result: Crossover[] = [];
  for (let i = 1; i < sizes.length; i++) {
    let low = sizes[i - 1]!;
    const end = sizes[i]!;
    // Several curves may take the lead within one interval: walk from crossing to crossing.
    for (let guard = 0; guard < curves.length; guard++) {
      const leader = fastest(low);
      if (leader === fastest(end)) break;
      let a = low;
      let b = end;
      for (let step = 0; step < 60 && b - a > 0.5; step++) {
        const middle = (a + b) / 2;
        if (fastest(middle) === leader) a = middle;
        else b = middle;
      }
      const next = fastest(b);
      if (next === leader) break;
      result.push({ below: leader.name, above: next.name, sizeBytes: Math.round(b) });
      low = b;
    }
  }
  return result;
}

/**
 * Sets curves side by side: a row for each size, a column of microseconds for each curve, and the name of the fastest.
 * All curves must have the same sizes.
 * @example
 * sideBySide([{ name: "a", points: [{ sizeBytes: 8, timeUs: 1 }] }, { name: "b", points: [{ sizeBytes: 8, timeUs: 2 }] }]).endsWith("a") // true
 */
export function sideBySide(curves: readonly Curve[]): string {
  const widths = curves.map(({ name }) => Math.max(name.length, 10));
  const lines = [
    `#       size  ${curves.map(({ name }, i) => name.padStart(widths[i]!)).join("  ")}  fastest`,
    `#        (B)  ${widths.map((width) => "(us)".padStart(width)).join("  ")}`,
  ];
  for (const [at, { sizeBytes }] of (curves[0]?.points ?? []).entries()) {
    const times = curves.map(({ points }) => points[at]!.timeUs);
    const least = times.indexOf(Math.min(...times));
    const cells = times.map((time, i) => time.toFixed(2).padStart(widths[i]!));
    lines.push(`${String(sizeBytes).padStart(12)}  ${cells.join("  ")}  ${curves[least]?.name ?? ""}`);
  }
  return lines.join("\n");
}
