/** Plans as text for people: what runs where, memory, estimates, and why others lost. */
import { printableLine } from "../core/index.ts";
import { rangeOf } from "./cost/ranges.ts";
import { gib } from "./gib.ts";
import { PLAN_AXES, type PlannedRank, type Rejected, type ShardingPlan } from "./plan.ts";
import type { PlanOutcome } from "./plan-model.ts";

/** `tp 8 x pp 2`, axes of one left out; `1 rank` when all are one. */
export function axesText(axes: Readonly<Record<(typeof PLAN_AXES)[number], number>>): string {
  const named = PLAN_AXES.filter((axis) => axes[axis] > 1).map((axis) => `${axis} ${axes[axis]}`);
  return named.length === 0 ? "1 rank" : named.join(" x ");
}

const short = (value: number) => Number(value.toPrecision(3)).toLocaleString("en");

function ms(value: number): string {
  return value >= 1000 ? `${short(value / 1000)} s` : `${short(value)} ms`;
}

function memoryText(rank: PlannedRank): string {
  const items = Object.entries(rank.memory.items)
    .sort((a, b) => b[1] - a[1])
    .map(([name, bytes]) => `${name} ${gib(bytes)}`);
  return items.join(", ");
}

/** What a decode step yields: one token, or with speculation what is accepted on average. */
function stepText({ estimates, workload }: ShardingPlan): string {
  if (workload.speculation === undefined || estimates.kind === "training") return "a token";
  const tokens = (estimates.decodeTokensPerSecondPerUser * estimates.decodeStepMs) / 1e3;
  return `a step of ${tokens.toFixed(1)} tokens`;
}

/** How micro-batches pass through a pipeline. */
function pipelineText({ mesh, workload }: ShardingPlan): string {
  const { pipelineChunks: chunks, pipelineSchedule } = workload;
  if (mesh.axes.pp === 1) return "";
  return chunks === undefined ? `, ${pipelineSchedule ?? "1f1b"}` : `, interleaved in ${chunks} chunks a stage`;
}

function estimateLines(plan: ShardingPlan): string[] {
  const { estimates } = plan;
  const generates = plan.workload.outputTokens > 0;
  const price = estimates.pricePerHour === undefined ? [] : [`price       $${short(estimates.pricePerHour)} an hour`];
  const cost =
    estimates.costPerMillionTokens === undefined
      ? []
      : [
          `cost        $${short(estimates.costPerMillionTokens)} a million ${generates ? "generated tokens, prompts included" : "tokens"}`,
        ];
  if (estimates.kind === "training") {
    return [
      `step        ${ms(estimates.stepMs)}, ${short(estimates.tokensPerSecond)} tokens/s, MFU ${(estimates.mfu * 100).toFixed(0)} %`,
      ...(estimates.rolloutMs === undefined ? [] : [`rollout     ${ms(estimates.rolloutMs)} of the step`]),
      `passes      ${estimates.microbatches} of micro-batch ${plan.workload.microBatch ?? 1}, checkpointing ${plan.workload.checkpointing ?? "none"}${pipelineText(plan)}`,
      `bottleneck  ${estimates.bottleneck}`,
      ...price,
      ...cost,
    ];
  }
  const { workload } = plan;
  return [
    `prefill     ${ms(estimates.prefillMs)} for ${workload.batch} x ${workload.promptTokens} tokens; first token after ${ms(estimates.ttftMs)}`,
    ...(workload.outputTokens === 0
      ? []
      : [
          `decode      ${ms(estimates.decodeStepMs)} ${stepText(plan)}, ${short(estimates.decodeTokensPerSecondPerUser)} tokens/s a user, ${short(estimates.decodeTokensPerSecond)} tokens/s together`,
        ]),
    `bottleneck  ${estimates.bottleneck} (memory bandwidth ${(estimates.memoryBandwidthUtilization * 100).toFixed(0)} %, compute ${(estimates.computeUtilization * 100).toFixed(0)} % used)`,
    ...price,
    ...cost,
  ];
}

/** How far the speed may be off, by what was measured of its kind. */
function rangeLine(plan: ShardingPlan): string {
  const { low, high, count, kind, measuredOn, isMeasured } = rangeOf(plan);
  const engine = plan.workload.engine === undefined ? "" : ` (${plan.workload.engine})`;
  const known = `${count} published measurements of ${kind} on ${measuredOn.join(", ")}`;
  const basis =
    count === 0
      ? `no measurement of ${kind} was compared`
      : isMeasured
        ? known
        : `wider, as ${kind} was compared on no such hardware (${known})`;
  return `range       ${low.toFixed(2)} to ${high.toFixed(2)} times the speed${engine}: ${basis}`;
}

