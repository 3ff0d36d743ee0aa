/** The demo's sections as lines of text. */
import { formatSize } from "../../../core/index.ts";
import type { Inventory } from "../../../machine/topology/index.ts";
import type { BenchRow } from "../collectives/bench-types.ts";
import type { DemoReport, DeviceRun, GenerationSummary, PlanSummary } from "./demo-report.ts";
import { bar, padEnd, padStart, type Style, table, wrap } from "./terminal-style.ts";

const MAX_DEVICES = 16;
const WIDTH = 96;

/** What is here. */
export function showInventory(style: Style, inventory: Inventory): string[] {
  const { devices, topology, warnings } = inventory;
  const rows = devices
    .slice(0, MAX_DEVICES)
    .map((device) => [
      device.id,
      device.name,
      device.family,
      device.memoryBytes === undefined ? "?" : formatSize(device.memoryBytes),
      device.memoryBandwidthGBps === undefined ? "" : `${device.memoryBandwidthGBps} GB/s`,
    ]);
  const more = devices.length > MAX_DEVICES ? [style.dim(`   and ${devices.length - MAX_DEVICES} more`)] : [];
  const links = topology.links.length;
  return [
    ...table(
      style,
      [["device", "name", "family", "memory", "bandwidth"], ...rows],
      ["left", "left", "left", "right", "right"],
    ),
    ...more,
    style.dim(
      `   ${topology.nodes.length} nodes and ${links} links in the topology${warnings.length > 0 ? `; ${warnings.length} notes (chorale doctor explains)` : ""}`,
    ),
  ];
}

function count(numParameters: number): string {
  return numParameters >= 1e9 ? `${(numParameters / 1e9).toFixed(1)} B` : `${(numParameters / 1e6).toFixed(2)} M`;
}

function rate(perSecond: number | null): string {
  return perSecond === null ? "" : perSecond >= 100 ? `${Math.round(perSecond)}/s` : `${perSecond.toFixed(1)}/s`;
}

/** What fits where. */
export function showPlans(style: Style, plans: readonly (readonly [label: string, plan: PlanSummary])[]): string[] {
  const rows = plans.map(([label, plan]) => [
    label,
    plan.model,
    count(plan.numParameters),
    plan.hardware,
    `dp ${plan.axes.dp} x pp ${plan.axes.pp} x tp ${plan.axes.tp}`,
    formatSize(plan.peakRankBytes),
    rate(plan.decodeTokensPerSecond),
    plan.bottleneck,
  ]);
  return table(
    style,
    [["", "model", "parameters", "on", "mesh", "fullest rank", "est. tokens", "limited by"], ...rows],
    ["left", "left", "right", "left", "left", "right", "right", "left"],
  );
}

/** Why GPUs that are here are not used. */
export function showUnused(reason: string): string[] {
  return wrap(`The GPUs here are not used: ${reason}`, WIDTH - 6).map((line) => `   ${line}`);
}

/** The mesh of the plan that runs: which rank holds what. */
export function showRanks(style: Style, report: Pick<DemoReport, "plan">): string[] {
  const rows = report.plan.ranks.map((rank) => [
    String(rank.rank),
    `(${rank.coords.dp}, ${rank.coords.pp}, ${rank.coords.tp})`,
    rank.deviceId,
    `${rank.layers.first}-${rank.layers.end - 1}`,
    `${rank.shards.heads.first}-${rank.shards.heads.end - 1}`,
    `${rank.embeddings ? "embeddings " : ""}${rank.head ? "head" : ""}`.trim(),
    formatSize(rank.memory.totalBytes),
  ]);
  return table(
    style,
    [["rank", "(dp, pp, tp)", "device", "layers", "heads", "and", "memory"], ...rows],
    ["right", "left", "left", "left", "left", "left", "right"],
  );
}

