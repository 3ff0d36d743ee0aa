/**
 * Draws docs/synthesis.svg, the picture of docs/synthesis.md: a machine, the cut that proves a bound, the trees that reach it,
 * and the sum that shows that both are equal; all from the certificate in synthesis-example.mjs.
 *
 *   node scripts/draw-synthesis.mjs            writes docs/synthesis.svg
 *   node scripts/draw-synthesis.mjs --check    exits with 1 when the file is not what this script draws
 */
import { arrowTo, box, drawDocument, fill, line, stroke } from "./svg-drawing.mjs";
import { example } from "./synthesis-example.mjs";

const WIDTH = 1080;
const HEIGHT = 360;
const MARGIN = 28;
const GAP = 22;
const PANEL = (WIDTH - 2 * MARGIN - 2 * GAP) / 3;
const panel = (index) => MARGIN + index * (PANEL + GAP);

/** Where nodes stand, in a square of 1. */
const PLACES = { a0: [0.1, 0.1], a1: [0.1, 0.9], switch: [0.5, 0.5], b0: [0.9, 0.1], b1: [0.9, 0.9] };
const COLOR_OF = { a0: "blue", a1: "green", b0: "orange", b1: "purple" };
const { network, witness, schedule, secondsPerGB } = example;

/** Nodes of the network in a rectangle; gives their centres too. */
function nodes(x, y, width, height, radius) {
  const at = Object.fromEntries(
    Object.entries(PLACES).map(([id, [right, down]]) => [id, [x + right * width, y + down * height]]),
  );
  const drawn = network.nodes.flatMap(({ id, kind }) => {
    const [cx, cy] = at[id];
    const shape =
      kind === "rank"
        ? `<circle cx="${cx}" cy="${cy}" r="${radius}" ${fill(COLOR_OF[id])}/>`
        : `<rect x="${cx - radius}" y="${cy - radius}" width="${2 * radius}" height="${2 * radius}" rx="4" ${fill("quiet")}/>`;
    const size = radius < 12 ? 9 : 12;
    const name = kind === "rank" ? id : "w";
    return [shape, line(cx, cy + size / 3, name, { size, bold: true, color: "page", anchor: "middle" })];
  });
  return { at, drawn };
}

/** From the rim of one node to the rim of another. */
function between([x1, y1], [x2, y2], radius) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  const [dx, dy] = [((x2 - x1) / length) * radius, ((y2 - y1) / length) * radius];
  return [x1 + dx, y1 + dy, x2 - dx, y2 - dy];
}

function machine() {
  const x = panel(0);
  const { at, drawn } = nodes(x + 44, 84, PANEL - 88, 132, 15);
  const links = network.edges
    .filter(({ from, to }) => from < to)
    .flatMap(({ from, to, capacity }) => {
      const [[x1, y1], [x2, y2]] = [at[from], at[to]];
      const isUpright = x1 === x2;
      const [tx, ty] = [(x1 + x2) / 2 + (isUpright ? 8 : 0), (y1 + y2) / 2 + (isUpright ? 4 : -8)];
      return [
        `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke-width="${Number(capacity) / 12.5}" ${stroke("edge")}/>`,
        line(tx, ty, capacity, { size: 12, color: "quiet" }),
      ];
    });
  const inside = witness.inside.map((id) => at[id]);
  const [left, top] = [Math.min(...inside.map(([a]) => a)) - 27, Math.min(...inside.map(([, b]) => b)) - 24];
  const [right, bottom] = [Math.max(...inside.map(([a]) => a)) + 34, Math.max(...inside.map(([, b]) => b)) + 24];
  return [
    ...links,
    `<rect x="${left}" y="${top}" width="${right - left}" height="${bottom - top}" rx="16" fill="none" stroke-width="2" stroke-dasharray="6 4" ${stroke("blue")}/>`,
    line(right + 6, top + 14, "S", { bold: true, color: "blue" }),
    ...drawn,
  ];
}

function trees() {
  const [x, width] = [panel(1), PANEL / 2 - 24];
  return schedule.trees.flatMap(({ root, down }, i) => {
    const { at, drawn } = nodes(x + 16 + (i % 2) * (PANEL / 2 - 8), 76 + Math.floor(i / 2) * 88, width, 64, 9);
    const hops = down.flatMap((route) => route.slice(1).map((to, j) => [route[j], to]));
    return [...hops.flatMap(([from, to]) => arrowTo(...between(at[from], at[to], 10), COLOR_OF[root])), ...drawn];
  });
}

/** How many trees use an edge. */
const uses = ({ from, to }) =>
  schedule.trees.reduce(
    (sum, { down }) => sum + down.filter((route) => route.some((id, i) => id === from && route[i + 1] === to)).length,
    0,
  );

function loads() {
  const x = panel(2) + 16;
  const shown = network.edges.filter(({ from, to }) =>
    `${from} ${to}`.match(/^(a0 a1|b0 b1|a0 switch|switch b0|b1 switch)$/),
  );
  return shown.flatMap((edge, i) => {
    const y = 92 + 26 * i;
    const count = uses(edge);
    const seconds = 100 * (count / 4 / Number(edge.capacity));
    if (seconds !== 1) throw new Error(`${edge.from} to ${edge.to} is busy for ${seconds}/100 s/GB: mend the example`);
    const short = (id) => (id === "switch" ? "w" : id);
    return [
      line(x, y, `${short(edge.from)} → ${short(edge.to)}`, { mono: true }),
      line(x + 76, y, `${count === 1 ? "1 tree " : `${count} trees`} · ¼ ÷ ${edge.capacity} =`, {
        mono: true,
        color: "quiet",
      }),
      line(x + PANEL - 32, y, "1/100", { mono: true, bold: true, color: "green", anchor: "end" }),
    ];
  });
}

const head = (index, title) => line(panel(index) + 16, 48, title, { size: 15, bold: true, width: PANEL - 32 });
const foot = (index, texts) =>
  texts.map((text, i) =>
    line(panel(index) + 16, 268 + 20 * i, text, {
      width: PANEL - 32,
      color: i === 2 ? "green" : "text",
      bold: i === 2,
    }),
  );

drawDocument({
  name: "synthesis",
  width: WIDTH,
  height: HEIGHT,
  title: "A certificate: a cut, trees, and equal numbers",
  description:
    "Two boxes of two GPUs, joined by a switch. The cut around one box proves that no all-gather takes less than 1/100 second for 1 GB; four trees take exactly that.",
  drawing: [
    `<rect width="${WIDTH}" height="${HEIGHT}" rx="14" ${fill("page")}/>`,
    ...[0, 1, 2].map((index) => box(panel(index), 20, PANEL, HEIGHT - 40)),
    head(0, "1  A bound, and its witness S"),
    ...machine(),
    ...foot(0, [
      "2 of the 4 shares must leave S,",
      "over 2 links of 25 GB/s:",
      `no less than ½ ÷ 50 = ${secondsPerGB} s/GB`,
    ]),
    head(1, "2  A schedule: one tree a rank"),
    ...trees(),
    ...foot(1, [
      "Each carries ¼ of the data, in pieces that",
      "follow each other along its edges:",
      "every rank gets every share",
    ]),
    head(2, "3  The check: integers, no solver"),
    ...loads(),
    ...foot(2, [
      "Each link is busy for 1/100 s of 1 GB;",
      "the witness proves that nothing takes less:",
      "equal, so the schedule is optimal",
    ]),
  ],
});
