/** Tables of simulated over measured times. A point is {class, bytes, us, timeUs, uncertainty}. */

export const SIZES = ["small", "medium", "large"];
export const sizeClass = (bytes) => (bytes < 65536 ? "small" : bytes <= 2 ** 24 ? "medium" : "large");

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
export const errorOf = ({ us, timeUs }) => Math.abs(timeUs / us - 1);
export const holds = ({ us, timeUs, uncertainty }) =>
  us >= timeUs / (1 + uncertainty) && us <= timeUs * (1 + uncertainty);

export function statistics(points) {
  if (points.length === 0) return undefined;
  const share = (test) => points.filter(test).length / points.length;
  return {
    points: points.length,
    ratio: Math.exp(points.reduce((sum, { us, timeUs }) => sum + Math.log(timeUs / us), 0) / points.length),
    median: median(points.map(errorOf)),
    within: share(({ us, timeUs }) => timeUs / us <= 1.5 && us / timeUs <= 1.5),
    held: share(holds),
  };
}

const percent = (value) => `${Math.round(100 * value)} %`;
const cell = (s) =>
  s === undefined
    ? "-"
    : `${s.ratio.toFixed(2)}, ${percent(s.median)}, ${percent(s.within)}, ${percent(s.held)} (${s.points})`;

/** A Markdown table: geometric mean, median error, within 1.5x, uncertainty holds (points), by class. */
export function scoreTable(points) {
  const classes = [...new Set(points.map((point) => point.class))];
  const lines = ["| class | small | medium | large |", "| --- | --- | --- | --- |"];
  for (const name of classes) {
    const cells = SIZES.map((size) =>
      cell(statistics(points.filter((point) => point.class === name && sizeClass(point.bytes) === size))),
    );
    lines.push(`| ${name} | ${cells.join(" | ")} |`);
  }
  return lines.join("\n");
}

const OTHER_VENDORS = /^(MI\d|Gaudi)/;
/** The acceptance's own lines: NVIDIA by size, MI300X, and all. */
export function summarise(points) {
  const groups = [
    ["NVIDIA, NCCL", ({ class: name }) => !OTHER_VENDORS.test(name) && !/MSCCL/.test(name)],
    ["MI300X and its like", ({ class: name }) => /^MI3/.test(name)],
    ["all", () => true],
  ];
  const lines = ["", "| group | small | medium | large |", "| --- | --- | --- | --- |"];
  for (const [name, belongs] of groups) {
    const cells = SIZES.map((size) =>
      cell(statistics(points.filter((point) => belongs(point) && sizeClass(point.bytes) === size))),
    );
    lines.push(`| ${name} | ${cells.join(" | ")} |`);
  }
  return lines.join("\n");
}