/** Ranks, one line for each pipeline stage of each distinct layout; all of them up to 16. */
function rankLines(plan: ShardingPlan): string[] {
  const few = plan.ranks.length <= 16;
  const shown = few
    ? plan.ranks
    : plan.ranks.filter(({ coords }) => coords.dp === 0 && coords.tp === 0 && coords.ep === 0 && coords.cp === 0);
  const lines = shown.map((rank) => {
    const ends = [rank.embeddings ? "embeddings" : "", rank.head ? "head" : ""]
      .filter((text) => text !== "")
      .join(", ");
    return (
      `  rank ${String(rank.rank).padStart(4)}  ${printableLine(rank.deviceId).padEnd(10)} layers ${rank.layers.first}-${rank.layers.end - 1}${ends === "" ? "" : ` + ${ends}`}`.padEnd(
        64,
      ) + `${gib(rank.memory.totalBytes)} of ${gib(rank.memory.availableBytes)}`
    );
  });
  return few
    ? lines
    : [...lines, `  (first rank of each stage of the first replica; ${plan.ranks.length} ranks in all: see --json)`];
}

/** Host memory, where training keeps something there. */
function hostLine({ memory: { host } }: ShardingPlan): string[] {
  if (host === undefined) return [];
  const of = host.availableBytes === undefined ? "" : ` of ${gib(host.availableBytes)}`;
  return [`host memory ${gib(host.bytes)}${of} on the fullest host, for what is offloaded or paged`];
}

/** A plan as lines of text. */
export function renderPlan(plan: ShardingPlan, options: { readonly explain?: boolean } = {}): string {
  const { model, workload, mesh } = plan;
  const fullest = plan.ranks[plan.memory.fullestRank];
  const lines = [
    `${printableLine(model.name)}: ${model.numParameters.toLocaleString("en")} parameters${model.numActiveParameters === model.numParameters ? "" : ` (${model.numActiveParameters.toLocaleString("en")} active)`}, ${workload.weightFormat}, ${workload.contextTokens} tokens of context, batch ${workload.batch}`,
    `layout      ${axesText(mesh.axes)} on ${new Set(plan.ranks.map((rank) => rank.deviceId)).size} device(s)${workload.zeroStage === undefined ? "" : `, ZeRO stage ${workload.zeroStage}`}`,
    ...estimateLines(plan),
    rangeLine(plan),
    `memory      ${gib(plan.memory.peakRankBytes)} on the fullest rank, ${gib(plan.memory.minHeadroomBytes)} left at least`,
    ...(fullest === undefined ? [] : [`            ${memoryText(fullest)}`]),
    ...hostLine(plan),
    ...rankLines(plan),
    ...model.assumptions.map((text) => `assumed: ${printableLine(text)}`),
    ...plan.notes.map((text) => `note: ${text}`),
  ];
  if (options.explain === true) lines.push(...explainLines(plan.rejected));
  return lines.join("\n");
}

/** Layouts that the estimates cannot tell from the chosen one; nothing where there are none. */
export function nearLines(near: PlanOutcome["near"]): string[] {
  if (near.length === 0) return [];
  const shown = near.map(({ axes, ratio }) => `${axesText(axes)} (+${((ratio - 1) * 100).toFixed(0)} %)`);
  return [`within 10 %  ${shown.join(", ")}`];
}

/** Why other layouts lost, grouped by kind. */
export function explainLines(rejected: readonly Rejected[]): string[] {
  if (rejected.length === 0) return ["no other layout was possible"];
  const order: readonly Rejected["kind"][] = ["memory", "slower", "topology", "constraint", "divisibility"];
  const sorted = [...rejected].sort(
    (a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || (a.score ?? 0) - (b.score ?? 0),
  );
  return ["why not:", ...sorted.map((item) => `  ${axesText(item.axes).padEnd(28)} ${item.reason}`)];
}

/** Layouts that are named when nothing fits. */
const MAX_NAMED = 12;

/** What to say when nothing fits. */
export function renderNothing(outcome: PlanOutcome, modelName: string): string {
  return [
    `${printableLine(modelName)}: no layout fits`,
    ...(outcome.rejected.length === 0 ? [] : explainLines(outcome.rejected).slice(0, MAX_NAMED + 1)),
    ...(outcome.rejected.length > MAX_NAMED ? [`  and ${outcome.rejected.length - MAX_NAMED} more: see --json`] : []),
    ...outcome.notes.map((text) => `note: ${text}`),
    ...endOfNothing(outcome),
  ].join("\n");
}

/** What would help: nothing to say where nothing was tried. */
function endOfNothing(outcome: PlanOutcome): string[] {
  if (outcome.rejected.length === 0) return [];
  return [
    outcome.rejected.every((item) => item.kind === "divisibility" || item.kind === "constraint")
      ? "no hardware mends this: the model's shape forbids it"
      : outcome.suggestion === undefined
        ? "no single preset is large enough: try a smaller --quant, --context or --batch, or several hosts (2x hgx-h200-8)"
        : `the smallest preset that would do: --hardware ${outcome.suggestion}`,
  ];
}
