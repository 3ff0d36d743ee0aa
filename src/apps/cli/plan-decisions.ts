/** The decisions of `chorale plan`: hardware compared, the largest load, lists of names, and what to do when nothing fits. */
import { InvalidArgumentError, printableLine } from "../../core/index.ts";
import { PARTS, PRESET_NAMES } from "../../machine/topology/index.ts";
import {
  axesText,
  type ComparedHardware,
  type Disaggregated,
  devicesOf,
  ENGINE_NAMES,
  engineTitle,
  type MemoryShortfall,
  MODEL_PRESETS,
  type NearestChange,
  type ServiceLevel,
  type ShardingPlan,
  type WorkerPool,
} from "../../planner/index.ts";

/** Reads `ttft=0.5,tpot=0.05`. */
export function readServiceLevel(text: string): ServiceLevel {
  const accepted = "ttft=SECONDS,tpot=SECONDS, one or both, such as ttft=0.5,tpot=0.05";
  const level: { ttft?: number; tpot?: number } = {};
  for (const part of text.split(",")) {
    const match = /^\s*(ttft|tpot)\s*=\s*(\d+(?:\.\d+)?|\.\d+)\s*$/.exec(part);
    const name = match?.[1] as "ttft" | "tpot" | undefined;
    if (match === null || name === undefined || level[name] !== undefined || !(Number(match[2]) > 0)) {
      throw new InvalidArgumentError("--slo", text, accepted);
    }
    level[name] = Number(match[2]);
  }
  return level;
}

export const short = (value: number) => Number(value.toPrecision(3)).toLocaleString("en");
const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(bytes < 10 * 2 ** 30 ? 1 : 0)} GiB`;

function cells(row: ComparedHardware): string[] {
  const { name, plan, idleDevices, rentedIdle } = row;
  if (plan === undefined) return [printableLine(name), "no", "-", "-", "-", "-", "-", row.reason ?? ""];
  const { estimates, mesh } = plan;
  const serving = estimates.kind === "inference";
  return [
    printableLine(name),
    "yes",
    axesText(mesh.axes),
    short(serving ? estimates.decodeTokensPerSecond : estimates.tokensPerSecond),
    serving ? `${short(estimates.ttftMs)} ms` : "-",
    estimates.pricePerHour === undefined ? "-" : `$${short(estimates.pricePerHour)}`,
    estimates.costPerMillionTokens === undefined ? "-" : `$${short(estimates.costPerMillionTokens)}`,
    [
      ...(idleDevices > 0 || rentedIdle === 0 ? [idleDevices === 0 ? "none" : String(idleDevices)] : []),
      ...(rentedIdle > 0 ? [`${rentedIdle} rented beside it`] : []),
    ].join(" + "),
  ];
}

/** The comparison as a table: what fits first, the cheapest of it first. */
export function renderComparison(rows: readonly ComparedHardware[]): string {
  const head = ["hardware", "fits", "layout", "tokens/s", "first token", "$/hour", "$/M tokens", "idle"];
  return tableOf([head, ...rows.map(cells)]);
}

/** Rows under their head in columns; the last is as long as it is. */
export function tableOf(table: readonly (readonly string[])[]): string {
  const [head = []] = table;
  const last = head.length - 1;
  const widths = head.map((_, at) => Math.max(...table.map((row) => (at === last ? 4 : (row[at] ?? "").length))));
  return table
    .map((row) =>
      row
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Workers for prompts and workers for tokens, beside devices that do both; or that no division keeps the level. */
export function renderDisaggregated(divided: Disaggregated | undefined, level: string | undefined): string {
  if (divided === undefined) return `no division fits${level === undefined ? "" : ` and keeps ${level}`}`;
  const { prefill, decode, together, requestsPerSecond } = divided;
  const pool = ({ numWorkers, devicesPerWorker, plan, batch, requestsPerSecond: rate }: WorkerPool) =>
    `${numWorkers} x ${devicesPerWorker} device(s), ${axesText(plan.mesh.axes)}, ${batch} at once: ${short(rate)} requests/s`;
  const { handoverBytes, handoverSeconds, idleDevices } = divided;
  const gain = together === undefined ? undefined : requestsPerSecond / together.requestsPerSecond;
  return [
    `prefill     ${pool(prefill)}`,
    `decode      ${pool(decode)}`,
    `handover    ${gib(handoverBytes)} of KV cache a request, ${short(handoverSeconds * 1e3)} ms beside the computation`,
    `serves      ${short(requestsPerSecond)} requests/s; first token ${short(divided.ttftSeconds)} s, ${short(divided.tpotSeconds * 1e3)} ms a token${idleDevices === 0 ? "" : `; ${idleDevices} device(s) idle`}`,
    gain === undefined
      ? "together    no load keeps this where every device does both"
      : `together    ${short(together?.requestsPerSecond ?? 0)} requests/s where every device does both (${together?.users} users): apart is ${short(gain)}x`,
  ].join("\n");
}

/** What is missing, and what would fit here. */
export function renderWayOut(shortfall: MemoryShortfall, changes: readonly NearestChange[]): string[] {
  const { neededBytes, availableBytes } = shortfall;
  // Where the sum would do, the reasons above say what does not.
  const lines =
    neededBytes <= availableBytes
      ? []
      : [
          `needs ${gib(neededBytes)} at least (before activations and the engine's reserve), has ${gib(availableBytes)}`,
        ];
  if (changes.length === 0) return [...lines, "no change of format, batch or context makes it fit on this hardware"];
  return [
    ...lines,
    "would fit here:",
    ...changes.map(({ change, plan }) => `  ${change.padEnd(34)} ${summaryOf(plan)}`),
  ];
}

function summaryOf({ mesh, memory, estimates }: ShardingPlan): string {
  const speed =
    estimates.kind === "training"
      ? `${short(estimates.tokensPerSecond)} tokens/s`
      : `${short(estimates.decodeTokensPerSecondPerUser)} tokens/s a user`;
  return `${axesText(mesh.axes)}, ${gib(memory.peakRankBytes)} on the fullest rank, ${speed}`;
}

/** Names that MODEL or --hardware may be. */
export function renderList(what: string): string {
  if (what === "models") return MODEL_PRESETS.join("\n");
  if (what === "hardware") {
    const parts = PARTS.map((part) => `${part.key.padEnd(22)} ${part.name}, ${gib(part.memoryBytes)}`);
    return [
      "systems:",
      ...PRESET_NAMES.map((name) => `  ${name}`),
      "accelerators, with a count such as 4x h100:",
      ...parts.map((line) => `  ${line}`),
    ].join("\n");
  }
  if (what === "engines") {
    return ENGINE_NAMES.map((name) => `${name.padEnd(13)} ${engineTitle(name)}: ${devicesOf(name)}`).join("\n");
  }
  throw new InvalidArgumentError("--list", what, "models, hardware or engines");
}
