/**
 * Rollouts of reinforcement learning: before a step of PPO or GRPO the policy writes the answers that it is trained on. They are
 * timed as serving on the same devices, which the trainer leaves meanwhile (as verl and OpenRLHF share them): the batch of the
 * step, the last tokens of the context generated, in the layout of the highest throughput.
 */
import { deepFreeze, InvalidArgumentError } from "../core/index.ts";
import type { ShardingPlan } from "./plan.ts";
import type { Workload, WorkloadRequest } from "./search/workload.ts";

const GENERATES: ReadonlySet<string> = new Set(["rlhf", "grpo"]);

/** Said where rollouts are not counted. */
const NOT_COUNTED = "the step leaves the rollouts out, which often take longer than it: --rollout TOKENS counts them";

/** What the rollouts of a request serve; undefined where there are none to count. @throws InvalidArgumentError where none can be */
export function rolloutWorkload(request: WorkloadRequest, workload: Workload): WorkloadRequest | undefined {
  const { rolloutTokens } = request;
  if (rolloutTokens === undefined) return undefined;
  if (workload.method === undefined || !GENERATES.has(workload.method.method)) {
    throw new InvalidArgumentError("rollout", rolloutTokens, "--train rlhf (ppo) or grpo: nothing else generates");
  }
  if (!Number.isInteger(rolloutTokens) || rolloutTokens < 1 || rolloutTokens >= workload.contextTokens) {
    const accepted = `an integer from 1 to ${workload.contextTokens - 1}, a part of the context`;
    throw new InvalidArgumentError("rollout", rolloutTokens, accepted);
  }
  const { constants, forceContext } = request;
  return {
    contextTokens: workload.contextTokens,
    outputTokens: rolloutTokens,
    quant: "bf16",
    ...(workload.batch === undefined ? {} : { batch: workload.batch }),
    ...(constants === undefined ? {} : { constants }),
    ...(forceContext === undefined ? {} : { forceContext }),
  };
}

/** A training plan with its rollouts counted; with a note that they are not, where they are not. */
export function withRollout(plan: ShardingPlan, rollout: ShardingPlan | undefined): ShardingPlan {
  const { estimates, workload } = plan;
  if (estimates.kind !== "training" || !GENERATES.has(workload.method ?? "")) return plan;
  if (rollout?.estimates.kind !== "inference") return { ...plan, notes: [...plan.notes, NOT_COUNTED] };
  const rolloutMs = rollout.estimates.requestMs;
  const stepMs = estimates.stepMs + rolloutMs;
  const share = estimates.stepMs / stepMs;
  const axes = Object.entries(rollout.mesh.axes).flatMap(([axis, size]) => (size > 1 ? [`${axis} ${size}`] : []));
  const layout = axes.length === 0 ? "1 rank" : axes.join(" x ");
  return deepFreeze({
    ...plan,
    score: plan.objective === "memory" ? plan.score : plan.score / share,
    estimates: {
      ...estimates,
      stepMs,
      rolloutMs,
      tokensPerSecond: estimates.tokensPerSecond * share,
      mfu: estimates.mfu * share,
      breakdownMs: { ...estimates.breakdownMs, rollout: rolloutMs },
    },
    notes: [...plan.notes, `rollouts: ${rollout.workload.outputTokens} tokens of each sequence, served by ${layout}`],
  });
}
