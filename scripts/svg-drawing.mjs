/** What the pictures of the documents are drawn with: colours for light and dark pages, text that must fit, boxes. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const root = new URL("../", import.meta.url);

/** Name of a colour -> light, dark (where the reader prefers it). */
const COLORS = {
  page: ["#ffffff", "#0d1117"],
  card: ["#f6f8fa", "#161b22"],
  edge: ["#c5ccd6", "#3d444d"],
  text: ["#1f2328", "#e6edf3"],
  quiet: ["#57606a", "#9aa4af"],
  blue: ["#0a58b8", "#6cb0ff"],
  green: ["#1a6b37", "#56d374"],
  orange: ["#a04500", "#f0a35e"],
  purple: ["#6e3fc0", "#c297ff"],
};
const SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
const MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
export const fill = (name) => `class="f-${name}" fill="${COLORS[name][0]}"`;
export const stroke = (name) => `class="s-${name}" stroke="${COLORS[name][0]}"`;

/** One line of text; `width` is what it may take, by the mean width of a character in common fonts. */
export function line(
  x,
  y,
  text,
  { size = 13, color = "text", mono = false, bold = false, anchor = "start", width = 226 },
) {
  const estimate = text.length * size * (mono ? 0.6 : bold ? 0.57 : 0.51);
  if (estimate > width) throw new Error(`"${text}" takes about ${Math.round(estimate)} of ${width} px`);
  const weight = bold ? ' font-weight="600"' : "";
  const align = anchor === "start" ? "" : ` text-anchor="${anchor}"`;
  return `<text x="${x}" y="${y}" font-family="${mono ? MONO : SANS}" font-size="${size}"${weight}${align} ${fill(color)}>${escaped(text)}</text>`;
}

export function box(x, y, width, height, color = "card") {
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="10" class="f-${color} s-edge" fill="${COLORS[color][0]}" stroke="${COLORS.edge[0]}"/>`;
}

/** A straight arrow between any two points, with its head at the second one. */
export function arrowTo(x1, y1, x2, y2, color) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  const round = (value) => Math.round(value * 10) / 10;
  const head = [
    [x2, y2],
    [x2 - 9 * dx - 4.5 * dy, y2 - 9 * dy + 4.5 * dx],
    [x2 - 9 * dx + 4.5 * dy, y2 - 9 * dy - 4.5 * dx],
  ].map(([x, y]) => `${round(x)},${round(y)}`);
  return [
    `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2 - 8 * dx)}" y2="${round(y2 - 8 * dy)}" stroke-width="2" ${stroke(color)}/>`,
    `<polygon points="${head.join(" ")}" ${fill(color)}/>`,
  ];
}

/**
 * Writes docs/NAME.svg; with `--check`, exits with 1 when the file is not what is drawn.
 * @param drawing lines of SVG; the colours they use are given for dark pages too
 */
export function drawDocument({ name, width, height, title, description, drawing }) {
  const target = new URL(`docs/${name}.svg`, root);
  const script = `scripts/draw-${name}.mjs`;
  const used = Object.entries(COLORS).filter(([color]) =>
    drawing.some((part) => part.includes(`-${color}"`) || part.includes(`-${color} `)),
  );
  const rules = used.map(([color, [, dark]]) => `.f-${color}{fill:${dark}} .s-${color}{stroke:${dark}}`).join(" ");
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc">
<!-- Drawn by ${script}. -->
<title id="title">${title}</title>
<desc id="desc">${description}</desc>
<style>@media (prefers-color-scheme: dark) { ${rules} }</style>
${drawing.join("\n")}
</svg>
`;
  if (!process.argv.includes("--check")) writeFileSync(target, svg);
  else if (!existsSync(target) || readFileSync(target, "utf8") !== svg) {
    console.error(`docs/${name}.svg is out of date: node ${script} draws it`);
    process.exit(1);
  }
}
