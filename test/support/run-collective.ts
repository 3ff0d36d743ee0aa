/**
 * Runs a plan of a named collective on `LocalRanks` with random integers, poisoned outputs and guards around every
 * buffer, and compares with what the collective means (`outputSegments`). Not for custom collectives.
 */

import type { ExecutionPlan } from "../../src/authoring/plan/index.ts";
import { type OperationName, outputSegments } from "../../src/collectives/index.ts";
import { type DType, sizeOf, type TypedArray } from "../../src/core/index.ts";
import { Random } from "../oracle/random.ts";
import type { LocalBuffers, RanksOfOneMemory } from "./local-ranks.ts";

const GUARD = 256;
const POISON = 0xa5;

export interface CaseOptions {
  readonly dtype: DType;
  /** Elements of a part; of a chunk where parts are of different sizes. */
  readonly count: number;
  readonly seed: number;
  /** Elements by which every buffer is off a multiple of 128 bytes. */
  readonly shift?: number;
}

/** Elements of the input and output of a rank. */
export function elementsOf(plan: ExecutionPlan, rank: number, count: number): { input: number; output: number } {
  const own = plan.ranks[rank]!;
  const isV = plan.collective.operation.endsWith("_v");
  const size = ({ chunks, segments }: { chunks: number; segments: number }) =>
    chunks === 0 ? 0 : count * (isV ? chunks : segments);
  return { input: size(own.input), output: size(own.output) };
}

/** Whether this rank's input and output share memory, and where the one lies in the other, in elements. */
function aliasOf(plan: ExecutionPlan, rank: number, count: number): { inOutput?: number; inInput?: number } {
  const { collective } = plan;
  if (!collective.inPlace) return {};
  const isRoot = rank === (collective.root ?? 0);
  const counts = collective.counts?.map((c) => c * plan.options.instances * count);
  const start = counts === undefined ? rank * count : counts.slice(0, rank).reduce((a, b) => a + b, 0);
  switch (collective.operation) {
    case "all_gather":
    case "all_gather_v":
      return { inOutput: start };
    case "gather":
      return isRoot ? { inOutput: start } : {};
    case "reduce_scatter":
    case "reduce_scatter_v":
      return { inInput: start };
    case "scatter":
      return isRoot ? { inInput: start } : {};
    case "reduce":
    case "broadcast":
      return isRoot ? { inInput: 0 } : {};
    default:
      return { inInput: 0 };
  }
}

/** @returns what is wrong, in words, or nothing */
export function runCollective(local: RanksOfOneMemory, options: CaseOptions): string | undefined {
  const { plan } = local;
  const { dtype, count, seed, shift = 0 } = options;
  const random = new Random(seed);
  const size = sizeOf(dtype);
  const place = (elements: number) => {
    const bytes = elements * size;
    const block = local.memory.allocate(bytes + 2 * GUARD + shift * size, false);
    return { block, address: block + GUARD + shift * size, bytes };
  };
  const guarded: { block: number; address: number; bytes: number }[] = [];
  const inputs: TypedArray[] = [];
  const buffers = plan.ranks.map(({ rank }): LocalBuffers => {
    const { input, output } = elementsOf(plan, rank, count);
    const alias = aliasOf(plan, rank, count);
    const whole = place(alias.inOutput === undefined ? input : output);
    guarded.push(whole);
    let outputAt = whole.address;
    let inputAt = whole.address;
    if (alias.inOutput !== undefined) inputAt += alias.inOutput * size;
    else if (alias.inInput !== undefined) outputAt += alias.inInput * size;
    else {
      const other = place(output);
      guarded.push(other);
      outputAt = other.address;
    }
    const values = local.view(dtype, inputAt, input * size);
    for (let i = 0; i < input; i++) {
      const value = random.u32() & 0x7f;
      values[i] = (typeof values[i] === "bigint" ? BigInt(value) : value) as never;
    }
    inputs.push(values.slice());
    return { input: inputAt, inputBytes: input * size, output: outputAt, outputBytes: output * size };
  });
  const stuck = local.launch(count * size, buffers);
  if (stuck !== undefined) return `stuck: ${stuck}`;
  for (const { block, address, bytes } of guarded) {
    const all = new Uint8Array(local.memory.memory.buffer, block, address - block + bytes + GUARD);
    const broken = all.findIndex((byte, i) => (i < address - block || i >= address - block + bytes) && byte !== POISON);
    if (broken >= 0) return `byte ${block + broken - address} of a buffer of ${bytes} bytes was written`;
  }
  for (const { rank } of plan.ranks) {
    const wrong = compare(
      plan,
      rank,
      count,
      inputs,
      local.view(dtype, buffers[rank]!.output, buffers[rank]!.outputBytes),
    );
    if (wrong !== undefined) return wrong;
  }
  return undefined;
}

function compare(
  plan: ExecutionPlan,
  rank: number,
  count: number,
  inputs: readonly TypedArray[],
  actual: TypedArray,
): string | undefined {
  const c = plan.collective;
  const scale = (row: readonly number[]) => row.map((chunks) => chunks * plan.options.instances * count);
  const from = c.sendTo?.indexOf(rank) ?? -1;
  const segments =
    c.operation === "send_recv"
      ? from < 0
        ? []
        : [{ at: 0, length: count, start: 0, from }]
      : outputSegments(c.operation as OperationName, {
          numRanks: c.numRanks,
          rank,
          count,
          ...(c.root === undefined ? {} : { root: c.root }),
          ...(c.counts === undefined ? {} : { counts: scale(c.counts) }),
          ...(c.sendCounts === undefined ? {} : { sendCounts: c.sendCounts.map(scale) }),
        });
  for (const { at, length, start, from } of segments) {
    for (let i = 0; i < length; i++) {
      const values = (from === undefined ? inputs : [inputs[from]!]).map((input) => Number(input[start + i]));
      const sum = values.reduce((a, b) => a + b);
      if (Number(actual[at + i]) !== sum) {
        return `rank ${rank} output ${at + i} is ${actual[at + i]}, expected ${sum} = ${values.join(" + ")}`;
      }
    }
  }
  return undefined;
}