/** What the model wrote, and whether sharding changed it. */
export function showText(
  style: Style,
  prompt: string,
  report: Pick<DemoReport, "comparisons" | "runs" | "devices">,
): string[] {
  const { sharded } = report.runs;
  const text = `${style.dim(prompt.trimEnd())}\n${(sharded.text ?? sharded.tokens.join(" ")).trimEnd()}`;
  const mark = (ok: boolean, words: string) => `   ${ok ? style.good("✓") : style.bad("✗")} ${words}`;
  const { comparisons } = report;
  return [
    ...wrap(text, WIDTH - 8).map((line) => `   ${style.accent("│")} ${line}`),
    "",
    mark(
      comparisons.shardedEqualsSingle,
      `${sharded.tokens.length} tokens of ${sharded.ranks} ranks are those of 1 rank`,
    ),
    mark(
      comparisons.shardedEqualsReference && comparisons.singleEqualsReference,
      `and those that Hugging Face transformers computes (largest logit difference ${comparisons.maxLogitDifference.toExponential(1)})`,
    ),
    ...(report.devices === undefined ? [] : deviceText(report.devices).map(([ok, words]) => mark(ok, words))),
  ];
}

function deviceText(devices: DeviceRun): [ok: boolean, words: string][] {
  if ("failed" in devices) return [[false, `not on ${devices.backend}: ${devices.failed.split("\n")[0]}`]];
  const { run, equalsReference, maxLogitDifference } = devices;
  const on = `${run.ranks} GPU${run.ranks === 1 ? "" : "s"} with ${devices.backend}`;
  const difference = `largest logit difference ${maxLogitDifference.toExponential(1)}`;
  return [[equalsReference, `${run.tokens.length} tokens of ${on} are those, too (${difference})`]];
}

/** Tokens a second, side by side. */
export function showSpeed(style: Style, runs: DemoReport["runs"], cores: number, devices?: DeviceRun): string[] {
  const onDevices = devices !== undefined && "run" in devices ? devices.run : undefined;
  const all = [runs.single, runs.sharded, ...(onDevices === undefined ? [] : [onDevices])];
  const most = Math.max(...all.map((run) => run.tokensPerSecond));
  const line = (label: string, run: GenerationSummary) =>
    `   ${padEnd(label, 22)} ${padStart(run.tokensPerSecond.toFixed(0), 6)} tokens/s  ${style.accent(bar(run.tokensPerSecond / most, 40))}`;
  const { pp, tp } = runs.sharded.mesh;
  const slower = runs.sharded.tokensPerSecond < runs.single.tokensPerSecond;
  const why = slower
    ? `   Sharding is slower here: ${runs.sharded.ranks} ranks share ${cores} cores and the model is tiny. It pays when a model does not fit one device, or devices compute side by side.`
    : `   Sharding is faster here: ${runs.sharded.ranks} ranks on ${cores} cores.`;
  return [
    line("1 rank", runs.single),
    line(`${runs.sharded.ranks} ranks, tp ${tp} x pp ${pp}`, runs.sharded),
    ...(onDevices === undefined
      ? []
      : [line(`${onDevices.backend}, tp ${onDevices.mesh.tp} x pp ${onDevices.mesh.pp}`, onDevices)]),
    ...wrap(why.trim(), WIDTH - 6).map((text) => style.dim(`   ${text}`)),
  ];
}

function us(t: number): string {
  return t >= 100 ? t.toFixed(0) : t >= 10 ? t.toFixed(1) : t.toFixed(2);
}

/** The heading of the sweep's columns. */
export function sweepHeader(style: Style): string {
  return style.dim(`   ${padStart("size", 9)}${padStart("us", 10)}${padStart("busbw GB/s", 13)}`);
}

/** A line of the sweep; the bar is the bus bandwidth on a logarithmic scale from 0.01 to 100 GB/s. */
export function showSweepRow(style: Style, row: BenchRow): string {
  const fraction = Math.log10(Math.max(row.busbwGBps, 0.011) / 0.01) / 4;
  const ok = row.wrong === 0 ? "" : style.bad(` ${row.wrong} wrong`);
  return `   ${padStart(formatSize(row.sizeBytes), 9)}${padStart(us(row.timeUs), 10)}${padStart(row.busbwGBps.toFixed(2), 13)}  ${style.accent(bar(fraction, 44))}${ok}`;
}

/** What the bars mean. */
export function sweepFooter(style: Style): string {
  const scale = ["0.01", "0.1", "1", "10", "100 GB/s"];
  return style.dim(
    `   ${" ".repeat(34)}${scale
      .map((mark) => padEnd(mark, 11))
      .join("")
      .trimEnd()}`,
  );
}
