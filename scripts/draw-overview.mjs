/**
 * Draws docs/overview.svg, the picture of README.md: the walk of the data, with the rooms and commands that make each step.
 *
 *   node scripts/draw-overview.mjs            writes docs/overview.svg
 *   node scripts/draw-overview.mjs --check    exits with 1 when the file is not what this script draws
 *
 * It refuses to draw rooms and commands that do not exist, and text that is wider than its card.
 */
import { existsSync } from "node:fs";
import { box, drawDocument, fill, line, stroke } from "./svg-drawing.mjs";

const root = new URL("../", import.meta.url);

const WIDTH = 1080;
const HEIGHT = 588;
const MARGIN = 28;
const CARD = 226;
const GAP = 40;

/** Left edge of a column of cards. */
const column = (index) => MARGIN + index * (CARD + GAP);
/** Throws unless `name` is a folder of src/. */
function room(name) {
  if (!existsSync(new URL(`src/${name}`, root))) throw new Error(`src/${name} does not exist: mend the picture`);
  return name;
}

/** Throws unless `name` is a command. @returns it as it is typed */
function command(name) {
  if (!existsSync(new URL(`src/apps/cli/${name}.ts`, root)))
    throw new Error(`chorale ${name} is no command: mend the picture`);
  return `chorale ${name}`;
}

/** A step of the walk: number, name, what it is, who makes it. */
function step(number, name, x, y, height, { width = CARD, text = [], rooms = "", calls = "" }) {
  const inner = width - 32;
  const foot = [
    [rooms, "quiet"],
    [calls, "green"],
  ].filter(([words]) => words !== "");
  return [
    box(x, y, width, height),
    `<circle cx="${x + 27}" cy="${y + 27}" r="12" ${fill("blue")}/>`,
    line(x + 27, y + 31.5, String(number), { bold: true, color: "page", anchor: "middle" }),
    line(x + 47, y + 33, name, { size: 17, bold: true, width: inner - 31 }),
    ...text.map((words, index) => line(x + 16, y + 62 + 18 * index, words, { width: inner })),
    ...foot.map(([words, color], index) =>
      line(x + 16, y + height - 14 - 20 * (foot.length - 1 - index), words, {
        size: 11,
        mono: true,
        color,
        width: inner,
      }),
    ),
  ];
}

/** A room that works on the plan: its name, what it does, by which command. */
function chip(name, text, call, x, y, width) {
  return [
    box(x, y, width, 46, "page"),
    line(x + 10, y + 18, name, { size: 11, mono: true, color: "quiet", width: width - 20 }),
    line(x + 10, y + 36, text, { size: 12, width: width - 20 }),
    ...(call === ""
      ? []
      : [line(x + width - 10, y + 36, call, { size: 11, mono: true, color: "green", anchor: "end" })]),
  ];
}

/** An arrow along one axis, with its head at the second point. */
function arrow(x1, y1, x2, y2, { dashed = false } = {}) {
  const [dx, dy] = [Math.sign(x2 - x1), Math.sign(y2 - y1)];
  const head = [
    [x2, y2],
    [x2 - 9 * dx - 5 * dy, y2 - 9 * dy + 5 * dx],
    [x2 - 9 * dx + 5 * dy, y2 - 9 * dy - 5 * dx],
  ].map(([x, y]) => `${x},${y}`);
  return [
    `<line x1="${x1}" y1="${y1}" x2="${x2 - 8 * dx}" y2="${y2 - 8 * dy}" stroke-width="2"${dashed ? ' stroke-dasharray="5 4"' : ""} ${stroke("blue")}/>`,
    `<polygon points="${head.join(" ")}" ${fill("blue")}/>`,
  ];
}

const TOP = 62;
const UPPER = 138;
const BELOW = 280;
const LOWER = 164;
const FOOT = BELOW + LOWER + 44;
const plan = column(1);
const planWidth = 2 * CARD + GAP;
const chipWidth = (planWidth - 32 - 12) / 2;
const chips = [plan + 16, plan + 28 + chipWidth];
const caption = (y, text) => line(MARGIN, y, text, { size: 14, bold: true, color: "blue", width: 700 });
const next = (index, y) => arrow(column(index) + CARD + 6, y, column(index + 1) - 6, y);

