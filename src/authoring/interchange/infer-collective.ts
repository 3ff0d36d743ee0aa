/**
 * Which collective a plan from a MSCCL++ file is: files give a name and the chunks of every rank, no root and no count. What a
 * name does not settle is found from the chunks, or is left open for the verifier to say so.
 */
import { COLLECTIVE_NAMES, type CollectiveName, findOperation } from "../../collectives/index.ts";
import { deepFreeze, InvalidArgumentError } from "../../core/index.ts";
import { collectiveChunks, type ExecutionPlan, type PlanCollective, segmentsOf } from "../plan/index.ts";

/** Input and output chunks of one rank. */
export type RankChunks = readonly [input: number, output: number];

/** Chunks of a collective without meaning whose (empty) condition is written out. */
const MAX_LISTED_CHUNKS = 65_536;

/** The collective `name` with these chunks; undefined when they are none of its. @param root where the caller knows it */
function fitting(
  name: CollectiveName,
  inPlace: boolean,
  ranks: readonly RankChunks[],
  root?: number,
): PlanCollective | undefined {
  const numRanks = ranks.length;
  const most = ranks.reduce((max, [i, o]) => Math.max(max, i, o), 0);
  // The larger of the two buffers holds one part, or one for each rank.
  const parts = new Set([most, most / numRanks].filter((count) => Number.isInteger(count) && count > 0));
  const rooted = name === "broadcast" || name === "reduce" || name === "gather" || name === "scatter";
  const roots = !rooted ? [undefined] : root === undefined ? [...ranks.keys()] : [root];
  const found: PlanCollective[] = [];
  for (const chunksPerPart of name === "barrier" ? [1] : parts) {
    for (const at of roots) {
      const collective: PlanCollective = {
        operation: name,
        numRanks,
        chunksPerPart,
        inPlace,
        ...(at === undefined ? {} : { root: at }),
      };
      const chunks = collectiveChunks(collective);
      const fits = ranks.every(([input, output], r) => chunks?.[r]?.input === input && chunks[r]?.output === output);
      if (fits) found.push(collective);
    }
  }
  return found.length === 1 ? found[0] : undefined;
}

/** Collectives whose buffers depend on counts that a file does not give. */
const WITH_COUNTS: readonly string[] = ["all_gather_v", "reduce_scatter_v", "all_to_all_v"];
const WITHOUT_COUNTS = COLLECTIVE_NAMES.filter((name) => !WITH_COUNTS.includes(name));

/** Reads MSCCL++'s name of a collective; `custom` without conditions when it, or the root, is not known. */
export function inferCollective(name: string, inPlace: boolean, ranks: readonly RankChunks[]): PlanCollective {
  const known = WITHOUT_COUNTS.find((c) => c.replaceAll("_", "") === name);
  const collective = known === undefined ? undefined : fitting(known, inPlace, ranks);
  if (collective !== undefined) return collective;
  const [input] = ranks[0] ?? [0];
  if (name === "sendrecv" && ranks.every(([i, o]) => i === input && o === input))
    return { operation: "send_recv", numRanks: ranks.length, inPlace, chunksPerPart: input };
  const custom = {
    name,
    inputChunks: ranks.map((r) => r[0]),
    outputChunks: ranks.map((r) => r[1]),
    // Anything will do; chunks beyond the list are not asked for either.
    post: ranks.map((r) => new Array<null>(Math.min(r[1], MAX_LISTED_CHUNKS)).fill(null)),
  };
  return {
    operation: name === "test" ? "test" : "custom",
    numRanks: ranks.length,
    inPlace,
    chunksPerPart: 1,
    custom,
  };
}

/**
 * Gives a plan the collective that its outputs are to be compared with, whatever its file says.
 * @param expected a collective, `broadcast:ROOT` where it has a root that is not 0, or `anything`: what is checked is then
 * that the plan ends, and that what its buffers hold does not depend on timing
 * @throws InvalidArgumentError for another word, and for a collective that the plan's chunks are none of
 * @example
 * import { ringAllReduce } from "chorale/algorithms";
 * import { expectCollective } from "chorale/interchange";
 * import { compile } from "chorale/language";
 * const plan = expectCollective(compile(ringAllReduce({ numRanks: 4 })), "all_reduce");
 * console.log(plan.collective.operation); // all_reduce
 */
export function expectCollective(plan: ExecutionPlan, expected: string): ExecutionPlan {
  const { inPlace, numRanks } = plan.collective;
  const ranks = plan.ranks.map(({ input, output }): RankChunks => [input.chunks, output.chunks]);
  if (expected === "anything") {
    const { custom: _, ...rest } = plan.collective;
    return deepFreeze({ ...plan, collective: { ...rest, operation: "test" as const } });
  }
  const [word = "", rootText] = expected.split(":");
  const root = rootText === undefined ? 0 : Number(rootText);
  if (rootText === "" || !Number.isInteger(root) || root < 0 || root >= numRanks)
    throw new InvalidArgumentError("--expect", expected, `a collective with a root from 0 to ${numRanks - 1}`);
  const name = findOperation(word, WITHOUT_COUNTS);
  if (name === undefined) {
    throw new InvalidArgumentError("--expect", expected, `one of ${WITHOUT_COUNTS.join(", ")}, or anything`);
  }
  // Buffers that a rank does not need may be there all the same.
  const collective = fitting(name, inPlace, ranks, root);
  if (collective === undefined) {
    throw new InvalidArgumentError(
      "--expect",
      expected,
      `a collective of buffers as the plan has them (chunks of input and output by rank: ${ranks
        .slice(0, 4)
        .map(([i, o]) => `${i} and ${o}`)
        .join(", ")}${ranks.length > 4 ? ", ..." : ""}), or anything`,
    );
  }
  return deepFreeze({
    ...plan,
    collective: {
      ...collective,
      ...(plan.collective.reduceOp === undefined ? {} : { reduceOp: plan.collective.reduceOp }),
    },
    ranks: plan.ranks.map((rank) => {
      const segments = segmentsOf(collective, rank.rank);
      return {
        ...rank,
        input: { ...rank.input, segments: segments.input },
        output: { ...rank.output, segments: segments.output },
      };
    }),
  });
}
