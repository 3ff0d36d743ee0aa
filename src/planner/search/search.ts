/**
 * Searches all layouts: tp x pp x ep x cp x dp (and ZeRO stage, and batch where it is free). Every legal combination is
 * a candidate; each gets a lower bound on its score that no placement, split or link can beat; candidates are judged
 * from the best bound up, and the search ends when the bound passes the best found. A test compares the result with
 * brute force.
 */
import { sendUs } from "../cost/collectives.ts";
import { gib } from "../gib.ts";
import { axesKey, PLAN_AXES, type PlanAxisSizes, type Rejected } from "../plan.ts";
import { type AxesGroup, Enumeration, MAX_REJECTED, type SearchRequest } from "./enumerate.ts";
import { type Context, type Evaluated, evaluate } from "./evaluate.ts";
import { Frontier } from "./frontier.ts";
import { Infeasibles } from "./infeasibles.ts";
import { type NearLayout, nearLayouts, remember } from "./near-layouts.ts";
import { type Bounded, candidatesOf, groupBound } from "./variants.ts";

/** Layouts that lack memory have so much room in a result, however many sizes of axes do not divide. */
const MIN_TOO_LARGE = 16;

export interface SearchResult {
  /** Best first, distinct in their axes. */
  readonly best: readonly Evaluated[];
  /** Other axes whose score is near the best one's, best first. */
  readonly near: readonly NearLayout[];
  readonly rejected: readonly Rejected[];
  readonly numCandidates: number;
  readonly numJudged: number;
}

/** Runs the search. */
export function search(request: SearchRequest): SearchResult {
  const { workload, objective, top, onProgress, kinds } = request;
  const enumeration = new Enumeration(request);
  enumeration.run();
  const leastHopUs = sendUs(0, request.fabric.nearest(kinds.some((kind) => kind.ranksPerDevice > 1)));
  const rejected: Rejected[] = [...enumeration.rejected];
  const expand = (group: AxesGroup): readonly Bounded[] => {
    const found = candidatesOf(request, group, leastHopUs);
    if (found.length === 0)
      push(rejected, { axes: group.axes, kind: "divisibility", reason: undivided(request, group) });
    return found;
  };
  const frontier = new Frontier(enumeration.groups, (group) => groupBound(request, group, leastHopUs), expand);
  const best: Evaluated[] = [];
  const scores = new Map<string, Evaluated>();
  const tooLarge = new Infeasibles();
  const slower: Bounded[] = [];
  const worstOf = () =>
    best.length < top ? Number.POSITIVE_INFINITY : (best.at(-1)?.score ?? Number.POSITIVE_INFINITY);
  let numJudged = 0;
  while (request.firstFit !== true || best.length === 0) {
    onProgress?.(numJudged, numJudged + frontier.size);
    const worst = worstOf();
    const next = frontier.take(worst);
    if (next === undefined) break;
    const { candidate, classes, bound } = next;
    const judged = evaluate({ ...request, limit: worst }, candidate, classes);
    numJudged++;
    if ("reason" in judged) {
      if (judged.kind === "slower") slower.push(next);
      if (workload.batch !== undefined || candidate.batchPerReplica === 1) tooLarge.note(candidate.axes, judged, bound);
      continue;
    }
    remember(scores, judged);
    keep(best, judged, top, (loser) =>
      push(rejected, {
        axes: loser.candidate.axes,
        kind: "slower",
        reason: `${scoreText(objective, loser.score)}, against ${scoreText(objective, best[0]?.score ?? 0)}`,
        score: loser.score,
      }),
    );
  }
  if (request.firstFit !== true) rejectSlower(rejected, frontier.rest(), best[0]?.score ?? worstOf(), objective);
  onProgress?.(numJudged, numJudged);
  rejected.push(...tooLarge.rejected(Math.max(MIN_TOO_LARGE, MAX_REJECTED - rejected.length)));
  const winner = best[0]?.candidate;
  const others = rejected.filter(
    (item) => winner === undefined || axesKey(item.axes) !== axesKey(winner.axes) || item.kind !== "slower",
  );
  const numDevices = kinds.reduce((sum, kind) => sum + kind.ids.length, 0);
  const next = (limit: number) => (request.firstFit === true ? undefined : frontier.take(limit));
  const near = nearLayouts(request, { best, judged: scores, slower, next, numDevices });
  return { best, near, rejected: others, numCandidates: frontier.numCandidates, numJudged };
}

/** Why a pipeline that is to be interleaved cannot be. */
function undivided({ model }: SearchRequest, { axes, batchPerReplica }: AxesGroup): string {
  return `pp=${axes.pp}: ${model.numLayers} layers do not divide into chunks, or ${batchPerReplica} sequences a replica not into rounds of ${axes.pp} micro-batches: plan with --pipeline-schedule 1f1b`;
}

function push(rejected: Rejected[], item: Rejected): void {
  if (rejected.length < MAX_REJECTED) rejected.push(item);
}

function rejectSlower(
  rejected: Rejected[],
  rest: readonly { readonly axes: PlanAxisSizes; readonly bound: number }[],
  best: number,
  objective: Context["objective"],
): void {
  const seen = new Set<string>();
  for (const { axes, bound } of rest) {
    if (seen.size >= 8) return;
    const name = axesKey(axes);
    if (seen.has(name)) continue;
    seen.add(name);
    push(rejected, {
      axes,
      kind: "slower",
      reason: `at least ${scoreText(objective, bound)} even with perfect balance and free links, against ${scoreText(objective, best)}`,
      score: bound,
    });
  }
}

/** Inserts into the sorted best; equal scores prefer fewer devices, then less memory. One entry for the same axes. */
function keep(best: Evaluated[], item: Evaluated, top: number, lost: (loser: Evaluated) => void): void {
  const same = best.findIndex((known) => axesKey(known.candidate.axes) === axesKey(item.candidate.axes));
  if (same >= 0) {
    const known = best[same];
    if (known !== undefined && !better(item, known)) return;
    best.splice(same, 1);
  }
  const at = best.findIndex((known) => better(item, known));
  best.splice(at < 0 ? best.length : at, 0, item);
  while (best.length > top) {
    const loser = best.pop();
    if (loser !== undefined) lost(loser);
  }
}

function better(x: Evaluated, y: Evaluated): boolean {
  const scale = Math.max(Math.abs(x.score), Math.abs(y.score)) * 1e-9;
  if (Math.abs(x.score - y.score) > scale) return x.score < y.score;
  const world = (item: Evaluated) => PLAN_AXES.reduce((product, axis) => product * item.candidate.axes[axis], 1);
  if (world(x) !== world(y)) return world(x) < world(y);
  const peak = (item: Evaluated) => Math.max(...item.replicas.map((replica) => replica.split.maxMemory));
  return peak(x) < peak(y);
}

/** A score in words. */
function scoreText(objective: Context["objective"], score: number): string {
  if (objective === "memory") return `${gib(score)} on the fullest rank`;
  if (objective === "latency") return `${Number(score.toPrecision(4))} ms a request`;
  return `${Number((1e6 / score).toPrecision(4))} tokens/s`;
}
