/**
 * Whether a plan's collective means something: every rank that it names is one, every output chunk has a condition (or says that it
 * has none), and the buffers are those of the collective. A condition that is left out would be kept by anything.
 */
import { BUFFERS, collectiveChunks, type ExecutionPlan, PLAN_REDUCE_OPS, segmentsOf } from "../plan/index.ts";

type Complain = (rank: number, message: string, hint: string) => void;

/** Collectives by the names that MSCCL++'s files have for them. */
const KNOWN_NAMES: ReadonlySet<string> = new Set(["allreduce", "allgather", "reducescatter", "alltoall", "sendrecv"]);

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Complains of what is wrong with the collective, and of buffers that are not its own. */
export function checkCollective(plan: ExecutionPlan, complain: Complain): void {
  const { collective } = plan;
  const n = plan.ranks.length;
  const { root, reduceOp, operation } = collective;
  const { instances } = plan.options;
  if (!isCount(instances) || instances < 1)
    complain(-1, `the plan has ${String(instances)} instances of its program`, "a plan has 1 or more");
  if (root !== undefined && !(isCount(root) && root < n))
    complain(-1, `the root of the ${operation} is rank ${root}`, `ranks are 0 to ${n - 1}`);
  if (reduceOp !== undefined && !PLAN_REDUCE_OPS.includes(reduceOp))
    complain(-1, `the collective reduces with ${String(reduceOp)}`, `use one of ${PLAN_REDUCE_OPS.join(", ")}`);
  checkCounts(plan, complain);
  checkReceivers(plan, complain);
  checkConditions(plan, complain);
  checkBuffers(plan, complain);
}

/** Counts of the variants with parts of different sizes: one for each rank, or for each pair. */
function checkCounts({ collective: { counts, sendCounts }, ranks }: ExecutionPlan, complain: Complain): void {
  const n = ranks.length;
  const isList = (list: readonly number[]) => list.length === n && list.every(isCount);
  if (counts !== undefined && !isList(counts))
    complain(-1, `the collective has counts ${counts.join(", ")} for ${n} ranks`, "give each rank a number of chunks");
  if (sendCounts !== undefined && !(sendCounts.length === n && sendCounts.every(isList)))
    complain(-1, `the collective's counts to send are not ${n} lists of ${n}`, "give each pair a number of chunks");
}

/** Who sends to whom: each to one rank or to nobody, and no two to the same. */
function checkReceivers({ collective: { operation, sendTo }, ranks }: ExecutionPlan, complain: Complain): void {
  if (operation !== "send_recv" || sendTo === undefined) return;
  const n = ranks.length;
  const receivers = sendTo.filter((rank) => rank !== null);
  if (sendTo.length !== n || receivers.some((rank) => !isCount(rank) || rank >= n))
    complain(
      -1,
      `the ranks send to ${sendTo.join(", ")}`,
      `name a rank, 0 to ${n - 1}, or null, for each of ${n} ranks`,
    );
  else if (new Set(receivers).size < receivers.length)
    complain(-1, `the ranks send to ${sendTo.join(", ")}: two send to the same`, "let each rank receive from one");
}

/** Conditions of a custom collective: one for each output chunk, of input chunks that are there. */
function checkConditions({ collective: { operation, custom } }: ExecutionPlan, complain: Complain): void {
  if (operation !== "custom" || custom === undefined) return;
  custom.outputChunks.forEach((count, rank) => {
    const own = custom.post[rank];
    if (own?.length !== count)
      complain(
        rank,
        `the collective has conditions for ${own?.length ?? 0} output chunks of rank ${rank}, which has ${count}`,
        "say what each has to hold; null: anything",
      );
    for (const value of own ?? []) {
      const from = value === null ? [] : value.kind === "copy" ? [value.from] : value.from;
      const absent = from.find(({ rank: r, chunk }) => !isCount(chunk) || chunk >= (custom.inputChunks[r] ?? 0));
      if (absent !== undefined)
        complain(
          rank,
          `an output of rank ${rank} has to hold input[${absent.chunk}] of rank ${absent.rank}, which is not there`,
          "name chunks that the ranks have as input",
        );
      const names = from.map(({ rank: r, chunk }) => `input[${chunk}] of rank ${r}`);
      const twice = new Set(names).size === names.length ? undefined : names.find((name, i) => names.indexOf(name) < i);
      if (twice !== undefined)
        complain(
          rank,
          `an output of rank ${rank} has to hold ${twice} more than once`,
          "name each input of a reduction once",
        );
    }
  });
}

function checkBuffers(plan: ExecutionPlan, complain: Complain): void {
  const { operation, custom } = plan.collective;
  // A reader that finds chunk counts which no such collective has keeps the file's name for it.
  if (operation === "custom" && plan.mode === "imported" && custom !== undefined && KNOWN_NAMES.has(custom.name)) {
    const chunks = plan.ranks.map((rank) => `${rank.input.chunks}/${rank.output.chunks}`).join(", ");
    complain(
      -1,
      `no ${custom.name} of ${plan.ranks.length} ranks has these input/output chunks: ${chunks}`,
      "make the chunk counts agree with the collective",
    );
    return;
  }
  let expected: ReturnType<typeof collectiveChunks>;
  try {
    expected = collectiveChunks(plan.collective, plan.options.instances);
  } catch (error) {
    complain(-1, `the collective is not defined: ${error instanceof Error ? error.message : String(error)}`, "mend it");
    return;
  }
  // In how many parts a buffer is cut decides where its chunks lie at sizes that do not divide.
  for (const rank of plan.ranks) {
    const segments = { ...segmentsOf(plan.collective, rank.rank), scratch: 1 };
    for (const buffer of BUFFERS)
      if (rank[buffer].chunks > 0 && rank[buffer].segments !== segments[buffer])
        complain(
          rank.rank,
          `the ${buffer} buffer is cut in ${rank[buffer].segments} parts, ${operation} of ${plan.ranks.length} ranks has ${segments[buffer]}`,
          "give it as many segments as the collective has parts there",
        );
  }
  expected?.forEach((chunks, r) => {
    for (const buffer of ["input", "output"] as const) {
      const actual = plan.ranks[r]?.[buffer].chunks ?? 0;
      // A rank may have a buffer that the collective does not ask of it; what it asks of it must be there.
      if (actual < chunks[buffer] || (chunks[buffer] > 0 && actual !== chunks[buffer])) {
        complain(
          r,
          `the ${buffer} buffer has ${actual} chunks, ${plan.collective.operation} of ${plan.ranks.length} ranks needs ${chunks[buffer]}`,
          "make the chunk counts agree with the collective",
        );
      }
    }
  });
}