const drawing = [
  `<rect width="${WIDTH}" height="${HEIGHT}" rx="14" ${fill("page")}/>`,

  caption(44, "From a machine and a model to ranks that talk"),
  step(1, "Inventory", column(0), TOP, UPPER, {
    text: ["the devices of this machine", "and the links between them"],
    rooms: room("machine/hardware"),
    calls: `${command("detect")}, ${command("topo")}`,
  }),
  next(0, TOP + UPPER / 2),
  step(2, "ShardingPlan", column(1), TOP, UPPER, {
    text: ["how a model fits on them:", "layout, memory, speed"],
    rooms: room("planner"),
    calls: command("plan"),
  }),
  next(1, TOP + UPPER / 2),
  step(3, "DeviceMesh", column(2), TOP, UPPER, {
    text: ["ranks on named axes, and", "a group for every axis"],
    rooms: room("mesh"),
    calls: "world.mesh({ dp: 2, tp: 2 })",
  }),
  next(2, TOP + UPPER / 2),
  step(4, "Communicator", column(3), TOP, UPPER, {
    text: ["typed collectives between", "the ranks of a group"],
    rooms: room("runtime/comm"),
    calls: `${command("launch")}, ${command("bench")}`,
  }),

  arrow(column(0) + 40, TOP + UPPER + 6, column(0) + 40, BELOW - 6, { dashed: true }),
  line(column(0) + 56, TOP + UPPER + 35, "the provable optimum for these links, as a program", { width: 400 }),
  line(column(0) + 56, TOP + UPPER + 55, `${room("authoring/synthesis")}:`, {
    size: 12,
    mono: true,
    color: "quiet",
  }),
  line(column(0) + 208, TOP + UPPER + 55, command("synth"), { size: 12, mono: true, color: "green" }),
  arrow(column(3) + CARD - 40, TOP + UPPER + 6, column(3) + CARD - 40, BELOW - 6),
  line(column(3) + CARD - 56, TOP + UPPER + 35, "algorithms of your own", { anchor: "end" }),
  line(column(3) + CARD - 56, TOP + UPPER + 55, "comm.run(program)", {
    size: 12,
    mono: true,
    color: "green",
    anchor: "end",
  }),

  step(5, "Program", column(0), BELOW, LOWER, {
    text: ["a collective algorithm,", "written in TypeScript or", "taken from the library"],
    rooms: room("authoring/language"),
    calls: "p.copy(to, from)",
  }),
  next(0, BELOW + LOWER / 2),
  step(6, "ExecutionPlan", plan, BELOW, LOWER, { width: planWidth }),
  line(plan + planWidth - 16, BELOW + 32, "each rank's operations, strand by strand", { anchor: "end", width: 280 }),
  chip(room("authoring/compiler"), "makes it:", command("compile"), chips[0], BELOW + 50, chipWidth),
  chip(room("authoring/verifier"), "proves it right:", command("check"), chips[1], BELOW + 50, chipWidth),
  chip(room("authoring/simulator"), "times it anywhere:", command("sim"), chips[0], BELOW + 104, chipWidth),
  chip(room("authoring/interchange"), "to and from MSCCL++ and MSCCL", "", chips[1], BELOW + 104, chipWidth),
  next(2, BELOW + LOWER / 2),
  step(7, "Executor", column(3), BELOW, LOWER, {
    text: ["runs plans on the ranks of", "a group: on CPU threads,", "in WebAssembly"],
    rooms: room("runtime/executor"),
    calls: "",
  }),
  caption(BELOW + LOWER + 26, "From an algorithm to a run"),

  box(MARGIN, FOOT, WIDTH - 2 * MARGIN, 72),
  ...[
    ["Ranks are worker threads,", "runtime/backends/threads"],
    ["or hold one NVIDIA GPU each (NCCL).", "runtime/backends/nccl"],
    ["A rank that dies can be replaced.", "runtime/world"],
  ].flatMap(([text, name], index) => {
    const x = MARGIN + 16 + index * ((WIDTH - 2 * MARGIN - 16) / 3);
    return [
      line(x, FOOT + 29, text, { bold: true, width: 300 }),
      line(x, FOOT + 53, room(name), { size: 12, mono: true, color: "quiet", width: 300 }),
    ];
  }),
].flat();

drawDocument({
  name: "overview",
  width: WIDTH,
  height: HEIGHT,
  title: "How data walks through chorale",
  description:
    "Inventory, ShardingPlan, DeviceMesh, Communicator, Program, ExecutionPlan, Executor, with the rooms of src/ and the commands that make them.",
  drawing,
});
